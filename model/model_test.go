package model

import (
	"strings"
	"testing"
)

// most is how many states a configuration of the tests may have.
const most = 1_500_000

func TestWithAllRulesNothingIsViolated(t *testing.T) {
	for _, c := range Configs() {
		if c.Without != 0 || c.Big || testing.Short() && c.Clients > 2 {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			r := Explore(c, most, true)
			t.Logf("%d states, served after %d ticks at most, %v", r.States, r.Served, r.Duration)
			for v, way := range r.Found {
				t.Errorf("%s:\n%s", v, strings.Join(way, "\n"))
			}
			if len(r.Found) == 0 && !r.Whole {
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
			r := Explore(c, most, false)
			t.Logf("%d states, %v", r.States, r.Duration)
			if _, ok := r.Found[c.Want]; !ok {
				t.Errorf("no schedule in which %s", c.Want)
			}
			with := c
			with.Without, with.Want = 0, ""
			if v := Explore(with, 2*r.States, true).Found; len(v) > 0 {
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
