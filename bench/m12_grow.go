package main

import (
	"fmt"
	"strings"
)

// mostOthers is how many Clients of the others wait at most: from there on one sees where it goes.
const mostOthers = 200

var grow = measure{
	No: 12, Name: "as it grows", etcd: true,
	Situation: "what one acquisition costs while more and more wait, each with one goroutine and an empty critical section: as Clients of one process, and as processes",
	run: func(s *servers, sc *scale) (*report, error) {
		r := &report{}
		err := growing(s, sc, r, "Clients", "one holds and that many Clients wait", sc.waiting, func(n int) crowd {
			return crowd{Processes: 1, Clients: n + 1, Goroutines: 1}
		})
		if err != nil {
			return nil, err
		}
		r.Notes = append(r.Notes, "Look at the three together: who tries again on a timer is cheap here only where one keeps the lock to itself, because it takes it again before anybody else has asked.")
		return r, growing(s, sc, r, "processes", "that many processes", sc.processes, func(n int) crowd {
			return crowd{Processes: n, Clients: 1, Goroutines: 1}
		})
	},
}

func growing(s *servers, sc *scale, r *report, what, axis string, sizes []int, of func(n int) crowd) error {
	costs, times, fairs := newLines(), newLines(), newLines()
	for i, n := range sizes {
		cmds, each, fair := series{}, series{}, series{}
		var list []contestant
		for _, c := range shared() {
			if n <= mostOthers || c.name == ours.name {
				list = append(list, c)
			}
		}
		err := sc.grow.crowds(s, list, of(n), &r.Notes, func(c contestant, _ string, res *crowdResult) error {
			if res.acquired() == 0 {
				return nil // nobody got it in that time: nothing to show
			}
			cmds.add(c.name, res.commands())
			each.add(c.name, res.each().Seconds())
			fair.add(c.name, jain(res.byGoroutine()))
			return nil
		})
		if err != nil {
			return fmt.Errorf("%d %s: %w", n, what, err)
		}
		cost := cmds.metric(fmt.Sprintf("commands an acquisition, %d %s", n, what), commands)
		time := each.metric(fmt.Sprintf("time an acquisition, %d %s", n, what), seconds)
		fairness := fair.metric(fmt.Sprintf("fairness, %d %s (Jain)", n, what), number)
		costs.add(float64(n), cost)
		fairs.add(float64(n), fairness)
		times.add(float64(n), time)
		if i == 0 || i == len(sizes)-1 {
			r.Metrics = append(r.Metrics, cost, time, fairness)
		}
	}
	r.Charts = append(r.Charts,
		costs.chart("12-commands-"+strings.ToLower(what), "Commands an acquisition", axis, commands),
		times.chart("12-time-"+strings.ToLower(what), "Time an acquisition", axis, seconds),
		fairs.chart("12-fairness-"+strings.ToLower(what), "Fairness over those who want it (Jain; 1 is fair)", axis, number))
	return nil
}
