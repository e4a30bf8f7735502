package demo

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLostUpdatesAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		written []int64
		counter int64
		lost    int64
	}{
		"none":                             {[]int64{1, 2, 3}, 3, 0},
		"two wrote the same":               {[]int64{1, 2, 2, 3}, 3, 1},
		"one set the counter back":         {[]int64{1, 2, 3, 1, 2}, 2, 3},
		"a killed worker did not report":   {[]int64{1, 2, 4}, 4, 0},
		"that does not hide one that lost": {[]int64{1, 2, 2, 4}, 4, 1},
		"a write that was lost altogether": {[]int64{1, 2, 3}, 2, 1},
	} {
		tally := newTally(2)
		for i, v := range c.written {
			tally.add(i%2, v, 0)
		}
		require.Equal(t, c.lost, tally.lost(c.counter), name)
	}
}

func TestQuantilesAreRightToWithin3Percent(t *testing.T) {
	var h, all histogram
	var values []time.Duration
	for range 100_000 {
		d := time.Duration(rand.Int64N(1 << rand.IntN(40)))
		h.add(d)
		values = append(values, d)
	}
	all.merge(&h)
	slices.Sort(values)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
		want := values[int(q*float64(len(values)))]
		got := all.quantile(q)
		require.GreaterOrEqual(t, got, want, q)
		require.LessOrEqual(t, float64(got), 1.04*float64(want)+1, q)
	}
	require.Zero(t, new(histogram).quantile(0.5))
	h = histogram{}
	h.add(-1)
	h.add(1<<63 - 1) // whatever comes has a bucket
}
