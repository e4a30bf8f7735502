package valkeysync

import (
	"context"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// farewell makes certain that nothing of an attempt remains on the server: no place, no hold. A request
// of the attempt that was never answered may still be under way, until the latest time that it named; so
// leave is repeated until one was answered that came after it.
type farewell struct {
	g      *gate
	entry  protocol.Entry
	latest int64 // server ms; 0: no request is unanswered

	attempt *attempt // set: its requests may still be answered, and latest is not known yet
	then    func()   // what to do once the first leave was answered, or cannot be
}

// judges is for how long the Client has been heard, where what it leaves is a place: waits may be shorter than the
// time after which one who waits behind a dead process looks, and end with a look all the same. Negative: it is no judge.
func (f *farewell) judges() time.Duration {
	if f.attempt == nil {
		return -1
	}
	return f.g.ear.judges(f.entry.Grace)
}

// say returns when it is certain, when it cannot be done (which is logged), or when the Client is closed.
func (f *farewell) say() {
	c := f.g.c
	for {
		var quiet <-chan struct{}
		if f.attempt != nil {
			quiet = f.attempt.quiet()
		}
		var now int64
		c.untilDone(func(ctx context.Context) error {
			r, err := c.server.Leave(ctx, f.g.keys, f.entry.Ref(), f.entry.String(), f.entry.Kind, f.judges())
			if err == nil {
				f.g.ear.heard(r.Now)
				now = r.Now
			}
			return err
		})
		if f.then != nil {
			f.then()
			f.then = nil
		}
		if now == 0 {
			return
		}
		if quiet != nil {
			// One of its requests was under way when we began: wait for how it ends, and leave again.
			select {
			case <-quiet:
				continue
			case <-c.ctx.Done():
				return
			}
		}
		if f.attempt != nil {
			f.latest = f.attempt.unanswered()
		}
		if now > f.latest {
			return
		}
		if !sleep(c.ctx, time.Duration(f.latest+1-now)*time.Millisecond) {
			return
		}
	}
}
