package demo

import (
	"sync"
	"time"
)

// tally is what the parent knows of the counter: every increment that a worker has confirmed.
type tally struct {
	mu       sync.Mutex
	total    int64
	share    []share // by worker, from 0
	written  []uint64
	distinct int64 // how many different values were written
}

// share is what one worker did.
type share struct {
	n     int64
	waits histogram
}

func newTally(workers int) *tally { return &tally{share: make([]share, workers)} }

// add takes note of one increment: the value that was written, and how long the worker waited before.
func (t *tally) add(worker int, value int64, wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total++
	t.share[worker].n++
	t.share[worker].waits.add(wait)
	word, bit := value/64, uint64(1)<<(value%64)
	for int64(len(t.written)) <= word {
		t.written = append(t.written, 0)
	}
	if t.written[word]&bit == 0 {
		t.written[word] |= bit
		t.distinct++
	}
}

// soFar returns the increments, and how many of them wrote a value that had been written before: each of
// those has lost an update.
func (t *tally) soFar() (total, twice int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total, t.total - t.distinct
}

// lost is how many updates were lost, now that the counter stands at that value. A worker that was killed
// between its write and its report makes the counter higher than the reports; so a value that was written
// twice counts as well.
func (t *tally) lost(counter int64) int64 {
	total, twice := t.soFar()
	return max(total-counter, twice)
}

// of returns one worker's share and its waits.
func (t *tally) of(worker int) (n int64, waits histogram) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.share[worker].n, t.share[worker].waits
}
