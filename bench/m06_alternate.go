package main

var alternate = measure{
	No: 6, Name: "4 processes, by turns", etcd: true,
	Situation: "4 processes of 1 goroutine on one key, an empty critical section: where there is order, the lock goes round",
	run: func(s *servers, sc *scale) (*report, error) {
		rates, cmds, fair := series{}, series{}, series{}
		cr := crowd{Processes: 4, Clients: 1, Goroutines: 1}
		var notes []string
		err := sc.crowd.crowds(s, append(shared(), lingering), cr, &notes, func(c contestant, _ string, r *crowdResult) error {
			rates.add(c.name, r.rate())
			cmds.add(c.name, r.commands())
			fair.add(c.name, jain(r.byProcess()))
			return nil
		})
		if err != nil {
			return nil, err
		}
		kept := series{ours.name: cmds[lingering.name]}
		for _, s := range []series{rates, cmds, fair} {
			delete(s, lingering.name)
		}
		cost := cmds.metric("commands an acquisition", commands)
		return &report{
			Metrics: []metric{
				kept.metric("commands an acquisition, WithLinger", commands).atMost(1.05),
				cost,
				rates.metric("acquisitions", perSecond),
				fair.metric("fairness over processes (Jain)", number),
			},
			Charts: []chart{bars("06-by-turns", "4 processes by turns on one key", "commands an acquisition (shorter is better)", cost)},
			Notes:  notes,
		}, nil
	},
}
