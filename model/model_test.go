package model

import (
	"os"
	"runtime/debug"
	"strings"
	"testing"
)

// The states of a configuration are in memory until it is done; collecting less often takes half the time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(3 << 30)
	os.Exit(m.Run())
}

// most is how many states a configuration of the tests may have.
const most = 1_500_000

// few, where it is not 0, is how many are looked at instead: then it is no failure that not all were seen,
// nor that a schedule which needs more was not found.
var few = 0

func limit() int {
	if few > 0 {
		return few
	}
	return most
}

func TestWithAllRulesNothingIsViolated(t *testing.T) {
	for _, c := range Configs() {
		if c.Without != 0 || c.Big || testing.Short() && c.Clients > 2 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			r := Explore(c, limit(), true)
			t.Logf("%d states, served after %d ticks at most, %v", r.States, r.Served, r.Duration)
			for v, way := range r.Found {
				t.Errorf("%s:\n%s", v, strings.Join(way, "\n"))
			}
			if len(r.Found) == 0 && !r.Whole && few == 0 {
				t.Errorf("more than %d states: not all were seen", most)
			}
		})
	}
}

func TestWithoutARuleThereIsAScheduleThatItPrevents(t *testing.T) {
	for _, c := range Configs() {
		if c.Without == 0 || c.Big || testing.Short() && c.Grace > 0 && !c.Timed {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			r := Explore(c, limit(), false)
			t.Logf("%d states, %v", r.States, r.Duration)
			switch _, ok := r.Found[c.Want]; {
			case ok:
			case few > 0 && !r.Whole:
				t.Logf("not found in %d states", few)
			default:
				t.Errorf("no schedule in which %s", c.Want)
			}
			with := c
			with.Without, with.Want = 0, ""
			if v := Explore(with, r.States, true).Found; len(v) > 0 {
				t.Errorf("with the rule too: %v", v)
			}
		})
	}
}

// Every rule has its configuration, and its name.
func TestEveryRuleIsLeftOutOnce(t *testing.T) {
	var out Rule
	for _, c := range Configs() {
		out |= c.Without
	}
	for _, r := range Rules() {
		if out&r == 0 {
			t.Errorf("no configuration leaves %s out", r)
		}
	}
	if got := len(Rules()); got != len(ruleNames) {
		t.Errorf("%d rules, %d names", got, len(ruleNames))
	}
}
