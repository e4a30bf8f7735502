package valkeysync

import (
	"context"
	"sync"
	"time"
)

// deadline is context.WithDeadline without the timer, for one request: valkey-go goes by the time alone where
// it has a connection for itself, and a timer costs more than all the rest of what we do for a request. One is
// made when somebody asks for Done.
type deadline struct {
	parent context.Context
	at     time.Time

	mu     sync.Mutex
	over   bool            // ended
	timed  context.Context // made by Done
	cancel context.CancelFunc
}

// withDeadline makes the context of one request. It must be ended.
func withDeadline(parent context.Context, at time.Time) *deadline {
	d := new(deadline)
	d.begin(parent, at)
	return d
}

// begin is withDeadline for one that is a part of something else.
func (d *deadline) begin(parent context.Context, at time.Time) { d.parent, d.at = parent, at }

func (d *deadline) Deadline() (time.Time, bool) {
	if at, ok := d.parent.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timed == nil {
		d.timed, d.cancel = context.WithDeadline(d.parent, d.at)
		if d.over {
			d.cancel()
		}
	}
	return d.timed.Done()
}

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.timed != nil:
		return d.timed.Err()
	case d.parent.Err() != nil:
		return d.parent.Err()
	case d.over:
		return context.Canceled
	case !time.Now().Before(d.at):
		return context.DeadlineExceeded
	}
	return nil
}

func (d *deadline) Value(key any) any { return d.parent.Value(key) }

// end ends it now, unless it is over already.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.cancel != nil {
		d.cancel()
	}
}
