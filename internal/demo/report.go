package demo

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is what the demo ends with.
type report struct {
	settings settings
	lasted   time.Duration
	counter  int64
	lost     int64
	tally    *tally
	workers  []*process
}

func (r *report) String() string {
	var b strings.Builder
	total, _ := r.tally.soFar()
	what := "acquisitions"
	if r.settings.noLock {
		what = "increments"
	}
	row := func(name, value, more string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("%-26s %12s  %s", name, value, more), " ") + "\n")
	}
	b.WriteByte('\n')
	row(what, grouped(total), fmt.Sprintf("%s/s", grouped(int64(float64(total)/r.lasted.Seconds()))))
	row("counter at the end", grouped(r.counter), "")
	row("lost updates", grouped(r.lost), "")
	sum, of := r.sums()
	if !r.settings.noLock {
		row("lost leases", grouped(int64(sum.Lost)), "")
	}
	if sum.Failed > 0 {
		row("counter not reached", grouped(sum.Failed), "times; nothing was incremented then")
	}
	if sum.Uncertain > 0 {
		row("writes without an answer", grouped(sum.Uncertain), "they may have been done, and are not counted above")
	}
	b.WriteByte('\n')
	r.shares(&b, total)
	if of == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\nserver commands for each of them%s\n", r.leftOut())
	cost := func(name string, n map[string]int64) {
		all := int64(0)
		for _, c := range n {
			all += c
		}
		fmt.Fprintf(&b, "  %-10s %6.2f  %s\n", name, float64(all)/float64(of), byName(n))
	}
	if !r.settings.noLock {
		cost("lock", sum.Lock)
	}
	cost("counter", sum.Counter)
	return b.String()
}

// shares is the table of processes.
func (r *report) shares(b *strings.Builder, total int64) {
	fmt.Fprintf(b, "%-12s %8s %12s %8s", "process", "pid", "count", "share")
	if !r.settings.noLock {
		fmt.Fprintf(b, " %10s %10s", "p50 wait", "p99 wait")
	}
	b.WriteByte('\n')
	row := func(name string, pid, n int64, waits *histogram) {
		id := ""
		if pid > 0 {
			id = fmt.Sprint(pid)
		}
		fmt.Fprintf(b, "%-12s %8s %12s %7.1f%%", name, id, grouped(n), 100*float64(n)/float64(max(total, 1)))
		if !r.settings.noLock {
			fmt.Fprintf(b, " %10s %10s", short(waits.quantile(0.50)), short(waits.quantile(0.99)))
		}
		b.WriteByte('\n')
	}
	var all histogram
	for i, p := range r.workers {
		n, waits := r.tally.of(i)
		all.merge(&waits)
		row(workerName(p.worker), int64(p.cmd.Process.Pid), n, &waits)
	}
	row("all", 0, total, &all)
}

// sums adds up what the workers said at their end, and the increments that belong to it: those of a
// worker that was killed are left out.
func (r *report) sums() (sum summary, increments int64) {
	sum.Lock, sum.Counter = map[string]int64{}, map[string]int64{}
	for i, p := range r.workers {
		if p.sum == nil {
			continue
		}
		n, _ := r.tally.of(i)
		increments += n
		sum.Lost += p.sum.Lost
		sum.Failed += p.sum.Failed
		sum.Uncertain += p.sum.Uncertain
		add(sum.Lock, p.sum.Lock)
		add(sum.Counter, p.sum.Counter)
	}
	return sum, increments
}

func (r *report) leftOut() string {
	for _, p := range r.workers {
		if p.sum == nil {
			return " (of the workers that were not killed)"
		}
	}
	return ""
}

func add(to, n map[string]int64) {
	for name, c := range n {
		to[name] += c
	}
}

// byName lists counts, the largest first.
func byName(n map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(n), func(a, b string) int {
		if n[a] != n[b] {
			return int(n[b] - n[a])
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = name + " " + grouped(n[name])
	}
	return strings.Join(names, ", ")
}

// short writes a duration with three digits or so.
func short(d time.Duration) string {
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
