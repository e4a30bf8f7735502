package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJain(t *testing.T) {
	require.InDelta(t, 1, jain([]float64{7, 7, 7}), 1e-12)
	require.InDelta(t, 0.25, jain([]float64{0, 9, 0, 0}), 1e-12, "one of four has everything")
	require.InDelta(t, 16.0/20, jain([]float64{1, 3}), 1e-12)
	require.True(t, math.IsNaN(jain([]float64{0, 0})))
	require.True(t, math.IsNaN(jain(nil)))
}

func TestQuantile(t *testing.T) {
	values := []int{5, 1, 4, 2, 3}
	require.Equal(t, 3, quantile(values, 0.5))
	require.Equal(t, 1, quantile(values, 0))
	require.Equal(t, 5, quantile(values, 1))
	require.Equal(t, 5, quantile(values, 0.99))
	require.Equal(t, []int{5, 1, 4, 2, 3}, values, "they stay as they are")
	require.Zero(t, quantile([]int(nil), 0.5))
}

func TestMedian(t *testing.T) {
	require.Equal(t, 2.0, median([]float64{3, 1, 2}))
	require.Equal(t, 2.5, median([]float64{4, 1, 2, 3}))
	require.True(t, math.IsNaN(median(nil)))
}

func TestRatiosAreOfOneRound(t *testing.T) {
	require.Equal(t, []float64{2, 0.5}, ratios([]float64{4, 1, 9}, []float64{2, 2}))
}

func TestHistogramIsWithinThreePercent(t *testing.T) {
	for range 10_000 {
		d := time.Duration(rand.Int64N(1 << rand.IntN(62)))
		got := histMiddle(histClass(d))
		require.InDelta(t, float64(d), float64(got), max(float64(d)*0.03, 0), "%d", d)
	}
	last := -1
	for d := range time.Duration(5000) {
		class := histClass(d)
		require.True(t, class == last || class == last+1, "%d", d)
		last = class
	}
}

func TestHistogramQuantiles(t *testing.T) {
	var a, b, all hist
	var exact []time.Duration
	for i := range 2000 {
		d := time.Duration(rand.Int64N(int64(time.Second)))
		exact = append(exact, d)
		if i%2 == 0 {
			a.add(d)
		} else {
			b.add(d)
		}
	}
	all.merge(a)
	all.merge(b)
	require.Equal(t, 2000, all.count())
	for _, q := range []float64{0, 0.5, 0.99} {
		want := quantile(exact, q)
		require.InDelta(t, float64(want), float64(all.quantile(q)), float64(want)*0.03+1)
	}
	require.InDelta(t, float64(slices.Max(exact)), float64(all.quantile(1)), float64(time.Second)*0.03)
	require.Zero(t, hist(nil).quantile(0.5))
}

func TestFiguresAreShownInThreeDigits(t *testing.T) {
	for _, c := range []struct {
		u    unit
		v    float64
		want string
	}{
		{seconds, 7.371e-9, "7.37 ns"},
		{seconds, 79.2e-6, "79.2 µs"},
		{seconds, 0.0123, "12.3 ms"},
		{seconds, 2.5, "2.5 s"},
		{perSecond, 754_903, "755 000/s"},
		{perSecond, 1000, "1 000/s"},
		{perSecond, 999.6, "1000/s"},
		{bytesUnit, 1768, "1 770 B"},
		{number, 0.99987, "0.9999"},
		{number, 1, "1"},
		{number, 0, "0"},
		{commands, 0.000989, "0.000989"},
		{commands, 2.0004, "2"},
		{percent, 0.327, "0.327 %"},
		{trips, 13.42, "13.4"},
		{number, math.NaN(), "—"},
	} {
		require.Equal(t, c.want, c.u.show(c.v), "%v %q", c.v, c.u)
	}
}

func TestTurns(t *testing.T) {
	var order []int
	require.NoError(t, rounds{N: 3}.byTurns(3, func(i int) error {
		order = append(order, i)
		return nil
	}))
	require.Equal(t, []int{0, 1, 2, 1, 2, 0, 2, 0, 1}, order)
}
