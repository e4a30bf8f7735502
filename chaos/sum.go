package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Sum is what many worlds add up to.
type Sum struct {
	Worlds, Violations                                                int
	Acquired, Killed, Refused, Excused, Ordered, Histories, Undecided int
	Failed, Lost                                                      map[string]int
	Forms                                                             map[form]int
	Faults                                                            map[Kind]int
	Longest                                                           time.Duration
	LongestSeed                                                       uint64
	Heap                                                              uint64
}

// NewSum is of no worlds.
func NewSum() *Sum {
	return &Sum{Forms: map[form]int{}, Failed: map[string]int{}, Lost: map[string]int{}, Faults: map[Kind]int{}}
}

// Add adds a world.
func (s *Sum) Add(r *Result) {
	s.Worlds++
	s.Violations += len(r.Violations)
	s.Acquired += r.Acquired
	s.Killed += r.Killed
	s.Refused += r.Refused
	s.Excused += r.Excused
	s.Ordered += r.Ordered
	s.Histories += r.Histories
	s.Undecided += r.Undecided
	for k, n := range r.Forms {
		s.Forms[k] += n
	}
	for k, n := range r.Failed {
		s.Failed[k] += n
	}
	for k, n := range r.Lost {
		s.Lost[k] += n
	}
	for _, f := range r.Plan.Schedule {
		s.Faults[f.Kind]++
	}
	if r.Longest > s.Longest {
		s.Longest, s.LongestSeed = r.Longest, r.Plan.Seed
	}
	s.Heap = max(s.Heap, r.Heap)
}

func (s *Sum) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d worlds, %d acquisitions, %d violations\nacquired by %s\n", s.Worlds, s.Acquired, s.Violations, counts(s.Forms))
	fmt.Fprintf(&b, "calls without the lock: %s; under way in killed workers: %d\n", counts(s.Failed), s.Killed)
	fmt.Fprintf(&b, "leases lost: %s; writes refused by the store: %d; holds taken away by what may do so: %d\n", counts(s.Lost), s.Refused, s.Excused)
	fmt.Fprintf(&b, "faults: %s\n", counts(s.Faults))
	fmt.Fprintf(&b, "pairs of which the order was judged: %d; operations in histories: %d (histories that the checker did not finish: %d)\n", s.Ordered, s.Histories, s.Undecided)
	fmt.Fprintf(&b, "longest that a lock stayed unheld after the last fault while somebody waited: %v (seed %d); largest heap of a worker at its end: %d KiB",
		s.Longest.Round(time.Millisecond), s.LongestSeed, s.Heap>>10)
	return b.String()
}

func counts[K ~string](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
