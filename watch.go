package valkeysync

import (
	"context"
	"iter"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// ErrNoNotifications: the server's keyspace notifications do not arrive, without which nothing can be
// watched.
var ErrNoNotifications = fault.New("keyspace notifications do not arrive")

// Watch yields how the lock on a key stands, as Status does, now and after every change of who holds it or
// who waits, for people and tools that look on. It sleeps in between and is woken by the server's keyspace
// notifications, or when a lease that it saw should have ended; changes that follow each other closely may be
// told as one. What is handed over inside a process is no change on the server.
//
// It ends when the loop breaks off or ctx ends (without an error). Errors are yielded, and it goes on where
// that is of use: while the server is away it looks again when it is back. It ends after ErrInvalidKey,
// ErrClosed, ErrNoNotifications (which says what to set), and what the server refuses for good: the rights to the
// lock and to the keyspace channels of the key and of {key}:queue are needed.
func (c *Client) Watch(ctx context.Context, key string) iter.Seq2[Status, error] {
	return func(yield func(Status, error) bool) {
		keys, err := c.personal(ctx, c.opts.client.prefix, key)
		if err == nil && !c.stats.notifications.Load() {
			err = fault.Errorf("%w: to watch %q set notify-keyspace-events to include Kgxe, or use WithKeyspaceNotifications", ErrNoNotifications, key)
		}
		if err != nil {
			if ctx.Err() == nil {
				yield(Status{}, err)
			}
			return
		}
		changed, refused, stop := c.changes(ctx, keys)
		defer stop()
		var last *Status
		for {
			st, err := c.Status(ctx, key)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield(Status{}, err) || judge(err) != passing {
					return
				}
			case last == nil || !last.same(st):
				last = &st
				if !yield(st, nil) {
					return
				}
			}
			if err := c.await(ctx, changed, refused, st.next(err)); err != nil {
				if ctx.Err() == nil {
					yield(Status{}, err)
				}
				return
			}
		}
	}
}

// changes is told when something may have happened to the keys of a lock, and refused that the server does not
// let us hear of it.
func (c *Client) changes(ctx context.Context, keys protocol.Keys) (changed <-chan struct{}, refused <-chan error, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	closed := context.AfterFunc(c.ctx, cancel)
	no := make(chan error, 2)
	ch := make(chan struct{}, 1)
	stir := func() {
		select {
		case ch <- struct{}{}:
		default: // it will look anyway
		}
	}
	var watches []*watch
	// Who joins or leaves changes the queue; the rest happens to the lock.
	for _, key := range []string{keys.Lock, keys.Queue()} {
		w := c.hub.join(c.keyspace(key), false, func(string, int64) { stir() }, func(bool) { stir() })
		watches = append(watches, w)
		c.crew.run(func() {
			if err := w.ready(ctx); err != nil && ctx.Err() == nil {
				no <- fault.Errorf("watch %q: %w", keys.Lock, err)
			}
		})
	}
	return ch, no, func() {
		closed()
		cancel()
		for _, w := range watches {
			w.stop()
		}
	}
}

// await sleeps until something has changed, or for d (unless it is 0). An error says why there is no more use in
// that.
func (c *Client) await(ctx context.Context, changed <-chan struct{}, refused <-chan error, d time.Duration) error {
	var due <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-changed:
	case <-due:
	case err := <-refused:
		return err
	case <-c.empty:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// next is when to look again though nothing is heard: when the first lease should have ended, of which the
// server may say nothing; 0: never.
func (s Status) next(err error) time.Duration {
	if err != nil {
		return maxPause
	}
	var next time.Duration
	for _, h := range s.Holders {
		if h.Remaining >= 0 && (next == 0 || h.Remaining < next) {
			next = h.Remaining + time.Millisecond
		}
	}
	return next
}

// same: the same hold and wait as in the other, whatever time has passed.
func (s *Status) same(other Status) bool {
	if s.State != other.State || s.Size != other.Size || s.Waiting != other.Waiting ||
		len(s.Holders) != len(other.Holders) || len(s.Queue) != len(other.Queue) {
		return false
	}
	for i, h := range s.Holders {
		o := other.Holders[i]
		h.Held, h.Remaining, o.Held, o.Remaining = 0, 0, 0, 0
		if h != o {
			return false
		}
	}
	for i, w := range s.Queue {
		o := other.Queue[i]
		w.Waited, o.Waited = 0, 0
		if w != o {
			return false
		}
	}
	return true
}
