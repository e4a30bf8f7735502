package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// World is one run of a plan.
type World struct {
	plan    Plan
	dir     string
	server  *testserver.Server   // the first, and in most worlds the only one
	servers []*testserver.Server // all
	proxies []*proxy.Proxy       // by worker, and then by server
	record  *record
	over    chan struct{} // no more faults
	resting sync.Once
	faults  sync.WaitGroup
	serving sync.Mutex // the server is being ended or started

	mu        sync.Mutex
	hands     []*hand // by slot; nil while one is replaced
	lives     []int
	lastFault int64
	stopped   int64 // when the workers were told to begin nothing more
}

const (
	readyLimit = 30 * time.Second
	// serveSlack is for a silent connection to be found out and replaced, and for a busy machine.
	serveSlack = 6 * time.Second
	// calm is how long the workers go on after the last fault.
	calm = 500 * time.Millisecond
)

// Run lets a plan happen, in a folder of its own below dir (which stays where something went wrong), and
// judges it. An error is about the suite's own means, a violation (in the result) about the library.
func Run(plan Plan, dir string) (res *Result, err error) {
	dir = filepath.Join(dir, fmt.Sprintf("seed-%d", plan.Seed))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	w := &World{
		plan: plan, dir: dir, record: newRecord(), over: make(chan struct{}),
		hands: make([]*hand, plan.Workers), lives: make([]int, plan.Workers),
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("seed %d: %v", plan.Seed, p)
		}
	}()
	defer w.end()
	for i := range max(plan.Servers, 1) {
		home := filepath.Join(dir, fmt.Sprintf("server-%d", i))
		if err := os.Mkdir(home, 0o755); err != nil {
			return nil, err
		}
		s, err := testserver.Launch(plan.Flavor, home, plan.serverArgs()...)
		if err != nil {
			return nil, err
		}
		w.servers = append(w.servers, s)
	}
	w.server = w.servers[0]
	for range plan.Workers {
		for _, s := range w.servers {
			p, err := proxy.Listen(s.Addr())
			if err != nil {
				return nil, err
			}
			w.proxies = append(w.proxies, p)
		}
	}
	for slot := range w.hands {
		if w.hands[slot], err = w.hire(slot, 0); err != nil {
			return nil, err
		}
	}
	if err := w.await(readyLimit, "the workers are ready", func(r *record) bool { return len(r.ready) == plan.Workers }); err != nil {
		return nil, err
	}
	began := time.Now()
	w.happen()
	if err := w.heal(); err != nil {
		return nil, err
	}
	time.Sleep(calm)
	res = &Result{Plan: plan}
	w.windDown(res)
	w.rest()
	w.judge(res)
	res.Took = time.Since(began)
	if len(res.Violations) == 0 {
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// happen lets the faults of the schedule happen, each at its time, and returns when all are over.
func (w *World) happen() {
	began := time.Now()
	var faults sync.WaitGroup
	problem := make(chan any, len(w.plan.Schedule))
	for _, f := range w.plan.Schedule {
		faults.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					problem <- p
				}
			}()
			w.sleep(time.Until(began.Add(f.At)))
			w.do(f)
		})
	}
	w.sleep(w.plan.Length)
	faults.Wait()
	for _, p := range w.proxies {
		p.Forget() // a request that is still to be lost is a fault of the past
	}
	select {
	case p := <-problem:
		panic(p)
	default:
	}
}

func (w *World) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	<-t.C
}

func (w *World) hand(slot int) *hand {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.hands[slot]
}

// await waits until the record is as it should be.
func (w *World) await(limit time.Duration, what string, is func(r *record) bool) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		w.record.mu.Lock()
		ok, changed := is(w.record), w.record.changed
		w.record.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return fmt.Errorf("seed %d: not within %v: %s", w.plan.Seed, limit, what)
		}
	}
}

// windDown has the workers finish what they are about, looks at what is left, and ends them.
func (w *World) windDown(res *Result) {
	w.stopped = now()
	w.each(func(h *hand) { h.tell(order{Do: "stop"}) })
	limit := w.plan.patience()
	all := func(of func(r *record) map[string]event) func(r *record) bool {
		return func(r *record) bool {
			for _, h := range w.hands {
				if _, ok := of(r)[h.who]; !ok {
					return false
				}
			}
			return true
		}
	}
	// quiet() of a worker takes 10 s more before it gives up.
	err := w.await(limit+12*time.Second, "all operations have ended", all(func(r *record) map[string]event { return r.idle }))
	if err != nil {
		res.violate("%v; %s\n%s", err, w.standing(), strings.Join(w.waiting(), "\n"))
		return
	}
	for _, s := range w.servers {
		w.leftKeys(s, res)
		w.leftChannels(s, res, len(w.hands), "before Close")
	}
	w.each(func(h *hand) { h.tell(order{Do: "close"}) })
	if err := w.await(15*time.Second, "all workers have closed", all(func(r *record) map[string]event { return r.closed })); err != nil {
		res.violate("%v", err)
		return
	}
	for _, s := range w.servers {
		w.leftChannels(s, res, 0, "after Close")
	}
	w.each(func(h *hand) { <-h.exited })
}

func (w *World) each(f func(h *hand)) {
	for _, h := range w.hands {
		f(h)
	}
}

// leftKeys: all locks are free, nobody who lives is queued, and what is left has an expiry. What a killed
// worker held may take until its lease ends.
func (w *World) leftKeys(s *testserver.Server, res *Result) {
	limit := time.Now().Add(w.plan.longestLease() + 3*time.Second)
	for {
		var left []string
		keys, err := list(s, "KEYS", "*")
		if err != nil {
			res.violate("KEYS: %v", err)
			return
		}
		for _, k := range keys {
			reply, err := s.Do("PTTL", k)
			if err != nil {
				res.violate("PTTL: %v", err)
				return
			}
			ttl, _ := reply.AsInt64()
			if ttl == -1 || ttl >= 0 && !strings.HasSuffix(k, ":fence") && !w.ofTheDead(s, k) {
				left = append(left, fmt.Sprintf("%s (%d ms)", k, ttl))
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(limit) {
			res.violate("left behind on the server: %v; %s", left, w.standing())
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// ofTheDead: a queue in which only those are who were killed, or whose Client was closed while it could not take its
// leave. The next who wants the lock drops them.
func (w *World) ofTheDead(s *testserver.Server, key string) bool {
	if !strings.HasSuffix(key, ":queue") {
		return false
	}
	entries, err := list(s, "ZRANGE", key, "0", "-1")
	return err == nil && !slices.ContainsFunc(entries, func(entry string) bool {
		name := entry[strings.LastIndexByte(entry, ' ')+1:]
		living := slices.ContainsFunc(w.hands, func(h *hand) bool { return strings.HasPrefix(name, h.who+".") })
		return living && !w.record.hasGivenUp(name)
	})
}

// leftChannels: the server has two channels for each of so many Clients, its own and that of its connection,
// and no more. Channels of keys that
// are not watched any more may stay for a while, since a Client never unsubscribes but connects anew; in
// every eighth world that is waited for.
func (w *World) leftChannels(s *testserver.Server, res *Result, clients int, when string) {
	all := clients == 0 || w.plan.Seed%8 == 0
	limit := time.Now().Add(5 * time.Second)
	if clients > 0 && all {
		limit = time.Now().Add(15 * time.Second)
	}
	for {
		channels, err := list(s, "PUBSUB", "CHANNELS")
		channels = slices.DeleteFunc(channels, func(c string) bool {
			return clients > 0 && strings.HasPrefix(c, "__keyspace@0__:valkeysync:probe:") // stays as long as the Client
		})
		if !all {
			channels = slices.DeleteFunc(channels, func(c string) bool {
				return strings.HasPrefix(c, "__keyspace@") || strings.HasPrefix(c, "valkeysync:quorum:")
			})
		}
		if err == nil && len(channels) == 2*clients {
			return
		}
		if time.Now().After(limit) {
			res.violate("%s: %d channels, want %d: %v %v", when, len(channels), 2*clients, channels, err)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func list(s *testserver.Server, args ...string) ([]string, error) {
	reply, err := s.Do(args...)
	if err != nil {
		return nil, err
	}
	return reply.AsStrSlice()
}

// standing is what the server has of the locks, for whoever looks for what went wrong.
func (w *World) standing() string {
	var b strings.Builder
	for _, s := range w.servers {
		for _, k := range w.plan.Keys {
			base := "{" + k.Name + "}"
			for _, args := range [][]string{{"GET", k.Name}, {"PTTL", k.Name}, {"ZRANGE", base + ":queue", "0", "-1"}, {"ZRANGE", base + ":shared", "0", "-1", "WITHSCORES"}} {
				reply, err := s.Do(args...)
				fmt.Fprintf(&b, "%v: %v %v; ", args, reply.String(), err)
			}
		}
	}
	return b.String()
}

// waiting are the operations that have not ended.
func (w *World) waiting() []string {
	w.record.mu.Lock()
	defer w.record.mu.Unlock()
	var list []string
	for _, o := range w.record.open {
		if slices.ContainsFunc(w.hands, func(h *hand) bool { return h.who == o.who }) {
			list = append(list, o.String())
		}
	}
	slices.Sort(list)
	return list
}

// rest gives up faults that still wait for their chance.
func (w *World) rest() {
	w.resting.Do(func() { close(w.over) })
	w.faults.Wait()
}

// end leaves nothing of the world.
func (w *World) end() {
	w.rest()
	for _, h := range w.hands {
		if h != nil {
			h.kill()
		}
	}
	for _, p := range w.proxies {
		p.Close()
	}
	for _, s := range w.servers {
		s.Close()
	}
}

// Dir is where the logs of a plan's world are when it is over and something went wrong.
func Dir(dir string, seed uint64) string { return filepath.Join(dir, fmt.Sprintf("seed-%d", seed)) }
