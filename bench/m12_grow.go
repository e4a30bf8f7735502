package main

import "fmt"

// mostOthers is how many Clients of the others wait at most: from there on one sees where it goes.
const mostOthers = 200

var grow = measure{
	No: 12, Name: "as it grows", etcd: true,
	Situation: "what one acquisition costs while more and more wait, each with one goroutine and an empty critical section: as Clients of one process, and as processes",
	run: func(s *servers, sc *scale) (*report, error) {
		r := &report{}
		for _, g := range []growth{{
			file: "clients", size: "%d Clients wait", axis: "one holds and that many Clients wait", sizes: sc.waiting,
			crowd: func(n int) crowd { return crowd{Processes: 1, Clients: n + 1, Goroutines: 1} },
		}, {
			file: "processes", size: "%d processes", axis: "that many processes", sizes: sc.processes,
			crowd: func(n int) crowd { return crowd{Processes: n, Clients: 1, Goroutines: 1} },
		}} {
			if err := g.measure(s, sc.grow, r); err != nil {
				return nil, err
			}
		}
		r.Notes = append(r.Notes,
			"Look at the three together: who tries again on a timer is cheap here only where one keeps the lock to itself, because it takes it again before anybody else has asked.",
			"Fairness is shown where there was time for five acquisitions of each.")
		return r, nil
	},
}

// growth is a crowd that grows.
type growth struct {
	file, size, axis string // how it is shown
	sizes            []int
	crowd            func(n int) crowd
}

func (g *growth) measure(s *servers, turns rounds, r *report) error {
	costs, times, fairs := newLines(), newLines(), newLines()
	for i, n := range g.sizes {
		cost, time, fair, err := g.at(n, s, turns, r)
		if err != nil {
			return fmt.Errorf("size %d: %w", n, err)
		}
		costs.add(float64(n), cost)
		times.add(float64(n), time)
		fairs.add(float64(n), fair)
		last := i == len(g.sizes)-1
		if i == 0 || last || n <= mostOthers && g.sizes[i+1] > mostOthers {
			r.Metrics = append(r.Metrics, cost, time, fair)
		}
	}
	r.Charts = append(r.Charts,
		costs.chart("12-commands-"+g.file, "Commands an acquisition", g.axis, commands),
		times.chart("12-time-"+g.file, "Time an acquisition", g.axis, seconds),
		fairs.chart("12-fairness-"+g.file, "Fairness over those who want it (Jain; 1 is fair)", g.axis, number))
	return nil
}

// at measures one size.
func (g *growth) at(n int, s *servers, turns rounds, r *report) (cost, time, fair metric, err error) {
	cmds, each, share := series{}, series{}, series{}
	var list []contestant
	for _, c := range shared() {
		if n <= mostOthers || c.name == ours.name {
			list = append(list, c)
		}
	}
	if n > mostOthers {
		turns.Turn *= 4
	}
	size := fmt.Sprintf(g.size, n)
	err = turns.crowds(s, list, g.crowd(n), &r.Notes, func(c contestant, _ string, res *crowdResult) error {
		if res.acquired() == 0 {
			r.Notes = append(r.Notes, fmt.Sprintf("%s, %s: nobody had it within %v.", c.name, size, res.For))
			return nil
		}
		cmds.add(c.name, res.commands())
		each.add(c.name, res.each().Seconds())
		if all := res.byGoroutine(); res.acquired() >= 5*float64(len(all)) {
			share.add(c.name, jain(all))
		}
		return nil
	})
	return cmds.metric("commands an acquisition, "+size, commands),
		each.metric("time an acquisition, "+size, seconds),
		share.metric("fairness (Jain), "+size, number), err
}
