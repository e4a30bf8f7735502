package demo

import (
	"math/bits"
	"time"
)

// histogram counts durations to within 3 %, in constant memory.
type histogram struct {
	n      int64
	bucket [64 * steps]int64
}

// steps is into how many buckets each doubling is divided.
const steps = 32

func (h *histogram) add(d time.Duration) {
	h.n++
	h.bucket[index(d)]++
}

// quantile is a duration that a part q (0 to 1) of all did not exceed; 0 where there are none.
func (h *histogram) quantile(q float64) time.Duration {
	rank := int64(q * float64(h.n))
	for i, n := range h.bucket {
		rank -= n
		if rank < 0 {
			return upper(i)
		}
	}
	return 0
}

func (h *histogram) merge(other *histogram) {
	h.n += other.n
	for i, n := range other.bucket {
		h.bucket[i] += n
	}
}

// index is the bucket of d: below steps ns one for each ns, above it steps for each doubling.
func index(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < steps {
		return int(v)
	}
	shift := bits.Len64(v) - bits.Len64(steps)
	return shift*steps + int(v>>shift)
}

// upper is the largest duration of a bucket.
func upper(i int) time.Duration {
	if i < 2*steps {
		return time.Duration(i)
	}
	shift := i/steps - 1
	return time.Duration(uint64(i-shift*steps+1)<<shift - 1)
}
