package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	crashLease     = 30 * time.Second
	crashConnected = 5 * time.Second // ours looks for dead holders only when it has been connected for 4 s
	crashWait      = time.Second
)

var crash = measure{
	No: 13, Name: "the holder is killed", etcd: true,
	Situation: "a process is killed (SIGKILL) while it has the lock, and another, connected for some seconds, has waited for one: from the kill to its having the lock. Ours and the plain recipe have a lease of 30 s, the others their own",
	run: func(s *servers, sc *scale) (*report, error) {
		list := shared()
		results := make([]float64, len(list)*sc.crashes)
		failures := make([]error, len(results))
		// Nobody works here, all wait: so they wait at the same time.
		err := together(len(results), func(i int) error {
			c, limit := list[i%len(list)], sc.crash
			if c.name == ours.name {
				limit = time.Minute
			}
			results[i], failures[i] = crashOnce(c, s.place, fmt.Sprintf("crash-%d", i), limit)
			if c.name == ours.name {
				return failures[i]
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		m := metric{Name: "wait, median", Unit: seconds, Of: map[string]float64{}}
		worst := metric{Name: "wait, longest", Unit: seconds, Of: map[string]float64{}}
		r := &report{Metrics: []metric{m, worst}}
		for i, c := range list {
			var waits []float64
			for k := i; k < len(results); k += len(list) {
				if failures[k] != nil {
					r.Notes = append(r.Notes, fmt.Sprintf("Without a figure: %v.", failures[k]))
					continue
				}
				waits = append(waits, results[k])
			}
			if len(waits) == 0 {
				continue
			}
			m.Of[c.name] = median(waits)
			worst.Of[c.name] = quantile(waits, 1)
			if math.IsInf(worst.Of[c.name], 1) {
				r.Notes = append(r.Notes, fmt.Sprintf("%s: longer than %v.", c.name, sc.crash))
			}
		}
		r.Charts = []chart{bars("13-crash", "The holder is killed: how long the next one waits", "time (shorter is better)", m)}
		return r, nil
	},
}

// crashOnce kills a holder and tells how long the next one waits, in seconds; +Inf where it is longer than
// the limit.
func crashOnce(c contestant, p place, key string, limit time.Duration) (float64, error) {
	p.Lease = crashLease
	m, err := join(c, p)
	if err != nil {
		return 0, err
	}
	defer m.close()
	l, err := m.locker(key)
	if err != nil {
		return 0, err
	}
	time.Sleep(crashConnected)
	holder, err := start(job{Kind: "hold", Place: p, Contestant: c.name, Key: key}, nil)
	if err != nil {
		return 0, err
	}
	defer holder.close()
	// No deadline in ctx: some take it for the lease.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer time.AfterFunc(crashWait+limit, cancel).Stop()
	got := make(chan error, 1)
	go func() { got <- l.Lock(ctx) }()
	select {
	case err := <-got:
		return 0, fmt.Errorf("%s: another has the lock while it is held (%w)", c.name, err)
	case <-time.After(crashWait):
	}
	killed := time.Now()
	if err := holder.kill(); err != nil {
		return 0, err
	}
	if err := <-got; err != nil {
		if ctx.Err() != nil {
			return math.Inf(1), nil
		}
		return 0, err
	}
	waited := time.Since(killed).Seconds()
	return waited, l.Unlock(ctx)
}

// prepareHold takes a lock and keeps it until it is killed.
func prepareHold(j job) (any, func() (any, error), error) {
	c, ok := named(j.Contestant)
	if !ok {
		return nil, nil, fmt.Errorf("no contestant %q", j.Contestant)
	}
	m, err := join(c, j.Place)
	if err != nil {
		return nil, nil, err
	}
	l, err := m.locker(j.Key)
	if err != nil {
		return nil, nil, err
	}
	if err := l.Lock(context.Background()); err != nil {
		return nil, nil, err
	}
	return "held", func() (any, error) { return nil, errors.New("a holder only holds") }, nil
}
