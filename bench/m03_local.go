package main

var localCrowd = measure{
	No: 3, Name: "64 goroutines of one process",
	Situation: "64 goroutines of one process on one key, an empty critical section",
	run: func(s *servers, sc *scale) (*report, error) {
		rates, cmds, fair := series{}, series{}, series{}
		cr := crowd{Processes: 1, Clients: 1, Goroutines: 64}
		var notes []string
		err := sc.local.crowds(s, []contestant{ours, channel, floor}, cr, &notes, func(c contestant, _ string, r *crowdResult) error {
			rates.add(c.name, r.rate())
			fair.add(c.name, jain(r.byGoroutine()))
			if c.store != inMemory {
				cmds.add(c.name, r.commands())
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		rate := rates.metric("acquisitions", perSecond)
		ofChannel := rates.ratio(channel.name)
		text := "≥ 500 000/s, or ≥ 0.2 × a mutex made of a Go channel"
		got := digits(ofChannel) + " × channel"
		return &report{
			Metrics: []metric{
				rate.goal(text, got, rate.ours() >= 500_000 || ofChannel >= 0.2),
				cmds.metric("commands an acquisition", commands).atMost(0.01),
				fair.metric("fairness over goroutines (Jain)", number).atLeast(0.99),
			},
			Charts: []chart{bars("03-one-process", "64 goroutines of one process on one key", "acquisitions a second (longer is better)", rate)},
			Notes:  append(notes, "A mutex made of a Go channel: "+perSecond.show(rate.Of[channel.name])+"."),
		}, nil
	},
}
