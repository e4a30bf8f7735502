package valkeysync

import "time"

// latch is something that ends once. Its channel is made only for those who wait: most acquisitions come and
// go without anybody waiting for their end. It is guarded by the gate's mutex.
type latch struct {
	over bool
	ch   chan struct{} // closed when it is over; nil: nobody has asked
}

// shut: it is over. It may be called once.
func (l *latch) shut() {
	l.over = true
	if l.ch != nil {
		close(l.ch)
	}
}

// done is closed when it is over.
func (l *latch) done() <-chan struct{} {
	if l.ch == nil {
		l.ch = make(chan struct{})
		if l.over {
			close(l.ch)
		}
	}
	return l.ch
}

// rest waits for d, and reports false when done was closed first.
func rest(d time.Duration, done <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
