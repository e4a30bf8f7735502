package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"
)

// crowd is goroutines that lock and unlock one key, as fast as they can, for some time.
type crowd struct {
	Processes  int
	Clients    int // of each process: members of their own, each as a process would be
	Goroutines int // of each Client
	For        time.Duration
	Counter    string // a key that the critical section reads and writes; "": it is empty
}

// crowdResult is what became of it. Only what was acquired within the time counts, but for Inside.
type crowdResult struct {
	Counts   [][]float64 // acquisitions of each goroutine, by process
	Waits    hist        // from calling Lock to having it, or to the end
	Inside   int64       // how often the critical section was run, in all
	Commands int64
	For      time.Duration
}

func (r *crowdResult) acquired() (sum float64) {
	for _, n := range r.byProcess() {
		sum += n
	}
	return sum
}

func (r *crowdResult) byProcess() []float64 {
	var sums []float64
	for _, goroutines := range r.Counts {
		sum := 0.0
		for _, n := range goroutines {
			sum += n
		}
		sums = append(sums, sum)
	}
	return sums
}

func (r *crowdResult) byGoroutine() (all []float64) {
	for _, goroutines := range r.Counts {
		all = append(all, goroutines...)
	}
	return all
}

func (r *crowdResult) rate() float64     { return r.acquired() / r.For.Seconds() }
func (r *crowdResult) commands() float64 { return float64(r.Commands) / max(r.acquired(), 1) }

// each is the time that one acquisition takes of all that there is.
func (r *crowdResult) each() time.Duration {
	return time.Duration(float64(r.For) / max(r.acquired(), 1))
}

// runCrowd has a crowd's processes meet at a key.
func runCrowd(c contestant, p place, key string, cr crowd) (*crowdResult, error) {
	children := make([]*child, cr.Processes)
	defer func() {
		for _, ch := range children {
			if ch != nil {
				ch.close()
			}
		}
	}()
	// A few at a time: to begin with sixty at once is another measure.
	starting := make(chan struct{}, 4)
	if err := together(len(children), func(i int) (err error) {
		starting <- struct{}{}
		defer func() { <-starting }()
		children[i], err = start(job{Kind: "crowd", Place: p, Contestant: c.name, Key: key, Crowd: cr}, nil)
		return err
	}); err != nil {
		return nil, err
	}
	results := make([]crowdResult, len(children))
	if err := together(len(children), func(i int) error { return children[i].run(&results[i]) }); err != nil {
		return nil, err
	}
	sum := &crowdResult{For: cr.For}
	for _, r := range results {
		sum.Counts = append(sum.Counts, r.Counts...)
		sum.Waits.merge(r.Waits)
		sum.Inside += r.Inside
		sum.Commands += r.Commands
	}
	return sum, nil
}

// together calls f for 0 to n-1 at the same time and returns the first error.
func together(n int, f func(i int) error) error {
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- f(i) }()
	}
	var first error
	for range n {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// clientsPerConn is how many Clients of one process share a client of valkey-go.
const clientsPerConn = 64

// prepareCrowd is one process of a crowd.
func prepareCrowd(j job) (_ any, _ func() (any, error), err error) {
	c, ok := named(j.Contestant)
	if !ok {
		return nil, nil, fmt.Errorf("no contestant %q", j.Contestant)
	}
	p := j.Place
	p.wire = &wire{}
	var lockers []locker
	for i := range j.Crowd.Clients {
		if j.Crowd.Clients > 1 && i%clientsPerConn == 0 {
			if p.conn, err = valkey.NewClient(p.valkeyOption()); err != nil {
				return nil, nil, err
			}
		}
		m, err := join(c, p)
		if err != nil {
			return nil, nil, err
		}
		for range j.Crowd.Goroutines {
			l, err := m.locker(j.Key)
			if err != nil {
				return nil, nil, err
			}
			lockers = append(lockers, l)
		}
	}
	inside := func() error { return nil }
	if j.Crowd.Counter != "" {
		conn, err := valkey.NewClient(place{Valkey: p.Valkey}.valkeyOption())
		if err != nil {
			return nil, nil, err
		}
		inside = func() error { return count(conn, j.Crowd.Counter) }
	}
	return "ready", func() (any, error) { return crowdWork(lockers, p.wire, j.Crowd.For, inside) }, nil
}

// count adds one to a counter, in two round trips.
func count(conn valkey.Client, key string) error {
	ctx := context.Background()
	n, err := conn.Do(ctx, conn.B().Get().Key(key).Build()).AsInt64()
	if err != nil && !valkey.IsValkeyNil(err) {
		return err
	}
	return conn.Do(ctx, conn.B().Set().Key(key).Value(strconv.FormatInt(n+1, 10)).Build()).Error()
}

// crowdWork has each locker work in a goroutine of its own.
func crowdWork(lockers []locker, w *wire, d time.Duration, inside func() error) (*crowdResult, error) {
	counts := make([]float64, len(lockers))
	waits := make([]hist, len(lockers))
	inner := make([]int64, len(lockers))
	errs := make([]error, len(lockers))
	ctx, cancel := context.WithCancel(context.Background())
	var over atomic.Bool
	var sent int64
	var wg sync.WaitGroup
	before := w.total()
	start := time.Now()
	time.AfterFunc(d, func() {
		over.Store(true)
		sent = w.total() - before
		cancel()
	})
	for i, l := range lockers {
		wg.Go(func() {
			errs[i] = crowdLoop(ctx, l, &over, start.Add(d), &counts[i], &waits[i], func() error {
				inner[i]++
				return inside()
			})
		})
	}
	<-ctx.Done()
	wg.Wait()
	r := &crowdResult{Counts: [][]float64{counts}, Commands: sent, For: d}
	for i := range lockers {
		if errs[i] != nil {
			return nil, errs[i]
		}
		r.Waits.merge(waits[i])
		r.Inside += inner[i]
	}
	return r, nil
}

// crowdLoop locks and unlocks until it is over. A wait that the end cuts short counts as the time that it has
// lasted: who gets nothing at all has waited, too.
func crowdLoop(ctx context.Context, l locker, over *atomic.Bool, end time.Time, n *float64, waits *hist, inside func() error) error {
	for !over.Load() {
		began := time.Now()
		if err := l.Lock(ctx); err != nil {
			if ctx.Err() == nil {
				return err
			}
			waits.add(end.Sub(began))
			return nil
		}
		waited := time.Since(began)
		if err := inside(); err != nil {
			return err
		}
		inTime := !over.Load()
		if err := l.Unlock(ctx); err != nil {
			return err
		}
		if inTime {
			*n++
		}
		waits.add(min(waited, end.Sub(began)))
	}
	return nil
}
