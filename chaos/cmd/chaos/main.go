// Command chaos is the long form of the fault suite: world after world, of rising seeds, several beside
// each other, until there were enough acquisitions and enough time has passed. It ends with the figures,
// and with status 1 where anything went wrong.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valkeysync/valkeysync/chaos"
)

func main() {
	chaos.Main()
	var (
		seed     = flag.Uint64("seed", 1, "the first seed")
		lanes    = flag.Int("lanes", 4, "worlds beside each other")
		length   = flag.Duration("length", 10*time.Second, "how long things fail in one world")
		limit    = flag.Duration("for", 30*time.Minute, "begin no world later than that")
		acquired = flag.Int("acquisitions", 1_000_000, "be done after so many")
		worlds   = flag.Uint64("worlds", 0, "be done after so many worlds; 0: no limit")
		stop     = flag.Bool("stop", false, "be done at the first violation")
		with     = flag.String("with", "", "only worlds of which all these words are true, separated by commas: long,net-fade,grace-off (see Plan.Has)")
		quiet    = flag.Bool("quiet", false, "no line for a world where nothing went wrong")
	)
	flag.Parse()
	wanted := func(s uint64) bool {
		return *with == "" || chaos.AnyPlanFor(s, *length).Has(strings.Split(*with, ",")...)
	}
	const tries = 10_000
	first := *seed
	for first < *seed+tries && !wanted(first) {
		first++
	}
	if first == *seed+tries {
		fmt.Fprintf(os.Stderr, "-with %q: none of %d worlds from seed %d is so; the words are those of Plan.Has (chaos/plan.go)\n", *with, tries, *seed)
		os.Exit(2)
	}
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	fmt.Printf("seeds from %d, %d lanes, %v of faults in a world\n", *seed, *lanes, *length)
	r := &run{sum: chaos.NewSum(), began: time.Now()}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		r.over.Store(true)
	}()
	var next atomic.Uint64
	next.Store(*seed)
	var wg sync.WaitGroup
	for range *lanes {
		wg.Go(func() {
			for !r.over.Load() && time.Since(r.began) < *limit {
				s := next.Add(1) - 1
				if *worlds > 0 && s >= *seed+*worlds {
					return
				}
				if !wanted(s) {
					continue
				}
				bad := r.world(chaos.AnyPlanFor(s, *length), dir, *quiet)
				if bad && *stop || r.acquired() >= *acquired {
					r.over.Store(true)
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("\n%v\nin %v, from seed %d to %d\n", r.sum, time.Since(r.began).Round(time.Second), *seed, next.Load()-1)
	if r.bad > 0 {
		fmt.Println("logs in", dir)
		os.Exit(1)
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if *acquired > 0 && *worlds == 0 && r.sum.Acquired < *acquired && !r.over.Load() {
		fmt.Printf("not enough acquisitions: %d of %d\n", r.sum.Acquired, *acquired)
		os.Exit(1)
	}
}

type run struct {
	began time.Time
	over  atomic.Bool

	mu  sync.Mutex
	sum *chaos.Sum
	bad int
}

func (r *run) acquired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sum.Acquired
}

// world runs one, and reports whether anything went wrong.
func (r *run) world(plan chaos.Plan, dir string, quiet bool) (bad bool) {
	res, err := chaos.Run(plan, dir)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.bad++
		fmt.Printf("SUITE %v\n%v\n", err, plan)
		return true
	}
	r.sum.Add(res)
	if !quiet || len(res.Violations) > 0 {
		fmt.Printf("%6s %v\n", time.Since(r.began).Round(time.Second), res)
	}
	for _, v := range res.Violations {
		fmt.Printf("VIOLATION seed %d: %s\n", plan.Seed, v)
	}
	if len(res.Violations) > 0 {
		r.bad++
		fmt.Println(plan)
	}
	return len(res.Violations) > 0
}
