package main

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

var keys = measure{
	No: 11, Name: "many keys",
	Situation: "64 goroutines of one process lock and unlock one key after another, each key once a round; nobody else is there",
	run: func(s *servers, sc *scale) (*report, error) {
		list := []contestant{ours, recipe}
		members := make([]member, len(list))
		for i, c := range list {
			m, err := join(c, s.place)
			if err != nil {
				return nil, err
			}
			defer m.close()
			members[i] = m
		}
		rates := series{}
		err := rounds{N: sc.keyRounds}.byTurns(len(list), func(i int) error {
			start := time.Now()
			err := eachKey(members[i], list[i].name, sc.keys)
			rates.add(list[i].name, float64(sc.keys)/time.Since(start).Seconds())
			return err
		})
		if err != nil {
			return nil, err
		}
		return &report{
			Metrics: []metric{rates.metric("acquisitions", perSecond).ratioAtLeast(0.9, rates.ratio(recipe.name), recipe.name)},
			Notes:   []string{fmt.Sprintf("%s keys.", digits(float64(sc.keys)))},
		}, nil
	},
}

// eachKey locks and unlocks n keys, 64 at a time.
func eachKey(m member, name string, n int) error {
	var next atomic.Int64
	return together(64, func(int) error {
		for {
			i := next.Add(1) - 1
			if i >= int64(n) {
				return nil
			}
			l, err := m.locker(name + "-" + strconv.FormatInt(i, 10))
			if err != nil {
				return err
			}
			if err := pair(l); err != nil {
				return err
			}
		}
	})
}
