package main

import (
	"math/bits"
	"time"
)

// hist counts durations in classes of 3 % or less, so that processes can tell millions of them in few words.
type hist []int

const histBits = 5 // 32 classes for each power of two

func (h *hist) add(d time.Duration) { *h.at(histClass(d))++ }

func (h *hist) merge(other hist) {
	for class, n := range other {
		*h.at(class) += n
	}
}

func (h *hist) at(class int) *int {
	for class >= len(*h) {
		*h = append(*h, 0)
	}
	return &(*h)[class]
}

func (h hist) count() int {
	sum := 0
	for _, n := range h {
		sum += n
	}
	return sum
}

// quantile is the middle of the class in which it lies; 0 when there is none.
func (h hist) quantile(q float64) time.Duration {
	below := int(q * float64(h.count()))
	for class, n := range h {
		if below -= n; below < 0 {
			return histMiddle(class)
		}
	}
	return histMiddle(max(len(h)-1, 0))
}

func histClass(d time.Duration) int {
	n := uint64(max(d, 0))
	shift := max(bits.Len64(n)-histBits-1, 0)
	return shift<<histBits + int(n>>shift)
}

func histMiddle(class int) time.Duration {
	shift := max(class>>histBits-1, 0)
	low := (class - shift<<histBits) << shift
	return time.Duration(low + (1<<shift)/2)
}
