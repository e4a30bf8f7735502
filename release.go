package valkeysync

import (
	"context"
	"slices"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// release gives a hold back, and puts this process in the queue again in the same request where another
// goroutine here waits. It outlives whoever called for it: what could not be given back at once is tried
// until the lease is over.
type release struct {
	h     *hold
	lease *Lease   // the last acquisition that shared it
	next  *attempt // nil: nobody here waits
	after protocol.After
	downs *waiter // after a downgrade: who asked for it
	dirty bool    // a request was never answered: "not yours" may mean that it was run

	first deadline // of the first request
	sent  bool

	latch // over: err is what became of it
	err   error
}

// newRelease begins a release, of a hold that has been stopped. The gate's mutex is held.
func newRelease(h *hold, l *Lease, after protocol.After) *release {
	g := h.g
	g.ending = append(g.ending, h)
	g.uses++
	next := g.start()
	if next == nil && l != nil && after == protocol.Queue {
		next = g.keepPlace(h)
	}
	return &release{h: h, lease: l, next: next, after: after}
}

// end: err is what became of it.
func (r *release) end(err error) {
	g := r.h.g
	g.mu.Lock()
	r.err = err
	r.shut()
	g.ending = remove(g.ending, r.h)
	g.uses--
	g.unlock()
}

// run blocks until the server has answered; for a request's time limit at most where ctx cannot end or has
// ended already (a lock must be given back all the same), until ctx ends otherwise. Then the release goes
// on in the background.
func (r *release) run(ctx context.Context) (decided bool, err error) {
	if ctx.Done() != nil && ctx.Err() == nil {
		r.goOnBehind()
		return r.wait(ctx)
	}
	decided, err = r.repeat(time.Now().Add(requestLimit))
	if decided {
		return true, err
	}
	r.goOnBehind()
	return false, r.pending(err)
}

// goOnBehind repeats the release in the background until it is decided.
func (r *release) goOnBehind() {
	if !r.h.g.c.crew.run(func() { _, _ = r.repeat(time.Time{}) }) {
		r.end(ErrClosed)
	}
}

// begin is goOnBehind for who holds the gate's mutex. It reports false when the Client is closed.
func (r *release) begin() bool {
	g := r.h.g
	if g.work(func() { _, _ = r.repeat(time.Time{}) }) {
		return true
	}
	g.later(func() { r.end(ErrClosed) })
	return false
}

// wait waits for what goes on in the background.
func (r *release) wait(ctx context.Context) (decided bool, err error) {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
		defer cancel()
	}
	r.h.g.mu.Lock()
	over := r.done()
	r.h.g.mu.Unlock()
	select {
	case <-over:
		return true, r.err
	case <-ctx.Done():
		return false, r.pending(contextEnd(ctx))
	}
}

func (r *release) decided() bool {
	r.h.g.mu.Lock()
	defer r.h.g.mu.Unlock()
	return r.over
}

func (r *release) pending(err error) error {
	return fault.Errorf("unlock %q not confirmed yet; it goes on in the background, and the lease is not renewed any more: %w", r.h.g.keys.Lock, err)
}

// repeat sends the release until it is decided, or the limit (unless zero).
func (r *release) repeat(limit time.Time) (decided bool, err error) {
	pause := minPause
	for {
		decided, err := r.send(limit)
		if !decided && !limit.IsZero() && !time.Now().Add(pause).Before(limit) {
			return false, err
		}
		if decided || !sleep(r.h.g.c.ctx, pause) {
			r.end(err)
			return true, err
		}
		pause = min(2*pause, maxPause)
	}
}

// send sends the release once, and waits for the answer until the limit at most (unless zero).
func (r *release) send(limit time.Time) (decided bool, err error) {
	h := r.h
	g, c := h.g, h.g.c
	g.mu.Lock()
	next := r.next
	if next != nil && next.over {
		next = nil
	}
	var again *protocol.Entry
	var latest int64
	after := protocol.Queue // where nobody waits for more any longer, it is given back and that is all
	var sent moment
	if next != nil {
		sent = g.ear.now()
		again, latest, after = &next.entry, g.ear.latest(sent.at), r.after
		next.begin(sent, latest)
	}
	g.unlock()

	if limit.IsZero() {
		limit = time.Now().Add(requestLimit)
	}
	ctx := &r.first
	if r.sent {
		ctx = new(deadline)
	}
	r.sent = true
	ctx.begin(c.ctx, limit)
	reply, err := c.server.Release(ctx, g.keys, h.entry.Proof(h.number, h.since), again, after, latest)
	ctx.end()

	g.mu.Lock()
	defer g.unlock()
	if next != nil {
		next.end(err)
	}
	if err == nil {
		g.ear.heard(reply.Now)
		if h.latest != 0 && h.latest >= reply.Now {
			h.forget() // a request from before the grant may still be run
		}
		var lost *LostError
		if reply.Outcome == protocol.LostIt {
			lost = r.lost(reply)
		}
		if next != nil && !next.over {
			r.goOn(next, sent, reply, lost)
		}
		if lost != nil && !r.dirty {
			c.stats.lose(lost.Cause)
			if r.lease != nil { // else it lingered
				r.lease.onLost(lost)
			}
			return true, lost
		}
		return true, nil
	}
	r.dirty = r.dirty || !isReply(err)
	if judge(err) == passing && time.Now().Before(h.until) {
		return false, err
	}
	// It lapses with its lease.
	if next != nil && !next.over {
		if r.after == protocol.Downgrade {
			if judge(err) == passing {
				err = &LostError{Key: g.keys.Lock, Cause: CauseUnreachable, Err: err}
			}
			r.undone(next, err)
		} else {
			g.work(next.run)
		}
	}
	return true, err
}

// goOn deals with what became of the attempt that was queued with the release.
func (r *release) goOn(next *attempt, sent moment, reply protocol.Reply, lost *LostError) {
	g := r.h.g
	switch {
	case lost != nil && r.after == protocol.Downgrade:
		r.undone(next, lost)
	case lost != nil || reply.Outcome == protocol.Gone:
		g.seen = reply
		next.take(sent, protocol.Reply{Outcome: protocol.Gone}, time.Now()) // whether it was queued and dropped is not known
	case reply.Outcome == protocol.Released: // came too late to queue
		g.work(next.run)
	default:
		g.seen = reply
		if next.take(sent, reply, time.Now()) {
			g.work(next.wait)
		}
	}
}

// undone: a downgrade did not happen. Who asked for it is told so, if it has not given up; readers here
// that came behind it ask anew.
func (r *release) undone(next *attempt, err error) {
	g := r.h.g
	if i := slices.Index(g.waiters, r.downs); i >= 0 {
		g.waiters = slices.Delete(g.waiters, i, i+1)
		r.downs.tell(nil, err)
	}
	next.abandon()
	g.settle()
}

// lost: the server says that the hold was not ours any more.
func (r *release) lost(reply protocol.Reply) *LostError {
	cause := takenOrDeleted(reply.Holder)
	if !time.Now().Before(r.h.until) {
		cause = CauseExpired
	}
	return &LostError{Key: r.h.g.keys.Lock, Cause: cause}
}
