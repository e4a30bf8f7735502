package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Plan is what a seed stands for: one world and the schedule of its faults.
type Plan struct {
	Seed     uint64
	Flavor   testserver.Flavor
	Persist  bool          // the server keeps its data over a restart
	Notify   bool          // keyspace notifications are on
	Length   time.Duration // of the time in which faults happen
	Servers  int           // of a Quorum; 0: one, and no Quorum
	Workers  int
	Busy     int    // goroutines of a worker
	Holds    string // short, mixed, long
	Keys     []Key
	Leases   []time.Duration
	Graces   []time.Duration
	Queue    bool // nothing fails, and the order is judged
	Gentle   bool // only what a Client can repair at once fails: no lease is lost, nobody waits for a timer
	Schedule []Fault
}

// Fault is one thing that goes wrong.
type Fault struct {
	At     time.Duration // since the workers began
	For    time.Duration // until it is undone
	Kind   Kind
	Slot   int // the worker that it hits; -1: all
	Server int // the server that it hits, or the way to it; -1: all. NetFade: the one of several that it spares
	Arg    int // what the kind makes of it
}

func (f Fault) String() string {
	who := "all"
	if f.Slot >= 0 {
		who = fmt.Sprintf("w%d", f.Slot)
	}
	return fmt.Sprintf("%6dms %-16s %-3s s%d for %4dms arg %d", f.At.Milliseconds(), f.Kind, who, f.Server, f.For.Milliseconds(), f.Arg)
}

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	WorkerKill    Kind = "worker-kill"   // SIGKILL; another takes its place
	WorkerStop    Kind = "worker-stop"   // SIGSTOP, SIGCONT
	WorkerClose   Kind = "worker-close"  // its Client is closed at work, and another made
	ServerKill    Kind = "server-kill"   // SIGKILL, and a start with the data or without
	ServerStop    Kind = "server-stop"   // SIGSTOP, SIGCONT
	NetCut        Kind = "net-cut"       // connections end; Arg: all, of commands, of messages
	NetReset      Kind = "net-reset"     // the same with RST
	NetHole       Kind = "net-hole"      // bytes vanish; Arg: direction and role
	NetDelay      Kind = "net-delay"     // bytes come later; Arg: direction and role
	NetFade       Kind = "net-fade"      // replies come later, and then nothing passes for longer than a lease
	NetRefuse     Kind = "net-refuse"    // connections end, and no new ones come to be
	LoseOne       Kind = "lose-one"      // one request or reply is lost or late; Arg: how
	ClientKill    Kind = "client-kill"   // CLIENT KILL; Arg: of commands, of messages
	ScriptFlush   Kind = "script-flush"  // the scripts must be sent anew
	FlushAll      Kind = "flushall"      // all keys go
	DeleteKey     Kind = "delete-key"    // an operator's DEL of one lock key; Arg: which
	ForceUnlock   Kind = "force-unlock"  // ForceUnlock; Arg: which
	Notifications Kind = "notifications" // keyspace notifications off, and on again
	OutOfMemory   Kind = "out-of-memory" // maxmemory reached (noeviction), and lifted
	Rights        Kind = "rights"        // ACL narrowed, and restored; Arg: how
)

// kinds are all kinds, with how often they come among the others.
var kinds = []struct {
	kind  Kind
	often int
}{
	{WorkerKill, 5}, {WorkerStop, 8}, {WorkerClose, 3}, {ServerKill, 2}, {ServerStop, 4},
	{NetCut, 6}, {NetReset, 3}, {NetHole, 8}, {NetDelay, 6}, {NetFade, 8}, {NetRefuse, 4}, {LoseOne, 12},
	{ClientKill, 4}, {ScriptFlush, 3}, {FlushAll, 2}, {DeleteKey, 2}, {ForceUnlock, 2},
	{Notifications, 2}, {OutOfMemory, 2}, {Rights, 3},
}

// gentle: connections break or are slow, and new ones come to be at once.
func (k Kind) gentle() bool {
	return k == NetCut || k == NetReset || k == NetDelay || k == ClientKill || k == ScriptFlush
}

// ofServer: faults of which the server bears one at a time.
func (k Kind) ofServer() bool { return k == ServerKill || k == ServerStop }

// PlanFor makes the plan of a seed.
func PlanFor(seed uint64, length time.Duration) Plan {
	r := rand.New(rand.NewPCG(seed, 0x76616c6b65))
	p := Plan{
		Seed: seed, Flavor: testserver.Flavors()[seed%2], Length: length,
		Persist: r.IntN(2) == 0, Notify: r.IntN(4) > 0,
		Workers: 2 + r.IntN(4), Busy: 1 + r.IntN(6),
		Holds: []string{"short", "short", "mixed", "long"}[r.IntN(4)],
	}
	if r.IntN(12) == 0 {
		return p.queue()
	}
	mutexes := 1 + r.IntN(2)
	if p.Holds == "short" {
		p.Busy += 3
		mutexes += r.IntN(3)
	}
	for i := range mutexes {
		p.Keys = append(p.Keys, Key{Name: fmt.Sprintf("m%d", i), Kind: "mutex"})
	}
	if r.IntN(2) == 0 {
		p.Keys = append(p.Keys, Key{Name: "rw", Kind: "rwmutex"})
	}
	if r.IntN(2) == 0 {
		p.Keys = append(p.Keys, Key{Name: "sem", Kind: "semaphore", Size: 1 + r.Int64N(maxSize)})
	}
	p.Leases = []time.Duration{time.Second, 1500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 4 * time.Second}
	if r.IntN(6) == 0 {
		p.Leases = []time.Duration{10 * time.Second}
	}
	p.Graces = [][]time.Duration{{0}, {0}, {500 * time.Millisecond}, {2 * time.Second}, {0, 500 * time.Millisecond, 2 * time.Second}}[r.IntN(5)]
	if r.IntN(8) == 0 {
		p.Gentle = true
		p.Leases, p.Graces = []time.Duration{10 * time.Second}, [][]time.Duration{{0}, {2 * time.Second}}[r.IntN(2)]
	}
	p.Schedule = p.schedule(r)
	for i := range p.Keys {
		p.Keys[i].Owned = p.Keys[i].Kind == "mutex" && r.IntN(3) == 0
	}
	return p
}

// queue is a world where nothing fails, so that the order can be judged: every worker asks for one lock,
// by one goroutine, and waits for long.
func (p Plan) queue() Plan {
	p.Queue = true
	p.Workers, p.Busy, p.Holds = 8, 1, "mixed"
	p.Keys = []Key{{Name: "m0", Kind: "mutex"}}
	p.Leases, p.Graces = []time.Duration{10 * time.Second}, []time.Duration{2 * time.Second}
	return p
}

// schedule draws faults: a few kinds in one world, some of them close together.
func (p Plan) schedule(r *rand.Rand) []Fault {
	var deck []Kind
	for _, k := range kinds {
		if r.IntN(2) == 0 && (!p.Gentle || k.kind.gentle()) {
			deck = append(deck, slices.Repeat([]Kind{k.kind}, k.often)...)
		}
	}
	if len(deck) == 0 {
		deck = []Kind{NetCut}
	}
	gap := []int64{100, 300, 600}[r.IntN(3)]
	var faults []Fault
	var serverFree time.Duration
	for at := 300 * time.Millisecond; at < p.Length; at += ms(r.Int64N(2 * gap)) {
		f := Fault{At: at, Kind: deck[r.IntN(len(deck))], Slot: -1, Arg: r.IntN(1 << 16)}
		f.For = p.lasts(f.Kind, r)
		switch f.Kind {
		case WorkerKill, WorkerStop, WorkerClose, NetFade:
			f.Slot = r.IntN(p.Workers)
		case NetCut, NetReset, NetHole, NetDelay, NetRefuse, LoseOne, Rights:
			if r.IntN(4) > 0 {
				f.Slot = r.IntN(p.Workers)
			}
		}
		if f.Kind.ofServer() {
			if at < serverFree {
				continue
			}
			serverFree = at + f.For + 500*time.Millisecond
		}
		faults = append(faults, f)
	}
	return faults
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// lasts draws how long a fault lasts: often less than a grace, at times longer than a lease.
func (p Plan) lasts(k Kind, r *rand.Rand) time.Duration {
	lease := p.Leases[r.IntN(len(p.Leases))]
	short, long := ms(20+r.Int64N(500)), ms(r.Int64N(lease.Milliseconds()*3/2))
	switch k {
	case WorkerKill, ServerKill, NetDelay:
		return short
	case NetFade:
		return lease/2 + lease + ms(r.Int64N(500))
	case WorkerStop, ServerStop, NetHole, NetRefuse, Notifications, OutOfMemory, Rights:
		if r.IntN(3) == 0 {
			return min(long, 4*time.Second)
		}
		return short
	}
	return 0
}

// longestLinger is the longest WithLinger of any worker. Who only tries finds a lock that lingers in use.
const longestLinger = 300 * time.Millisecond

// job is what the worker of that slot is to do in its n-th life.
func (p Plan) job(slot, life int, addr string) job {
	r := rand.New(rand.NewPCG(p.Seed, uint64(slot)<<8|uint64(life)))
	j := job{
		Slot: slot, Life: life, Seed: p.Seed, Addr: addr, Keys: p.Keys, Goroutines: p.Busy, Holds: p.Holds, Queue: p.Queue,
		Lease: p.Leases[r.IntN(len(p.Leases))], Grace: p.Graces[r.IntN(len(p.Graces))],
	}
	if !p.Queue { // a place that is kept counts from the last unlock
		j.Linger = []time.Duration{0, 0, longestLinger / 15, longestLinger}[r.IntN(4)]
	}
	return j
}

// patience is how long a lock may stay unheld at the most while somebody waits for it, once nothing fails
// any more. Whoever waits at place i looks by itself after i leases, or i²/2 graces: so long it takes where
// those before it have died, or where the queue is gone and nobody was told (FLUSHALL makes no event). The
// places of those who gave up count until their leave has come, which is why there are more than workers.
func (p Plan) patience() time.Duration {
	if p.Gentle {
		return serveSlack
	}
	rows := 1
	for _, f := range p.Schedule {
		// A Client that is closed while it is cut off, or without rights, leaves its places behind as a dead one does.
		if f.Kind == WorkerKill || f.Kind == WorkerClose || f.Kind == FlushAll {
			rows = p.Workers + 3
		}
	}
	return p.longestLease()*time.Duration(rows) + serveSlack
}

// longestLease is what a dead holder can cost at the most.
func (p Plan) longestLease() time.Duration { return slices.Max(p.Leases) }

// serverArgs are how the server is started.
func (p Plan) serverArgs() []string {
	args := []string{"--maxmemory-policy", "noeviction"}
	for slot := range p.Workers {
		args = append(args, "--user", user(slot))
		args = append(args, allRights...)
	}
	if p.Persist {
		args = append(args, "--appendonly", "yes", "--appendfsync", "always")
	}
	if p.Notify {
		args = append(args, "--notify-keyspace-events", notifyFlags)
	}
	return args
}

const notifyFlags = "Kgxe"

// Has: all of these words say something of the plan: a kind of fault or of lock, of holds, of server;
// persist, notify, queue, gentle, owned, quorum; grace-off or grace-on of all workers.
func (p Plan) Has(words ...string) bool {
	have := map[string]bool{
		p.Holds: true, string(p.Flavor): true, "persist": p.Persist, "notify": p.Notify, "queue": p.Queue, "gentle": p.Gentle, "quorum": p.Servers > 0,
		"grace-off": slices.Max(p.Graces) == 0, "grace-on": slices.Min(p.Graces) > 0,
	}
	for _, f := range p.Schedule {
		have[string(f.Kind)] = true
	}
	for _, k := range p.Keys {
		have[k.Kind] = true
		have["owned"] = have["owned"] || k.Owned
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !have[w] })
}

// String describes the world and its schedule.
func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d %s, persistence %v, notifications %v, %d workers of %d, %s holds, keys %v, leases %v, graces %v, in order %v, gentle %v, %v of faults",
		p.Seed, max(p.Servers, 1), p.Flavor, p.Persist, p.Notify, p.Workers, p.Busy, p.Holds, p.Keys, p.Leases, p.Graces, p.Queue, p.Gentle, p.Length)
	for _, f := range p.Schedule {
		fmt.Fprintf(&b, "\n  %v", f)
	}
	return b.String()
}
