package main

import (
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
		allocs := costs.metric("allocations", func(c pairCost) []float64 { return []float64{c.Allocs} }, number)
		cmds := costs.metric("commands", func(c pairCost) []float64 { return []float64{c.Commands} }, commands)
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
	Allocs   float64
	Commands float64
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
	return costs, notes, c.run(&costs)
}

// prepareUncontended is the child. Times are taken with connections that nobody counts on.
func prepareUncontended(j job) (any, func() (any, error), error) {
	var lockers []locker
	for _, name := range j.Names {
		l, err := lone(name, j.Place)
		if err != nil {
			return nil, nil, err
		}
		lockers = append(lockers, l)
	}
	return "ready", func() (any, error) {
		costs := pairCosts{}
		ns := make([]int, len(lockers))
		for i, l := range lockers {
			const trial = 20
			took, _, err := pairs(l, trial)
			if err != nil {
				return nil, err
			}
			ns[i] = min(max(int(float64(j.Rounds.Turn)/float64(max(took/trial, 1))), 5), 1_000_000)
		}
		err := j.Rounds.byTurns(len(lockers), func(i int) error {
			took, allocs, err := pairs(lockers[i], ns[i])
			c := costs[j.Names[i]]
			c.Times = append(c.Times, took.Seconds()/float64(ns[i]))
			c.Allocs = allocs
			costs[j.Names[i]] = c
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, name := range j.Names {
			c := costs[name]
			if c.Commands, err = countPairs(name, j.Place); err != nil {
				return nil, err
			}
			costs[name] = c
		}
		return costs, nil
	}, nil
}

// lone is a locker for whom nobody is in the way.
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
	return took, float64(after.Mallocs-before.Mallocs) / float64(n), nil
}

// countPairs tells how many commands a Lock and its Unlock send. What is sent by the clock is not part of
// it: so few are quick.
func countPairs(name string, p place) (float64, error) {
	p.wire = &wire{}
	l, err := lone(name, p)
	if err != nil {
		return 0, err
	}
	const n = 100
	before := p.wire.total()
	_, _, err = pairs(l, n)
	return float64(p.wire.total()-before) / n, err
}
