package main

var processCrowd = measure{
	No: 4, Name: "4 processes of 8 goroutines", etcd: true,
	Situation: "4 processes of 8 goroutines on one key, an empty critical section",
	run: func(s *servers, sc *scale) (*report, error) {
		rates, cmds, fair := series{}, series{}, series{}
		cr := crowd{Processes: 4, Clients: 1, Goroutines: 8}
		var notes []string
		err := sc.crowd.crowds(s, shared(), cr, &notes, func(c contestant, _ string, r *crowdResult) error {
			rates.add(c.name, r.rate())
			cmds.add(c.name, r.commands())
			fair.add(c.name, jain(r.byProcess()))
			return nil
		})
		if err != nil {
			return nil, err
		}
		rate := rates.metric("acquisitions", perSecond)
		best, _ := rate.best()
		return &report{
			Metrics: []metric{
				rate.ratioAtLeast(5, rates.ratio(best), "the best other ("+best+")"),
				cmds.metric("commands an acquisition", commands),
				fair.metric("fairness over processes (Jain)", number).atLeast(0.99),
			},
			Charts: []chart{bars("04-processes", "4 processes of 8 goroutines on one key", "acquisitions a second (longer is better)", rate)},
			Notes:  notes,
		}, nil
	},
}
