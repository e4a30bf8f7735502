package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

var readers = measure{
	No: 9, Name: "1,000 readers of one process",
	Situation: "1,000 goroutines of one process that read-lock and unlock one RWMutex, and nobody writes",
	run: func(s *servers, sc *scale) (*report, error) {
		p := s.place
		p.wire = &wire{}
		conn, err := valkey.NewClient(p.valkeyOption())
		if err != nil {
			return nil, err
		}
		defer conn.Close()
		locks, err := valkeysync.New(conn, quiet)
		if err != nil {
			return nil, err
		}
		defer locks.Close()
		rw := locks.RWMutex("readers")
		rw.RLock()
		rw.RUnlock()
		var rates, cmds []float64
		for range sc.readers.N {
			before := p.wire.total()
			n := readAll(rw, 1000, sc.readers.Turn)
			rates = append(rates, n/sc.readers.Turn.Seconds())
			cmds = append(cmds, float64(p.wire.total()-before)/n)
		}
		rate := metric{Name: "RLocks", Unit: perSecond, Of: map[string]float64{ours.name: median(rates)}}
		cost := metric{Name: "commands an RLock", Unit: commands, Of: map[string]float64{ours.name: median(cmds)}}
		return &report{Metrics: []metric{cost.atMost(0.01), rate}}, nil
	},
}

// readAll has n goroutines read-lock and unlock for some time, and tells how often they did.
func readAll(rw *valkeysync.RWMutex, n int, d time.Duration) float64 {
	var over atomic.Bool
	var done atomic.Int64
	time.AfterFunc(d, func() { over.Store(true) })
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			mine := int64(0)
			for !over.Load() {
				rw.RLock()
				rw.RUnlock()
				mine++
			}
			done.Add(mine)
		})
	}
	wg.Wait()
	return float64(done.Load())
}
