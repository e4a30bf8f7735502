package main

var linger = measure{
	No: 2, Name: "Lock and Unlock, alone, WithLinger",
	Situation: "one goroutine, nobody else there, `WithLinger(1 s)`: the lock is kept until somebody else wants it",
	run: func(s *servers, sc *scale) (*report, error) {
		costs, notes, err := runUncontended(s, sc.pairs, false, []string{lingering.name, recipe.name, floor.name})
		if err != nil {
			return nil, err
		}
		faster := median(ratios(costs[recipe.name].Times, costs[lingering.name].Times))
		costs[ours.name] = costs[lingering.name]
		delete(costs, lingering.name)
		times := costs.metric("time", func(c pairCost) []float64 { return c.Times }, seconds)
		speed := metric{Name: "times as fast as the recipe", Of: map[string]float64{ours.name: faster}}
		cmds := costs.metric("commands", func(c pairCost) []float64 { return c.Commands }, commands)
		return &report{
			Metrics: []metric{times.atMost(1e-6), speed.atLeast(50), cmds},
			Charts:  []chart{bars("02-linger", "Lock and Unlock, alone, WithLinger", "time (shorter is better)", times)},
			Notes:   notes,
		}, nil
	},
}
