package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// results is what the page is made of; it is kept beside the charts, so that a measure can be run again alone.
type results struct {
	Machine machine
	Date    string
	Short   bool
	Reports []*report
}

func resultsFile(dir string) string { return filepath.Join(dir, "benchmarks", "results.json") }

// readResults finds what earlier runs have left.
func readResults(dir string) (*results, error) {
	text, err := os.ReadFile(resultsFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return &results{}, nil
	}
	if err != nil {
		return nil, err
	}
	var r results
	return &r, json.Unmarshal(text, &r)
}

// merge puts new reports in the place of old ones. What was measured on another machine, or in short, cannot
// stand beside them, and goes.
func (r *results) merge(now *results) {
	if r.Machine == now.Machine && r.Short == now.Short {
		for _, old := range r.Reports {
			if !slices.ContainsFunc(now.Reports, func(n *report) bool { return n.No == old.No }) {
				now.Reports = append(now.Reports, old)
			}
		}
	}
	slices.SortFunc(now.Reports, func(a, b *report) int { return a.No - b.No })
	*r = *now
}

// write writes docs/benchmarks.md, its charts, and the results themselves.
func (r *results) write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "benchmarks"), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	if err := os.WriteFile(resultsFile(dir), append(text, '\n'), 0o644); err != nil {
		return err
	}
	for _, rep := range r.Reports {
		for i := range rep.Charts {
			if err := rep.Charts[i].draw(filepath.Join(dir, "benchmarks")); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(r.page()), 0o644)
}

// page is the text, in Markdown.
func (r *results) page() string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# Benchmarks\n")
	p("Written by a program: `make bench` measures everything again and writes this page (in about a quarter of an hour;")
	p("`make bench BENCHFLAGS=-short` in a minute and roughly; `BENCHFLAGS='-only 1,4'` some of it). Leave the machine alone meanwhile.\n")
	p("Measured %s on %s.", r.Date, r.Machine)
	if r.Short {
		p("\n**This was a short run: the figures are rough.**")
	}
	p("\nIn every measure the contestants have their turns one after another, in rounds, each time in another order; a figure is the")
	p("median of the rounds, and a ratio the median of the rounds' ratios. Goals were set before. — means: takes no part, or cannot do it.\n")
	p("%s\n", r.verdict())
	p("%s", markdownTable(r.Reports))
	p("Commands are what clients send, as read from their connections (`wire.go`), not what scripts call; of etcd, the messages of its")
	p("clients. Fairness is Jain's index: 1 when all have had the same, 1/n when one of n has had everything.\n")
	for _, rep := range r.Reports {
		p("## %d. %s\n", rep.No, rep.Name)
		p("%s.\n", upper(rep.Situation))
		if rep.Date != r.Date {
			p("Measured %s.\n", rep.Date)
		}
		for _, n := range rep.Notes {
			p("%s\n", n)
		}
		for _, c := range rep.Charts {
			p("![%s](benchmarks/%s.svg)\n", c.Title, c.File)
		}
	}
	p("## Who took part\n")
	p("| | version | set up |")
	p("| --- | --- | --- |")
	for _, c := range contestants {
		version := "this repository"
		if c.module != "" {
			version = versionOf(c.module)
		} else if c.name != ours.name {
			version = "—"
		}
		p("| %s | %s | %s |", c.name, version, c.settings)
	}
	return b.String()
}

// verdict counts the goals.
func (r *results) verdict() string {
	met, all := 0, 0
	for _, rep := range r.Reports {
		for _, m := range rep.Metrics {
			if m.Goal == nil {
				continue
			}
			all++
			if m.Goal.Pass {
				met++
			}
		}
	}
	return fmt.Sprintf("**%d of %d goals are met.**", met, all)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// tidy leaves out figures that are none: nobody had an acquisition.
func (r *report) tidy() {
	for _, m := range r.Metrics {
		for name, v := range m.Of {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				delete(m.Of, name)
			}
		}
	}
	for i := range r.Charts {
		r.Charts[i].Bars = slices.DeleteFunc(r.Charts[i].Bars, func(b bar) bool { return math.IsNaN(b.Value) || math.IsInf(b.Value, 0) })
	}
	r.Charts = slices.DeleteFunc(r.Charts, func(c chart) bool { return c.empty() })
}
