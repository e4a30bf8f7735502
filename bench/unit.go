package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// unit is what a figure counts.
type unit string

const (
	seconds   unit = "s" // shown in ns, µs, ms or s
	perSecond unit = "/s"
	commands  unit = "commands"
	trips     unit = "round trips"
	bytesUnit unit = "B"
	number    unit = "" // a count, an index
	percent   unit = "%"
)

// show writes a figure of that unit with three digits that matter.
func (u unit) show(v float64) string {
	switch {
	case math.IsNaN(v):
		return "—"
	case u == seconds:
		return showTime(v)
	case u == perSecond:
		return digits(v) + "/s"
	case u == bytesUnit:
		return digits(v) + " B"
	case u == percent:
		return digits(v) + " %"
	case u == number && v > 0.9 && v < 1:
		return fmt.Sprintf("%.4f", v) // an index of fairness
	default:
		return digits(v)
	}
}

// exactly writes a goal.
func (u unit) exactly(v float64) string {
	if u == bytesUnit || u == number {
		return strings.TrimSpace(fmt.Sprintf("%g %s", v, u))
	}
	return u.show(v)
}

func showTime(s float64) string {
	for _, step := range []struct {
		below, factor float64
		name          string
	}{{1e-6, 1e9, "ns"}, {1e-3, 1e6, "µs"}, {1, 1e3, "ms"}} {
		if s < step.below {
			return digits(s*step.factor) + " " + step.name
		}
	}
	return digits(s) + " s"
}

// digits are three that matter, and thousands with a gap between them.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	if math.Abs(v) < 1000 {
		return shortest(v)
	}
	scale := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-2)
	whole := strconv.FormatFloat(math.Round(v/scale)*scale, 'f', 0, 64)
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	return whole
}

// shortest is three digits that matter, without an exponent.
func shortest(v float64) string {
	after := max(2-int(math.Floor(math.Log10(math.Abs(v)))), 0)
	text := strconv.FormatFloat(v, 'f', after, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
