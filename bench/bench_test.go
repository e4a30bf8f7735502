package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain: the tests start this program again as their children.
func TestMain(m *testing.M) {
	childMain()
	os.Exit(m.Run())
}

// tiny is only to see that a measure runs.
var tiny = scale{
	pairs:     rounds{1, 5 * time.Millisecond},
	local:     rounds{1, 20 * time.Millisecond},
	crowd:     rounds{1, 100 * time.Millisecond},
	handOvers: 1,
	rows:      []int{5},
	idle:      100 * time.Millisecond,
	releases:  2,
	readers:   rounds{1, 20 * time.Millisecond},
	held:      50,
	watch:     100 * time.Millisecond,
	keys:      100,
	keyRounds: 1,
	waiting:   []int{1, 3},
	processes: []int{1, 2},
	grow:      rounds{1, 100 * time.Millisecond},
	crashes:   1,
	crash:     3 * time.Second,
}

// TestMeasuresRun: what they measure is of no interest here.
func TestMeasuresRun(t *testing.T) {
	var all results
	for _, m := range measures {
		t.Run(m.Name, func(t *testing.T) { try(t, m, &all) })
	}
	shows(t, &all)
}

// BenchmarkMeasures is the same for make bench-smoke, with etcd, which the race detector leaves out.
func BenchmarkMeasures(b *testing.B) {
	var all results
	for _, m := range measures {
		b.Run(m.Name, func(b *testing.B) {
			for range b.N {
				try(b, m, &all)
			}
		})
	}
	shows(b, &all)
}

// try runs a measure.
func try(tb testing.TB, m measure, all *results) {
	r, on, err := m.measure(&tiny)
	require.NoError(tb, err)
	require.NotEmpty(tb, r.Metrics)
	require.Contains(tb, r.Metrics[0].Of, ours.name)
	all.Machine = on
	all.Reports = append(all.Reports, r)
}

// shows makes the page.
func shows(tb testing.TB, all *results) {
	dir := tb.TempDir()
	require.NoError(tb, all.write(dir))
	for _, r := range all.Reports {
		for _, c := range r.Charts {
			require.FileExists(tb, filepath.Join(dir, "benchmarks", c.File+".svg"))
		}
	}
	again, err := readResults(dir)
	require.NoError(tb, err)
	require.Equal(tb, all.page(), again.page())
}

func TestARunOfSomeMeasuresLeavesTheOthers(t *testing.T) {
	on := machine{Cores: 2}
	of := func(no int, name string) *report { return &report{No: no, Name: name} }
	r := &results{Machine: on, Reports: []*report{of(1, "old"), of(2, "old")}}
	r.merge(&results{Machine: on, Date: "now", Reports: []*report{of(2, "new")}})
	require.Equal(t, []*report{of(1, "old"), of(2, "new")}, r.Reports)
	require.Equal(t, "now", r.Date)
	r.merge(&results{Machine: on, Short: true, Reports: []*report{of(2, "short")}})
	require.Equal(t, []*report{of(2, "short")}, r.Reports)
}
