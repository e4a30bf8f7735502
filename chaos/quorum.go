package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Worlds with a Quorum: three or five servers that know nothing of each other, and between each worker and each
// server a proxy, so that a worker may lose some of the servers and keep the others. Everything else is as in the
// other worlds, and so is the judge.
//
// In worlds with persistence no server ever forgets what it has promised, so nothing is excused. In those without, a
// server that is restarted has lost its memory. They do so one at a time, with a lease between, and
// excuse the holds of that time: one that had a bare majority may be lost with it. Tokens rise all the same, for all
// servers have the clock of the one machine.
//
// In gentle worlds everything fails at one server alone, or on the way to it: nobody loses a lease, and nobody waits
// for long while a lock is free, at any time.

// quorumEvery is how often AnyPlanFor makes a world with a Quorum.
const quorumEvery = 7

// AnyPlanFor makes the plan of a seed, whichever kind it stands for: PlanFor's or QuorumPlanFor's.
func AnyPlanFor(seed uint64, length time.Duration) Plan {
	if seed%quorumEvery == 0 {
		return QuorumPlanFor(seed, length)
	}
	return PlanFor(seed, length)
}

// quorumKinds are the kinds of faults in a world with a Quorum, with how often they come.
var quorumKinds = []struct {
	kind  Kind
	often int
}{
	{WorkerKill, 4}, {WorkerStop, 6}, {WorkerClose, 1}, {ServerKill, 6}, {ServerStop, 6},
	{NetCut, 5}, {NetReset, 2}, {NetHole, 8}, {NetDelay, 6}, {NetFade, 6}, {NetRefuse, 5}, {LoseOne, 12},
}

// ofWorker: faults of one worker.
func (k Kind) ofWorker() bool { return k == WorkerKill || k == WorkerStop || k == WorkerClose }

// QuorumPlanFor makes the plan of a seed for a world with a Quorum.
func QuorumPlanFor(seed uint64, length time.Duration) Plan {
	r := rand.New(rand.NewPCG(seed, 0x71756f72756d))
	p := Plan{
		Seed: seed, Flavor: testserver.Flavors()[r.IntN(2)], Length: length,
		Persist: r.IntN(3) > 0, Notify: r.IntN(4) > 0,
		Servers: []int{3, 3, 3, 5}[r.IntN(4)], Workers: 2 + r.IntN(3), Busy: 1 + r.IntN(3),
		Holds:  []string{"short", "mixed", "long"}[r.IntN(3)],
		Leases: []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second},
		Graces: [][]time.Duration{{0}, {500 * time.Millisecond}, {0, 500 * time.Millisecond, 2 * time.Second}}[r.IntN(3)],
	}
	for i := range 1 + r.IntN(3) {
		p.Keys = append(p.Keys, Key{Name: fmt.Sprintf("m%d", i), Kind: "mutex"})
	}
	weak := -1
	if r.IntN(4) == 0 {
		weak = r.IntN(p.Servers)
		p.Gentle, p.Persist = true, true
		p.Leases, p.Graces = []time.Duration{10 * time.Second}, []time.Duration{0, 2 * time.Second}
	}
	p.Schedule = p.quorumSchedule(r, weak)
	return p
}

// quorumSchedule: where one server is weak, everything fails at that one or on the way to it, and no worker does.
func (p Plan) quorumSchedule(r *rand.Rand, weak int) []Fault {
	var deck []Kind
	for _, k := range quorumKinds {
		if r.IntN(4) > 0 && (weak < 0 || !k.kind.ofWorker() && k.kind != NetFade) {
			deck = append(deck, slices.Repeat([]Kind{k.kind}, k.often)...)
		}
	}
	if len(deck) == 0 {
		deck = []Kind{ServerKill}
	}
	gap := []int64{100, 300, 600}[r.IntN(3)]
	var faults []Fault
	free := make([]time.Duration, p.Servers)
	var whole time.Duration // from then on all servers know again what they have promised
	for at := 300 * time.Millisecond; at < p.Length; at += ms(r.Int64N(2 * gap)) {
		f := Fault{At: at, Kind: deck[r.IntN(len(deck))], Slot: -1, Arg: r.IntN(1 << 16), Server: r.IntN(p.Servers)}
		f.For = p.lasts(f.Kind, r)
		if weak >= 0 {
			f.Server = weak
		}
		switch {
		case f.Kind.ofServer():
			if at < free[f.Server] || f.Kind == ServerKill && at < whole {
				continue
			}
			free[f.Server] = at + f.For + 500*time.Millisecond
			if f.Kind == ServerKill {
				whole = at + f.For
				if !p.Persist {
					whole += p.longestLease()
				}
			}
		case f.Kind == NetFade: // of one worker, and all servers but this
			f.Slot = r.IntN(p.Workers)
		case f.Kind.ofWorker() || r.IntN(6) > 0:
			f.Slot = r.IntN(p.Workers)
			if r.IntN(5) == 0 && weak < 0 {
				f.Server = -1
			}
		}
		faults = append(faults, f)
	}
	return faults
}

// beginQuorum makes a Quorum, the Clients under it and its handles. end closes all of them. NewQuorum wants all
// servers to answer, and is asked until they do.
func (w *worker) beginQuorum() (end func()) {
	for {
		var servers []valkey.Client
		var clients []*valkeysync.Client
		for _, addr := range w.Addrs {
			server, client, _ := w.connect(addr)
			servers, clients = append(servers, server), append(clients, client)
		}
		under := func() {
			for i, c := range clients {
				w.end(c)
				servers[i].Close()
			}
		}
		q, err := valkeysync.NewQuorum(clients...)
		if err != nil {
			under()
			w.log.Warn("NewQuorum", "error", err)
			time.Sleep(20 * time.Millisecond)
			continue
		}
		all := map[string]*hands{}
		for _, k := range w.Keys {
			h, opts := w.handsOf(k)
			h.mutexes[""] = q.Mutex(k.Name, opts...)
			all[k.Name] = h
		}
		w.mu.Lock()
		w.hands = all
		w.mu.Unlock()
		return func() {
			w.end(q)
			under()
		}
	}
}
