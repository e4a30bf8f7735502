package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"
)

var uncontended = measure{
	No: 1, Name: "Lock and Unlock, alone", etcd: true,
	Situation: "one goroutine, nobody else there; client and server kept to one core",
	run: func(s *servers, sc *scale) (*report, error) {
		var names []string
		for _, c := range contestants {
			names = append(names, c.name)
		}
		costs, notes, err := runUncontended(s, sc.pairs, true, names)
		if err != nil {
			return nil, err
		}
		times := costs.metric("time", func(c pairCost) []float64 { return c.Times }, seconds)
		allocs := costs.metric("allocations", func(c pairCost) []float64 { return c.Allocs }, number)
		cmds := costs.metric("commands", func(c pairCost) []float64 { return c.Commands }, commands)
		return &report{
			Metrics: []metric{
				times.ratioAtMost(1.05, median(ratios(costs[ours.name].Times, costs[recipe.name].Times)), recipe.name),
				allocs.atMost(15),
				cmds.goal("2", digits(cmds.ours()), cmds.ours() == 2),
			},
			Charts: []chart{bars("01-alone", "Lock and Unlock, alone", "time (shorter is better)", times)},
			Notes:  notes,
		}, nil
	},
}

// pairCost is what a Lock and its Unlock cost.
type pairCost struct {
	Times    []float64 // seconds, a round each
	Allocs   []float64
	Commands []float64 // counted once
	Failed   string    // why it has fewer rounds than the others
}

type pairCosts map[string]pairCost

func (p pairCosts) metric(name string, of func(pairCost) []float64, u unit) metric {
	s := series{}
	for c, cost := range p {
		s[c] = of(cost)
	}
	return s.metric(name, u)
}

// runUncontended has a child lock and unlock, by turns as each of the contestants.
func runUncontended(s *servers, r rounds, onOneCore bool, names []string) (costs pairCosts, notes []string, err error) {
	var env []string
	if onOneCore {
		env = append(env, "GOMAXPROCS=1")
	}
	c, err := start(job{Kind: "uncontended", Place: s.place, Names: names, Rounds: r}, nil, env...)
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	if onOneCore {
		if err := pin(append(s.pids(), c.pid())...); err != nil {
			notes = append(notes, fmt.Sprintf("not kept to one core: %v", err))
		}
	}
	if err := c.run(&costs); err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		if c := costs[name]; c.Failed != "" {
			notes = append(notes, fmt.Sprintf("%s, after %d rounds: %s.", name, len(c.Times), c.Failed))
		}
	}
	return costs, notes, nil
}

// prepareUncontended is the child. Times are taken with connections that nobody counts on.
func prepareUncontended(j job) (any, func() (any, error), error) {
	loners := make([]loner, len(j.Names))
	for i, name := range j.Names {
		l := &loners[i]
		l.name = name
		l.try(func() (err error) {
			l.locker, err = lone(name, j.Place)
			return err
		})
	}
	return "ready", func() (any, error) {
		for i := range loners {
			loners[i].try(func() error { return loners[i].calibrate(j.Rounds.Turn) })
		}
		_ = j.Rounds.byTurns(len(loners), func(i int) error {
			loners[i].try(loners[i].turn)
			return nil
		})
		costs := pairCosts{}
		for i := range loners {
			l := &loners[i]
			l.try(func() error { return l.count(j.Place) })
			costs[l.name] = l.cost
		}
		if failed := costs[j.Names[0]].Failed; failed != "" {
			return nil, errors.New(failed)
		}
		return costs, nil
	}, nil
}

// loner is a contestant for whom nobody is in the way.
type loner struct {
	name   string
	locker locker
	n      int // pairs in a turn
	cost   pairCost
}

// try does something as long as nothing has failed.
func (l *loner) try(f func() error) {
	if l.cost.Failed != "" {
		return
	}
	if err := watched(f); err != nil {
		l.cost.Failed = err.Error()
	}
}

// calibrate finds how many pairs fit into a turn.
func (l *loner) calibrate(turn time.Duration) error {
	const trial = 20
	took, _, err := pairs(l.locker, trial)
	l.n = min(max(int(float64(turn)/float64(max(took/trial, 1))), 5), 1_000_000)
	return err
}

func (l *loner) turn() error {
	took, allocs, err := pairs(l.locker, l.n)
	if err != nil {
		return err
	}
	l.cost.Times = append(l.cost.Times, took.Seconds()/float64(l.n))
	l.cost.Allocs = append(l.cost.Allocs, allocs)
	return nil
}

// count tells how many commands a Lock and its Unlock send. What is sent by the clock is not part of it: so
// few are quick.
func (l *loner) count(p place) error {
	p.wire = &wire{}
	counted, err := lone(l.name, p)
	if err != nil {
		return err
	}
	const n = 100
	before := p.wire.total()
	_, _, err = pairs(counted, n)
	l.cost.Commands = []float64{float64(p.wire.total()-before) / n}
	return err
}

// lone is a locker for a key of its own.
func lone(name string, p place) (locker, error) {
	c, ok := named(name)
	if !ok {
		return nil, fmt.Errorf("no contestant %q", name)
	}
	m, err := join(c, p)
	if err != nil {
		return nil, err
	}
	l, err := m.locker("alone-" + name)
	if err != nil {
		return nil, err
	}
	return l, pair(l)
}

// pairs locks and unlocks n times, and tells how long that took and how much it allocated for one.
func pairs(l locker, n int) (took time.Duration, allocs float64, err error) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	for range n {
		if err := pair(l); err != nil {
			return 0, 0, err
		}
	}
	took = time.Since(start)
	runtime.ReadMemStats(&after)
	return took, float64((after.Mallocs - before.Mallocs) / uint64(n)), nil // whole ones, as testing counts them: the runtime has its own
}
