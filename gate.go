package valkeysync

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// gate is the one way of this process to one primitive: its goroutines wait here, in order, and have one
// place in the server's queue between them (readers and writers one each, so that either can be let in
// without the other). Who only tries does not wait here, and asks the server alone.
type gate struct {
	c     *Client
	kind  protocol.Kind
	keys  *protocol.Keys
	ear   *listener
	users int // guarded by c.mu

	mu       sync.Mutex
	waiters  []*waiter  // goroutines here, in the order they came
	attempts []*attempt // our place on the server for the first of them; one for each mode at most
	tries    map[*waiter]*attempt
	holds    []*hold
	ending   []*hold        // those that are being released
	lastErr  error          // of requests, since the last one that was answered
	seen     protocol.Reply // the last that was said of the queue, for people
	closed   bool           // the Client is closed
	after    []func()       // what to do once the mutex is released
	uses     int            // so many more users it has, to be counted before the mutex is released
	alarm    *alarm         // for the next hold; nil: there was none yet, or a hold has it

	// What the first entries of its lists are kept in: without company it needs no more.
	inline struct {
		waiters  [1]*waiter
		attempts [1]*attempt
		holds    [1]*hold
		ending   [1]*hold
	}
}

func newGate(c *Client, kind protocol.Kind, keys *protocol.Keys, ear *listener) *gate {
	return &gate{c: c, kind: kind, keys: keys, ear: ear}
}

// empty: nothing is here, so whoever comes is the first.
func (g *gate) empty() bool {
	return len(g.waiters)+len(g.attempts)+len(g.tries)+len(g.holds)+len(g.ending) == 0
}

// begin makes an empty gate as good as new.
func (g *gate) begin() {
	g.waiters, g.attempts = g.inline.waiters[:0], g.inline.attempts[:0]
	g.holds, g.ending = g.inline.holds[:0], g.inline.ending[:0]
	g.lastErr, g.seen = nil, protocol.Reply{}
}

// remove takes one out of a list in which the order does not matter. The last gets its place: what goes over
// the list meanwhile must go backward.
func remove[T comparable](list []T, one T) []T {
	if i := slices.Index(list, one); i >= 0 {
		last := len(list) - 1
		list[i] = list[last]
		clear(list[last:])
		list = list[:last]
	}
	return list
}

// attempt is our place on the server for those who want mode; nil: none.
func (g *gate) attempt(mode protocol.Mode) *attempt {
	for _, a := range g.attempts {
		if a.want.mode == mode {
			return a
		}
	}
	return nil
}

// want is what one goroutine asks for.
type want struct {
	mode    protocol.Mode
	weight  int64
	opts    *options
	try     bool // do not wait
	patient bool // has no error to return: Lock
	context bool // a context will carry it
}

// waiter is one goroutine that wants it. Its fields belong to its gate's mutex.
type waiter struct {
	want
	latch // over: lease or err is what became of it
	lease *Lease
	err   error
	gone  bool // gave up
}

// tell says what became of it: l, or err.
func (w *waiter) tell(l *Lease, err error) {
	w.lease, w.err = l, err
	w.shut()
}

// later is for what must not happen under the mutex: other people's code, as a logger or what ends with a context.
func (g *gate) later(f func()) { g.after = append(g.after, f) }

// work has f done on a goroutine of its own, after all that was put off before it. From now on Close waits
// for it. It reports false once the Client is closed.
func (g *gate) work(f func()) bool {
	if !g.c.crew.enter() {
		return false
	}
	g.later(func() { g.c.crew.start(f) })
	return true
}

func (g *gate) unlock() {
	if g.uses != 0 { // before anybody can end what they are for: a gate without users is forgotten
		g.c.use(g, g.uses)
		g.uses = 0
	}
	after := g.after
	g.after = nil
	g.mu.Unlock()
	for _, f := range after {
		f()
	}
}

// acquire blocks until w's goroutine has the lock, or cannot have it, or ctx ends.
func (g *gate) acquire(ctx context.Context, want want) (*Lease, error) {
	w := &waiter{want: want}
	g.mu.Lock()
	if g.closed {
		g.unlock()
		return nil, ErrClosed
	}
	if g.empty() {
		g.begin()
	}
	if l := g.join(want); l != nil {
		g.unlock()
		return l, nil
	}
	if want.try && g.busyHere() {
		err := g.busy()
		g.unlock()
		return nil, err
	}
	var a *attempt
	if want.try {
		a = g.try(w)
		a.after = g.endLinger() // it was not for us, or we would have it
	} else {
		g.waiters = append(g.waiters, w)
		g.resume(want)
		g.endLinger()
		a = g.start()
	}
	g.unlock()
	if a != nil {
		if ctx.Done() == nil {
			a.run() // nobody can interrupt us: no need for another goroutine
		} else {
			g.c.crew.run(a.run)
		}
	}
	return g.await(ctx, w)
}

// await blocks until it is known what became of w, or ctx ends.
func (g *gate) await(ctx context.Context, w *waiter) (*Lease, error) {
	g.mu.Lock()
	if w.over {
		g.unlock()
	} else {
		over := w.done()
		g.unlock()
		select {
		case <-over:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil { // not under the mutex: it may be a lock's, which takes it
		return w.lease, w.err
	}
	return nil, g.giveUp(contextEnd(ctx), w)
}

// giveUp: w's context is done. That has precedence: a grant that raced with it is given back.
func (g *gate) giveUp(end error, w *waiter) error {
	g.mu.Lock()
	defer g.unlock()
	if w.err != nil {
		return w.err
	}
	g.c.stats.gaveUp.Add(1)
	err := g.waitError(end, w)
	if w.lease != nil {
		g.giveBack(w.lease)
	} else {
		w.gone = true
		if a := g.tries[w]; a != nil {
			a.abandon()
		}
		g.waiters = slices.DeleteFunc(g.waiters, func(other *waiter) bool { return other == w })
		g.settle()
	}
	return err
}

// giveBack ends an acquisition that nobody was told of, in the background. The gate's mutex is held.
func (g *gate) giveBack(l *Lease) { g.work(func() { _, _ = g.end(g.c.ctx, l) }) }

// waitError tells what is known of why w did not get it.
func (g *gate) waitError(err error, w *waiter) *WaitError {
	e := &WaitError{Key: g.keys.Lock, Err: err, Server: g.lastErr}
	for _, h := range g.holds {
		e.Holder, e.Remaining = "this process, "+h.entry.Name, time.Until(h.until)
	}
	if e.Holder == "" && (g.seen.Outcome == protocol.Queued || g.seen.Outcome == protocol.Busy) {
		e.Holder, e.Remaining = describe(g.seen.Holder), g.seen.Remaining
		e.Ahead = g.seen.Place - 1
	}
	if i := slices.Index(g.waiters, w); i > 0 {
		e.Ahead += i
	}
	return e
}

// describe names the holder in a lock's value, for people.
func describe(value string) string {
	if value == "" {
		return ""
	}
	if name, ok := protocol.QuorumName(value); ok {
		return name
	}
	h := protocol.ParseHolder(value)
	switch {
	case h.Foreign:
		return "another program (" + quoteShort(value) + ")"
	case h.Shared:
		return "shared holders"
	}
	return h.Name
}

// busyHere: a try need not ask the server. A waiter here is a reason where nobody may pass it: a writer,
// and who waits by the server's word. Of others it is not known yet that they have to wait.
func (g *gate) busyHere() bool {
	for _, a := range g.attempts {
		if a.queued {
			return true
		}
	}
	return g.blocked() || g.first(protocol.Exclusive) != nil
}

func (g *gate) busy() error { return g.waitError(ErrLocked, nil) }

// blocked: a lock that this process holds itself stands in the way, and its release will put us in the
// queue. A writer behind readers of this process queues at once, so that it holds off the others' readers.
func (g *gate) blocked() bool {
	for _, h := range g.holds {
		if h.entry.Mode == protocol.Exclusive && !h.lingering() {
			return true
		}
	}
	return false
}

// join takes what this process holds already and nobody waits for: a hold that lingers, or, for a reader,
// the read hold of others here.
func (g *gate) join(w want) *Lease {
	if len(g.waiters) > 0 {
		return nil
	}
	for _, h := range g.holds {
		free := h.lingering() && h.serves(w)
		if h.handed < maxHanded && (free || h.shares(w) && (!h.contended || g.kind.Owner() != "") && !h.stale()) {
			now := time.Now()
			h.stopLinger()
			if free {
				h.begin(w.opts, now)
			}
			return g.lend(h, w.opts, now)
		}
	}
	return nil
}

// shares: the hold is a reader's, and w may have part in it.
func (h *hold) shares(w want) bool {
	return w.mode == protocol.Reader && h.entry.Mode == protocol.Reader && h.grace == w.opts.grace && h.valid()
}

// lend gives one more acquisition out of a hold, now. The hold's lease is the longest of them all.
func (g *gate) lend(h *hold, opts *options, now time.Time) *Lease {
	l := &Lease{
		on: h, hold: h, token: token(h.number, min(h.handed, maxHanded-1)), gate: g, opts: opts, began: now,
	}
	l.held.Store(h.entry.Weight)
	if opts.lease > h.term {
		h.term = opts.lease
		h.verifyLocked()
	}
	h.handed++
	h.lease = append(h.lease, l)
	g.c.stats.acquired.Add(1)
	return l
}

// first is the first waiter that wants mode.
func (g *gate) first(mode protocol.Mode) *waiter {
	for _, w := range g.waiters {
		if w.mode == mode {
			return w
		}
	}
	return nil
}

// modes, in the order in which those who wait are served when a hold of this process ends: when a writer
// leaves, readers are next.
var modes = [...]protocol.Mode{protocol.Reader, protocol.Exclusive, protocol.Permit}

// start makes an attempt that is due for a first waiter, if one is. Whoever gets it runs it.
func (g *gate) start() *attempt {
	if len(g.waiters) == 0 || g.blocked() {
		return nil
	}
	for _, mode := range modes {
		if w := g.first(mode); w != nil && g.attempt(mode) == nil {
			a := newAttempt(g, w.want)
			g.attempts = append(g.attempts, a)
			return a
		}
	}
	return nil
}

// try makes the attempt of one who does not wait.
func (g *gate) try(w *waiter) *attempt {
	a := newAttempt(g, w.want)
	a.alone = w
	if g.tries == nil {
		g.tries = map[*waiter]*attempt{}
	}
	g.tries[w] = a
	return a
}

// settle makes the attempts fit the first waiters, after either have changed.
func (g *gate) settle() {
	for _, a := range slices.Backward(g.attempts) {
		if a.waiter() == nil && (a.kept == nil || g.closed) {
			a.abandon()
		}
	}
	first := g.start()
	if first == nil {
		return
	}
	run := first.run
	if second := g.start(); second != nil { // a writer behind readers: it asks once they were answered
		run = func() { first.run(); second.run() }
	}
	if !g.work(run) {
		g.fail(ErrClosed, fatal)
	}
}

// grant is how an attempt became a hold.
type grant struct {
	at            time.Time
	number, since int64
	until         time.Time     // certain until then
	lease         time.Duration // what the server gave
	waiting       int           // behind it, in other processes
	proof         moment        // when the Client was alive for certain
	read          reading       // of the attempt, or of the reply
	byMessage     bool
}

// granted: the attempt has become a hold.
func (g *gate) granted(a *attempt, got grant) {
	w, kept := a.waiter(), a.kept
	a.finish()
	h := newHold(a, got)
	if got.byMessage {
		g.c.stats.byMessage.Add(1)
	} else {
		g.c.stats.byReply.Add(1)
	}
	switch {
	case w != nil:
		h.opts = w.opts
		g.admit(h, w, got)
	case kept != nil && h.linger(time.Until(kept.until)): // nobody wants it yet
	default: // nobody wants it any more
		h.stop()
		h.forget()
	}
	g.settle()
}

// admit lets the one in that the hold is for, and with a reader all readers that wait here.
func (g *gate) admit(h *hold, first *waiter, got grant) {
	l := g.lend(h, first.opts, got.at)
	if l.by = byReply; got.byMessage {
		l.by = byMessage
	}
	first.tell(l, nil)
	keep := g.waiters[:0]
	for _, w := range g.waiters {
		switch {
		case w == first:
		case h.shares(w.want):
			w.tell(g.lend(h, w.opts, got.at), nil)
		default:
			keep = append(keep, w)
		}
	}
	clear(g.waiters[len(keep):])
	g.waiters = keep
}

// fail tells waiters that they cannot have it: all of them if it is fatal, else those who can take an error.
func (g *gate) fail(err error, s severity) {
	keep := g.waiters[:0]
	for _, w := range g.waiters {
		if s == fatal || !w.patient {
			w.tell(nil, err)
		} else {
			keep = append(keep, w)
		}
	}
	clear(g.waiters[len(keep):])
	g.waiters = keep
}

// end ends one acquisition, and gives the hold back when it was the last that shared it. It reports
// whether that is decided: if not, the release goes on, and another call waits for it.
func (g *gate) end(ctx context.Context, l *Lease) (decided bool, err error) {
	g.mu.Lock()
	h := l.hold
	l.lapseLocked()
	switch {
	case l.lost != nil:
		err = l.lost
		g.unlock()
		return true, err
	case l.release != nil: // called again
		r := l.release
		g.unlock()
		return r.wait(ctx)
	case l.ended:
		g.unlock()
		return true, ErrNotLocked
	}
	if l.exit() {
		g.unlock()
		return true, nil
	}
	l.finish()
	h.lease = slices.DeleteFunc(h.lease, func(other *Lease) bool { return other == l })
	if len(h.lease) > 0 || g.handOver(h) || h.linger(h.opts.linger) {
		g.unlock()
		l.trace.released(nil)
		return true, nil
	}
	h.stop()
	r := newRelease(h, l, protocol.Queue)
	l.release = r
	if g.c.crew.enter() {
		defer g.c.crew.leave() // Close lets the server hear of it
	}
	g.settle()
	g.unlock()
	decided, err = r.run(ctx)
	l.trace.released(err)
	return decided, err
}

// downgrade gives a writer's hold back and takes a reader's in the same request.
func (g *gate) downgrade(ctx context.Context, l *Lease, want want) (*Lease, error) {
	w := &waiter{want: want}
	g.mu.Lock()
	l.lapseLocked()
	if l.lost != nil || l.ended {
		defer g.unlock()
		if l.lost != nil {
			return nil, l.lost
		}
		return nil, ErrNotLocked
	}
	if l.entries > 0 {
		defer g.unlock()
		return nil, l.errEntered()
	}
	h := l.hold
	l.finish()
	h.lease = nil
	h.stop()
	if a := g.attempt(protocol.Reader); a != nil {
		a.abandon() // the readers here get in with the downgrade
	}
	g.waiters = slices.Insert(g.waiters, 0, w)
	r := newRelease(h, l, protocol.Downgrade)
	r.downs = w
	if r.next != nil {
		r.next.down = r
	}
	l.release = r
	open := r.begin()
	g.settle()
	g.unlock()
	if !open {
		return nil, ErrClosed
	}
	return g.await(ctx, w)
}

// message takes what a script said to an attempt of this gate.
func (g *gate) message(m protocol.Message, session int64) {
	g.mu.Lock()
	defer g.unlock()
	named := func(h *hold) bool { return h.entry.Attempt == m.Attempt }
	if i := slices.IndexFunc(g.holds, named); i >= 0 {
		h := g.holds[i]
		switch m.Verb {
		case protocol.Waits:
			h.contend()
			if at, ok := h.read.when(m.Now, session, time.Now()); ok && session != 0 && m.Counted {
				apart := at.Sub(h.read.sent.at).Abs() / 100 // the two clocks, since one was read: as of a lease
				g.ear.beat.heard(moment{at.Add(-apart), session})
			}
		case protocol.Lost:
			h.verifyLocked()
		}
		return
	}
	for _, a := range g.attempts {
		if a.entry.Attempt == m.Attempt {
			a.message(m, session)
			return
		}
	}
	if m.Verb == protocol.Waits || m.Verb == protocol.Lost { // a try is told no more
		for _, a := range g.tries {
			if a.entry.Attempt == m.Attempt {
				a.message(m, session)
				return
			}
		}
	}
	if !slices.ContainsFunc(g.ending, named) { // a leave would overtake the release, which would take the hold for lost
		g.c.disown(m)
	}
}

// gap: we are subscribed anew, and messages and events may have been missed. Before the first subscription
// there was nothing to miss, but what is held was not heard to live.
func (g *gate) gap(first bool) {
	g.mu.Lock()
	defer g.unlock()
	if first {
		for _, h := range g.holds {
			if h.unheard() {
				h.verifyLocked()
			}
		}
		return
	}
	for _, a := range g.attempts {
		g.c.stats.wokenByGap.Add(1)
		a.look()
	}
	g.verifyLocked()
}

// verify has every hold here renewed now.
func (g *gate) verify() {
	g.mu.Lock()
	defer g.unlock()
	g.verifyLocked()
}

func (g *gate) verifyLocked() {
	for _, h := range g.holds {
		h.verifyLocked()
	}
}

// close ends everything here: the Client is closed.
func (g *gate) close() {
	g.mu.Lock()
	defer g.unlock()
	g.closed = true
	g.fail(ErrClosed, fatal)
	for _, a := range g.tries {
		a.fail(ErrClosed, fatal)
	}
	for _, h := range slices.Backward(g.holds) {
		h.lose(CauseClosed)
	}
	g.settle()
}
