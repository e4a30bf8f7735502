package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

var many = measure{
	No: 10, Name: "many locks held by one Client",
	Situation: "one Client in a process of its own holds that many locks and nothing happens but their renewal, every third of the lease of 10 s",
	run: func(s *servers, sc *scale) (*report, error) {
		c, err := start(job{Kind: "many", Place: s.place, Locks: sc.held, Watch: sc.watch}, nil)
		if err != nil {
			return nil, err
		}
		defer c.close()
		before, err := cpuOf(s.valkey)
		if err != nil {
			return nil, err
		}
		var r manyResult
		if err := c.run(&r); err != nil {
			return nil, err
		}
		after, err := cpuOf(s.valkey)
		if err != nil {
			return nil, err
		}
		of := func(name string, u unit, v float64) metric {
			return metric{Name: name, Unit: u, Of: map[string]float64{ours.name: v}}
		}
		lost := 0.0
		notes := []string{fmt.Sprintf("%s locks, watched for %v.", digits(float64(sc.held)), sc.watch)}
		for _, cause := range slices.Sorted(maps.Keys(r.Lost)) {
			lost += float64(r.Lost[cause])
			notes = append(notes, fmt.Sprintf("Lost, %v: %d.", cause, r.Lost[cause]))
		}
		return &report{
			Metrics: []metric{
				of("memory of a held lock, in the process", bytesUnit, r.Held).atMost(2048),
				of("memory of a Mutex that nobody uses", bytesUnit, r.Idle).atMost(256),
				of("leases lost", number, lost).atMost(0),
				of("client, of one core", percent, 100*r.CPU/sc.watch.Seconds()),
				of("server, of one core", percent, 100*(after-before)/sc.watch.Seconds()),
				of("commands a second", commands, float64(r.Commands)/sc.watch.Seconds()),
			},
			Notes: notes,
		}, nil
	},
}

type manyResult struct {
	Held, Idle float64 // bytes
	CPU        float64 // seconds
	Lost       map[valkeysync.Cause]uint64
	Commands   int64
}

// prepareMany takes the locks and measures what they weigh.
func prepareMany(j job) (any, func() (any, error), error) {
	p := j.Place
	p.wire = &wire{}
	conn, err := valkey.NewClient(p.valkeyOption())
	if err != nil {
		return nil, nil, err
	}
	locks, err := valkeysync.New(conn, quiet)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]string, j.Locks)
	for i := range keys {
		keys[i] = "lock-" + strconv.Itoa(i)
	}
	var r manyResult
	held := make([]*valkeysync.Mutex, len(keys))
	r.Idle = weigh(len(keys), func() {
		for i, key := range keys {
			held[i] = locks.Mutex(key)
		}
	})
	held[0].Lock() // what is needed once is there
	weight := weigh(len(keys)-1, func() {
		for _, m := range held[1:] {
			m.Lock()
		}
	})
	r.Held = weight + r.Idle
	return "ready", func() (any, error) {
		cpu, sent := ownCPU(), p.wire.total()
		time.Sleep(j.Watch)
		r.CPU, r.Commands = ownCPU()-cpu, p.wire.total()-sent
		for _, m := range held {
			m.Unlock()
		}
		r.Lost = locks.Stats().Lost
		return r, nil
	}, nil
}

// weigh tells how much memory of what f makes remains for each of n: heap and stacks.
func weigh(n int, f func()) float64 {
	before := inUse()
	f()
	return (inUse() - before) / float64(n)
}

func inUse() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what a pool keeps goes with the second
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// ownCPU is the time for which this process has worked, in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it cannot fail for oneself
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}
