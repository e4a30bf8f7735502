package valkeysync

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// hold is one hold of this Client on the server: until when it is certain, its renewal, its loss. Several
// acquisitions may share it (readers of one process). Its fields belong to its gate's mutex.
type hold struct {
	g      *gate
	entry  protocol.Entry
	grace  time.Duration // crash detection; 0: off
	number int64
	since  int64 // server ms
	opts   *options
	term   time.Duration // the lease that renewals set: the longest that any who shares it asked for
	read   reading       // what the times in messages are measured by
	latest int64         // until this server time a lost request of its attempt might still be run; 0: none was lost

	until     time.Time                 // its lease is certain until then
	gone      atomic.Bool               // given back or lost: over, for readers without the mutex
	certain   atomic.Pointer[certainty] // until, and the proof of life, for the same
	latch                               // over: given back or lost
	lease     []*Lease                  // the acquisitions that share it
	handed    int64                     // how many acquisitions it has served: the low part of their tokens
	contended bool                      // another process waits for it
	shrinking *shrinking                // the release of a part, while it is under way
	copies    int                       // how many replicas are known to have it

	turnEnds    time.Time   // once contended: until when it may be handed over here
	lingerUntil time.Time   // set: nobody holds it, and it is kept until then
	lingerTimer *time.Timer // for that; nil before the first time
	lingerAt    time.Time   // when the timer runs next; zero: it does not

	alarm     *alarm // for whatever is due next; nil once it is over
	renewAt   time.Time
	renewing  bool
	renewMore bool  // look at once more: something happened after the running renewal was sent
	lastErr   error // of renewals, since the last one that was confirmed
	watch     *watch
	watchAt   time.Time // zero: watching, or not to be watched

	// What the first entries of its lists and pointers are kept in: most holds need no more.
	inline struct {
		certain certainty
		lease   [1]*Lease
	}
}

// watchAfter is how old a hold gets before its key is watched: short ones are not worth a subscription.
const watchAfter = time.Second

// drift is how much of a lease is left out because no two clocks run alike: 1 % and 2 ms.
func drift(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// newHold begins with a lease that is certain until then. The gate's mutex is held.
func newHold(a *attempt, got grant) *hold {
	c := a.g.c
	h := &hold{
		g: a.g, entry: a.entry, grace: a.entry.Grace, number: got.number, since: got.since, opts: a.want.opts,
		term: a.entry.Lease, until: got.until, read: got.read,
	}
	h.lease = h.inline.lease[:0]
	if got.waiting > 0 || a.contended {
		h.contend()
	}
	if a.unsure {
		h.latest = a.latest
	}
	h.inline.certain = certainty{h.until, got.proof}
	h.certain.Store(&h.inline.certain)
	if h.grace > 0 {
		a.g.ear.beat.join(h.grace)
	}
	h.renewAt = h.until.Add(drift(got.lease) - got.lease).Add(got.lease / 3)
	if h.grace > 0 && got.at.Sub(got.proof.at) > h.grace/3 {
		h.renewAt = got.at // so much of the grace has passed that the next beat may come too late
	}
	if c.stats.notifications.Load() {
		h.watchAt = got.at.Add(watchAfter)
	}
	h.alarm = a.g.alarmFor(h, h.next().Sub(got.at))
	a.g.holds = append(a.g.holds, h)
	a.g.uses++
	if h.unheard() || a.forced {
		h.verifyLocked()
	}
	return h
}

// value is the hold as the server keeps it: the proof of ownership.
func (h *hold) value() string { return h.entry.Hold(h.number, h.since) }

// begin: the hold goes to whoever has these options, now. A renewal that an earlier one's WithMaxHold put off is
// due.
func (h *hold) begin(o *options, now time.Time) {
	h.opts = o
	if !h.renewing && !now.Before(h.renewAt) {
		h.alarm.timer.Reset(0)
	}
}

// unheard: beats do not count for the hold, for it was confirmed over no subscription or an older one.
func (h *hold) unheard() bool {
	session := h.g.ear.watch.session()
	return h.grace > 0 && session != 0 && session != h.certain.Load().proof.session
}

// next is when the timer must run: for the end, the renewal, the watch.
func (h *hold) next() time.Time {
	next := earlier(h.deadline(), h.renewAt)
	if !h.watchAt.IsZero() {
		next = earlier(next, h.watchAt)
	}
	return next
}

// certainty is until when a hold is certain by its lease, and the last proof of life of its own: the
// sending of a request that confirmed it.
type certainty struct {
	until time.Time
	proof moment
}

// deadline is until when the hold is certain: its lease and, under crash detection, a grace after the last
// proof of life, its own or a beat. A beat counts only over the subscription under which the hold was last
// confirmed. It needs no mutex.
func (h *hold) deadline() time.Time {
	c := h.certain.Load()
	if h.grace == 0 {
		return c.until
	}
	alive := c.proof.at
	if beat := h.g.ear.beat.last.Load(); beat != nil && beat.session == c.proof.session && beat.at.After(alive) {
		alive = beat.at
	}
	return earlier(c.until, alive.Add(h.grace-drift(h.grace)))
}

// valid reports whether the hold is certain now. It needs no mutex.
func (h *hold) valid() bool {
	return !h.gone.Load() && time.Now().Before(h.deadline())
}

// end ends the hold if its certain time is over.
func (h *hold) end() {
	g := h.g
	g.mu.Lock()
	defer g.unlock()
	h.endLocked()
}

func (h *hold) endLocked() {
	if h.over {
		return
	}
	if time.Now().Before(h.deadline()) {
		return
	}
	cause := CauseExpired
	switch {
	case h.stale() && !time.Now().Before(h.until):
		cause = CauseMaxHold
	case time.Now().Before(h.until), h.lastErr != nil || h.renewing:
		cause = CauseUnreachable
	}
	h.lose(cause)
}

// What a Lease asks of it: see keeper.

func (h *hold) key() string           { return h.g.keys.Lock }
func (h *hold) lock()                 { h.g.mu.Lock() }
func (h *hold) unlock()               { h.g.unlock() }
func (h *hold) later(f func())        { h.g.later(f) }
func (h *hold) run(f func())          { h.g.c.crew.run(f) }
func (h *hold) decided(l *Lease) bool { return l.release.decided() }

func (h *hold) giveBack(ctx context.Context, l *Lease) (bool, error) { return h.g.end(ctx, l) }

// stale: all who share the hold have it for longer than WithMaxHold allows.
func (h *hold) stale() bool {
	return len(h.lease) > 0 && !slices.ContainsFunc(h.lease, func(l *Lease) bool { return !l.stale() })
}

// shed has those lose it who have it for longer than WithMaxHold allows, while others go on.
func (h *hold) shed() {
	lost := &LostError{Key: h.g.keys.Lock, Cause: CauseMaxHold}
	h.lease = slices.DeleteFunc(h.lease, func(l *Lease) bool {
		stale := l.stale()
		if stale {
			h.tell(l, lost)
		}
		return stale
	})
}

// tell tells one who shares the hold that it is lost.
func (h *hold) tell(l *Lease, lost *LostError) {
	l.lose(lost)
	h.g.c.stats.lose(lost.Cause)
	h.g.later(func() { l.onLost(lost) })
}

// wake runs when something may be due: the end, the next renewal, the watch. The gate's mutex is held.
func (h *hold) wake() {
	if h.endLocked(); h.over {
		return
	}
	now := time.Now()
	if !h.watchAt.IsZero() && !now.Before(h.watchAt) {
		h.watchAt = time.Time{}
		h.watch = h.g.c.hub.watch(h.g.c.keyspace(h.g.keys.Lock), h.event)
	}
	next := h.next()
	if !now.Before(h.renewAt) {
		next = h.deadline()
		if !h.watchAt.IsZero() {
			next = earlier(next, h.watchAt)
		}
		if !h.stale() && !h.renewing { // a renewal under way sets the timer anew
			h.renewLocked()
		}
	}
	h.alarm.timer.Reset(time.Until(next))
}

// event is something that happened to the key. Renewals make events too.
func (h *hold) event(name string) {
	if name != "expire" {
		h.verify()
	}
}

// verify looks at once whether the hold is still ours.
func (h *hold) verify() {
	h.g.mu.Lock()
	defer h.g.unlock()
	h.verifyLocked()
}

func (h *hold) verifyLocked() {
	if h.over {
		return
	}
	if h.renewing {
		h.renewMore = true
		return
	}
	h.renewLocked()
}

// renewLocked starts a renewal. One runs at a time.
func (h *hold) renewLocked() {
	if !h.stale() {
		h.shed()
	}
	h.renewing = h.g.c.crew.run(h.renew)
}

// renew repeats the renewal until it is answered or the lease is over. A hold that WithMaxHold lets run out
// is renewed by no more than what it has left: that it is taken or deleted must be told all the same.
func (h *hold) renew() {
	g, c := h.g, h.g.c
	g.mu.Lock()
	window := h.term // in which a renewal must get through
	g.unlock()
	if h.grace > 0 {
		window = min(window, h.grace)
	}
	limit := min(requestLimit, max(window/4, minPause))
	pause := minPause / 2 // a broken connection is found out by using it, and there may be several
	for {
		g.mu.Lock()
		value, lease := h.value(), h.term
		if h.stale() {
			lease = max(time.Until(h.until)+drift(lease), time.Millisecond)
		}
		g.unlock()
		echo := g.ear.watch.wantsEcho()
		sent := g.ear.now()
		ctx := withDeadline(c.ctx, sent.at.Add(limit))
		r, err := c.server.Renew(ctx, g.keys, value, lease, echo)
		ctx.end()
		if err == nil {
			g.ear.heard(r.Now)
		}
		g.mu.Lock()
		if h.over {
			g.unlock()
			return
		}
		switch {
		case err == nil && r.Outcome == protocol.Held:
			if echo {
				g.ear.watch.expectEcho(sent.at)
			}
			c.stats.renewals.Add(1)
			h.confirm(reading{sent, r.Now}, r.Remaining)
			if r.Waiting > 0 {
				h.contend()
			}
			g.unlock()
			return
		case err == nil:
			h.lose(takenOrDeleted(r.Holder))
			g.unlock()
			return
		case protocol.WrongType(err):
			h.lastErr = err
			h.lose(CauseTaken)
			g.unlock()
			return
		}
		c.stats.renewalErrors.Add(1)
		if h.lastErr == nil {
			left := time.Until(h.until)
			g.later(func() {
				events.renewalFailed.to(c.opts.client.logger, logKey(g.keys.Lock), logLeft(left), logError(err))
			})
		}
		h.lastErr = err
		over := h.done()
		g.unlock()
		if !rest(pause, over) {
			return
		}
		pause = min(2*pause, max(minPause, window/10))
	}
}

// confirm moves the certain time on: a renewal sent then has set the lease anew.
func (h *hold) confirm(read reading, remaining time.Duration) {
	h.renewing, h.lastErr = false, nil
	h.renewAt = read.sent.at.Add(remaining / 3)
	h.extend(read, remaining)
	if h.renewMore || h.unheard() {
		h.renewMore = false
		h.renewLocked()
	}
}

// extend moves the certain time on to what was set by a request sent then.
func (h *hold) extend(read reading, remaining time.Duration) {
	h.read = read
	sent := read.sent
	if until := sent.at.Add(remaining - drift(h.term)); until.After(h.until) {
		h.until = until
	}
	if last := h.certain.Load().proof; last.at.After(sent.at) {
		sent = last
	}
	h.certain.Store(&certainty{h.until, sent})
	h.alarm.timer.Reset(time.Until(h.next()))
}

func takenOrDeleted(value string) Cause {
	if value == "" {
		return CauseDeleted
	}
	return CauseTaken
}

// stop ends everything that goes on for the hold. The gate forgets it.
func (h *hold) stop() {
	h.gone.Store(true)
	if h.grace > 0 {
		h.g.ear.beat.part()
	}
	h.shut()
	h.alarm.stop()
	h.alarm = nil
	h.stopLinger()
	if h.lingerTimer != nil {
		h.lingerTimer.Stop()
	}
	h.watch.stop()
	g := h.g
	g.holds = remove(g.holds, h)
	g.uses--
}

// lose ends the hold because its lease is lost, tells all who share it, and has the server keep nothing
// of it.
func (h *hold) lose(cause Cause) {
	g, c := h.g, h.g.c
	lost := &LostError{Key: g.keys.Lock, Cause: cause, Err: h.lastErr}
	lingered := h.lingering()
	h.stop()
	for _, l := range h.lease {
		h.tell(l, lost)
	}
	h.lease = nil
	g.later(func() {
		if cause == CauseClosed || lingered {
			return // asked for, or nobody's
		}
		events.leaseLost.to(c.opts.client.logger, logKey(lost.Key), logCause(cause), logError(lost.Err))
	})
	h.forget()
	g.settle()
}

// forget has the server keep nothing of the hold's attempt, now and after the last moment at which a lost
// request of it may still be run.
func (h *hold) forget() {
	g := h.g
	f := &farewell{g: g, entry: h.entry, latest: h.latest}
	g.work(f.say)
}

// token is the fencing token of the n-th acquisition that a hold serves.
func token(number, n int64) int64 { return number<<10 | n }
