package proxy

import (
	"io"
	"time"
)

// underWay is how many items a direction holds before its reader waits: enough
// that a delay does not limit throughput, few enough that a receiver that stops
// reading stops the sender in the end, as without a proxy.
const underWay = 256

// item is something that happens in a direction, in its order.
type item struct {
	due    time.Time // not before
	data   []byte    // is delivered
	before func()    // is called first, if not nil
	after  func()    // is called when data was delivered or swallowed
}

// line is a direction's delay line: what is put in comes out in the same order,
// each at its due time, or at once when that has passed.
type line struct {
	items chan item
	done  <-chan struct{} // the end of the connection
}

func newLine(done <-chan struct{}) *line {
	return &line{items: make(chan item, underWay), done: done}
}

// put returns false when the connection has ended.
func (l *line) put(it item) bool {
	select {
	case l.items <- it:
		return true
	case <-l.done:
		return false
	}
}

// run delivers until the connection has ended.
func (l *line) run(deliver func([]byte)) {
	for {
		select {
		case it := <-l.items:
			if !waitUntil(it.due, l.done) {
				return
			}
			if it.before != nil {
				it.before()
			}
			if len(it.data) > 0 {
				deliver(it.data)
			}
			if it.after != nil {
				it.after()
			}
		case <-l.done:
			return
		}
	}
}

// coarse is the part of a wait that is left to a finer clock than Go's timers,
// which an idle process may see up to a millisecond late.
const coarse = 2 * time.Millisecond

// waitUntil returns at that time, or false when done is closed before.
func waitUntil(due time.Time, done <-chan struct{}) bool {
	if d := time.Until(due); d > coarse {
		timer := time.NewTimer(d - coarse)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-done:
			return false
		}
	}
	for d := time.Until(due); d > 0; d = time.Until(due) {
		preciseSleep(d)
	}
	return true
}

// readChunks hands everything that can be read to use, in slices that are its
// to keep, and returns when there is no more or use says false.
func readChunks(r io.Reader, use func([]byte) bool) {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 && !use(append([]byte(nil), buf[:n]...)) {
			return
		}
		if err != nil {
			return
		}
	}
}
