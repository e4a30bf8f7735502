package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// measure is one situation in which contestants are compared.
type measure struct {
	No        int
	Name      string
	Situation string
	etcd      bool // it needs an etcd server
	run       func(s *servers, sc *scale) (*report, error)
}

// report is what a measure has found.
type report struct {
	No              int
	Name, Situation string
	Date            string
	Metrics         []metric
	Charts          []chart
	Notes           []string
}

// metric is one figure, for each contestant that takes part.
type metric struct {
	Name string
	Unit unit
	Of   map[string]float64
	Goal *goal // of ours
}

// goal says what a figure of ours was to be, and what it was.
type goal struct {
	Text, Got string
	Pass      bool
}

func (m *metric) ours() float64 { return m.Of[ours.name] }

// atMost and atLeast set a goal for the figure itself.
func (m metric) atMost(limit float64) metric {
	return m.goal("≤ "+m.Unit.exactly(limit), m.Unit.show(m.ours()), m.ours() <= limit)
}

func (m metric) atLeast(limit float64) metric {
	return m.goal("≥ "+m.Unit.exactly(limit), m.Unit.show(m.ours()), m.ours() >= limit)
}

// ratioAtMost and ratioAtLeast set a goal for the figure divided by another.
func (m metric) ratioAtMost(limit, got float64, than string) metric {
	return m.goal(fmt.Sprintf("≤ %g × %s", limit, than), fmt.Sprintf("%.3g ×", got), got <= limit)
}

func (m metric) ratioAtLeast(limit, got float64, than string) metric {
	return m.goal(fmt.Sprintf("≥ %g × %s", limit, than), fmt.Sprintf("%.3g ×", got), got >= limit)
}

func (m metric) goal(text, got string, pass bool) metric {
	m.Goal = &goal{Text: text, Got: got, Pass: pass}
	return m
}

// series is what was measured in each round, by contestant.
type series map[string][]float64

func (s series) add(name string, value float64) { s[name] = append(s[name], value) }

// metric is the medians of the rounds.
func (s series) metric(name string, u unit) metric {
	m := metric{Name: name, Unit: u, Of: map[string]float64{}}
	for c, values := range s {
		m.Of[c] = median(values)
	}
	return m
}

// ratio is the median, over the rounds, of ours divided by the other's.
func (s series) ratio(other string) float64 { return median(ratios(s[ours.name], s[other])) }

// best is whoever of the others has the highest value.
func (m *metric) best(except ...string) (name string, value float64) {
	value = math.Inf(-1)
	for _, c := range slices.Sorted(maps.Keys(m.Of)) {
		if v := m.Of[c]; v > value && !slices.Contains(append(except, ours.name), c) {
			name, value = c, v
		}
	}
	return name, value
}

// rounds are how often and how long each contestant has its turn. All have one in each round, one after
// another: on a shared machine only what was measured together can be compared.
type rounds struct {
	N    int
	Turn time.Duration
}

// byTurns calls f for each of n in each round, beginning with another one each time.
func (r rounds) byTurns(n int, f func(i int) error) error {
	for round := range r.N {
		for k := range n {
			if err := f((round + k) % n); err != nil {
				return err
			}
		}
	}
	return nil
}

// crowds has the contestants' crowds meet by turns, each time at a key of their own, and tells use of each. One
// of the others that fails has no figure for that round, and a note.
func (r rounds) crowds(s *servers, list []contestant, cr crowd, notes *[]string, use func(c contestant, key string, res *crowdResult) error) error {
	turn := 0
	cr.For = r.Turn
	return r.byTurns(len(list), func(i int) error {
		c := list[i]
		turn++
		key := fmt.Sprintf("crowd-%d", turn)
		of := cr
		if cr.Counter != "" {
			of.Counter = key + "-counter"
		}
		if c.name == unlocked.name {
			of.Processes, of.Goroutines = 1, 1
		}
		res, err := runCrowd(c, s.place, key, of)
		if err != nil && c.name != ours.name {
			*notes = append(*notes, fmt.Sprintf("A round without a figure: %s.", strings.Join(strings.Fields(err.Error()), " ")))
			return nil
		}
		if err != nil {
			return err
		}
		return use(c, key, res)
	})
}
