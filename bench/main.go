// Command bench measures valkeysync next to other locks between processes, and writes docs/benchmarks.md.
//
//	go run .              everything, about a quarter of an hour, on a machine that is left alone
//	go run . -short       everything, roughly, in about a minute
//	go run . -only 1,4    some measures; the others stay as they were
//
// It starts its own servers. What is where:
//
//	contestant.go         what a lock is here; each one has a file: ours, recipe, redsync, redislock, valkeylock, etcd, local
//	m01… to m13…          the measures, a file each
//	measure.go, scale.go  what a measure is, how its turns go, how long they are
//	crowd.go              goroutines and processes that want one key
//	child.go, servers.go  the processes
//	wire.go               counts commands
//	stats.go, hist.go     figures
//	table.go, charts.go, page.go  what is shown
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measures are all, in order.
var measures = []measure{
	uncontended, linger, localCrowd, processCrowd, counterCrowd, alternate, handOver, rows, readers, many, keys, grow, crash,
}

func main() {
	childMain()
	brief := flag.Bool("short", false, "roughly, in about a minute")
	only := flag.String("only", "", "the numbers of some measures, as in 1,4")
	out := flag.String("out", "../docs", "the folder for benchmarks.md and benchmarks/*.svg")
	flag.Parse()
	sc := &full
	if *brief {
		sc = &short
	}
	chosen, err := choose(*only)
	if err == nil {
		err = benchmark(chosen, sc, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// choose finds measures by their numbers; all when there are none.
func choose(numbers string) ([]measure, error) {
	if numbers == "" {
		return measures, nil
	}
	var chosen []measure
	for text := range strings.SplitSeq(numbers, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		i := slices.IndexFunc(measures, func(m measure) bool { return m.No == n })
		if err != nil || i < 0 {
			return nil, fmt.Errorf("-only %s: there are the measures 1 to %d", numbers, len(measures))
		}
		chosen = append(chosen, measures[i])
	}
	return chosen, nil
}

// benchmark runs measures, prints their table, and writes the page.
func benchmark(chosen []measure, sc *scale, out string) error {
	now := &results{Date: time.Now().UTC().Format("2 January 2006"), Short: sc == &short}
	for _, m := range chosen {
		began := time.Now()
		fmt.Fprintf(os.Stderr, "%2d. %s …", m.No, m.Name)
		r, on, err := m.measure(sc)
		if err != nil {
			fmt.Fprintln(os.Stderr)
			return err
		}
		fmt.Fprintf(os.Stderr, " %.0f s\n", time.Since(began).Seconds())
		now.Machine, r.Date = on, now.Date
		now.Reports = append(now.Reports, r)
	}
	if err := printTable(os.Stdout, now.Reports); err != nil {
		return err
	}
	all, err := readResults(out)
	if err != nil {
		return err
	}
	all.merge(now)
	return all.write(out)
}

// measure runs a measure against servers of its own.
func (m measure) measure(sc *scale) (r *report, on machine, err error) {
	s, err := startServers(m.etcd)
	if err != nil {
		return nil, on, err
	}
	defer s.close()
	if on, err = thisMachine(s.valkey); err != nil {
		return nil, on, err
	}
	if r, err = m.run(s, sc); err != nil {
		return nil, on, fmt.Errorf("measure %d: %w", m.No, err)
	}
	r.No, r.Name, r.Situation = m.No, m.Name, m.Situation
	r.tidy()
	return r, on, nil
}
