package main

import (
	"context"
	"fmt"

	"github.com/valkey-io/valkey-go"
)

// unlocked is one goroutine that needs no lock, because nobody else is there.
var unlocked = contestant{
	name:  "no lock, one goroutine",
	store: inMemory,
	join: func(place) (member, error) {
		nothing := func(context.Context) error { return nil }
		return member{
			locker: func(string) (locker, error) { return &lockPair{nothing, nothing}, nil },
			close:  func() {},
		}, nil
	},
}

var counterCrowd = measure{
	No: 5, Name: "4 processes of 8 goroutines, a counter", etcd: true,
	Situation: "the same; the critical section reads and writes a counter on the Valkey server (GET, then SET: two round trips)",
	run: func(s *servers, sc *scale) (*report, error) {
		rates, lost, waits, longest, fair := series{}, series{}, series{}, series{}, series{}
		cr := crowd{Processes: 4, Clients: 1, Goroutines: 8, Counter: "yes"}
		list := append(shared(), unlocked)
		var notes []string
		err := sc.crowd.crowds(s, list, cr, &notes, func(c contestant, key string, r *crowdResult) error {
			rates.add(c.name, r.rate())
			if c.name == unlocked.name {
				return nil
			}
			n, err := counted(s, key+"-counter")
			if err != nil {
				return err
			}
			lost.add(c.name, float64(r.Inside-n))
			// In a fair world each of n goroutines waits for the n-1 others, each time.
			share := r.each().Seconds() * float64(cr.Processes*cr.Goroutines)
			waits.add(c.name, r.Waits.quantile(0.99).Seconds()/share)
			longest.add(c.name, r.Waits.quantile(1).Seconds())
			fair.add(c.name, jain(r.byProcess()))
			return nil
		})
		if err != nil {
			return nil, err
		}
		sum := metric{Name: "lost updates, in all", Of: map[string]float64{}}
		for c, each := range lost {
			for _, n := range each {
				sum.Of[c] += n
			}
		}
		rate := rates.metric("acquisitions", perSecond)
		alone := rate.Of[unlocked.name]
		return &report{
			Metrics: []metric{
				rate.ratioAtLeast(0.9, rates.ratio(unlocked.name), "one goroutine that needs no lock"),
				sum.atMost(0),
				waits.metric("p99 of the waits ÷ fair share", number).atMost(3),
				longest.metric("longest wait", seconds),
				fair.metric("fairness over processes (Jain)", number),
			},
			Charts: []chart{bars("05-counter", "4 processes of 8 goroutines, each counting on the server", "acquisitions a second (longer is better)", rate)},
			Notes: append(notes,
				"One goroutine that needs no lock: "+perSecond.show(alone)+".",
				"The fair share is the time in which all 32 goroutines have one acquisition each, on the average of the run. Who gets nothing at all waits once: that shows in the longest wait (a run lasts "+sc.crowd.Turn.String()+"), not in the p99.",
			),
		}, nil
	},
}

// counted reads a counter.
func counted(s *servers, key string) (int64, error) {
	reply, err := s.valkey.Do("GET", key)
	if valkey.IsValkeyNil(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("counter: %w", err)
	}
	return reply.AsInt64()
}
