package valkeysync

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// attempt is one place of this process in the server's queue, from the request for it to the grant. Its
// name is chosen before anything is sent, so every request of it can be repeated. Its fields belong to
// its gate's mutex.
type attempt struct {
	g      *gate
	want   want
	entry  protocol.Entry
	alone  *waiter    // set: it is one goroutine's try, and not in the queue
	after  []*release // what is given back here before it asks
	down   *release   // the downgrade that it follows on: it cannot begin again, for a writer may have come between
	kept   *keptPlace // set: nobody here wants it
	latch             // over: granted, given up, or failed: what comes for it now finds nobody
	queued bool       // the server has said that it waits

	// It holds, and the reply that says so has not come yet.
	contended bool // somebody waits for it
	forced    bool // and it was taken

	inFlight int           // requests under way
	first    deadline      // of the first acquire
	asking   *deadline     // of the last one: ending it ends the wait for the reply
	idle     chan struct{} // closed when none is, if anybody asked
	unsure   bool          // a request was never answered: it may still be run
	latest   int64         // the latest server time that any request named

	// What a grant's time is measured by, if it comes over the subscription of that time. Before the first reply,
	// and over another subscription, there is the send time alone.
	read reading

	wake    chan struct{} // capacity 1; nil: nobody waits for it
	lookNow bool          // check without waiting for the timer
	checkAt time.Time     // when to check without being woken
	front   time.Time     // since when it is at the front; zero: it is not
	foreign bool          // the holder is not one of ours
}

// settleTime is how long a front waiter behind a holder of ours waits before it watches the key: those
// hand over by message, and a hot queue should not pay for subscriptions.
const settleTime = 500 * time.Millisecond

// firstLease is the lease of a hold that is handed over by message: a half-open connection counts as alive,
// and whoever really gets the message renews soon, or has released long before.
func firstLease(o *options) time.Duration {
	first := max(o.grace, time.Second)
	if o.grace == 0 {
		first = defaultGrace
	}
	return min(o.lease, first)
}

func newAttempt(g *gate, w want) *attempt {
	c := g.c
	g.uses++
	return &attempt{
		g: g, want: w,
		entry: protocol.Entry{
			Client: c.id, Attempt: strconv.FormatUint(rand.Uint64(), 36), Kind: g.kind, Mode: w.mode, Weight: w.weight,
			Lease: w.opts.lease, First: firstLease(w.opts), Grace: w.opts.grace, Name: c.opts.client.name,
		},
	}
}

// serves: what the attempt gets is what w wants.
func (a *attempt) serves(w want) bool {
	return a.want.mode == w.mode && a.want.weight == w.weight && a.want.opts.lease == w.opts.lease && a.want.opts.grace == w.opts.grace
}

// waiter is whom the attempt is for; nil: nobody any more.
func (a *attempt) waiter() *waiter {
	if a.alone != nil {
		return a.alone
	}
	if w := a.g.first(a.want.mode); w != nil && a.serves(w.want) {
		return w
	}
	return nil
}

// finish: the attempt is over, and not the gate's any more.
func (a *attempt) finish() {
	g := a.g
	a.shut()
	a.unkeep()
	if a.alone != nil {
		delete(g.tries, a.alone)
	} else {
		g.attempts = remove(g.attempts, a)
	}
	g.uses--
}

// abandon: nobody wants the attempt any more.
func (a *attempt) abandon() {
	a.finish()
	a.forget()
}

// forget has the server keep nothing of the attempt.
func (a *attempt) forget() {
	f := &farewell{g: a.g, entry: a.entry, attempt: a}
	a.g.work(f.say)
}

// quiet is closed when no request is under way; nil if none is.
func (a *attempt) quiet() <-chan struct{} {
	a.g.mu.Lock()
	defer a.g.unlock()
	if a.inFlight == 0 {
		return nil
	}
	if a.idle == nil {
		a.idle = make(chan struct{})
	}
	return a.idle
}

// unanswered is the server time after which no lost request of the attempt is run any more; 0 if none was
// lost.
func (a *attempt) unanswered() int64 {
	a.g.mu.Lock()
	defer a.g.unlock()
	if !a.unsure {
		return 0
	}
	return a.latest
}

// begin counts a request that is sent now, and end one that was answered or given up.
func (a *attempt) begin(sent moment, latest int64) {
	a.inFlight++
	a.latest = max(a.latest, latest)
	if a.read.sent.at.IsZero() {
		a.read.sent = sent
	}
}

func (a *attempt) end(err error) {
	a.inFlight--
	if a.inFlight == 0 && a.idle != nil {
		close(a.idle)
		a.idle = nil
	}
	if err != nil && !isReply(err) {
		a.unsure = true
	}
}

// run asks for the lock and, where it has to wait, waits. It returns when the attempt is over, or when the
// waiting goes on on a goroutine of its own.
func (a *attempt) run() {
	if a.ask() {
		a.g.c.crew.run(a.wait)
	}
}

// ask sends acquire until it is answered. It reports whether the attempt is in the queue.
func (a *attempt) ask() (queued bool) {
	g, c := a.g, a.g.c
	for _, r := range a.after {
		ctx, cancel := context.WithTimeout(c.ctx, requestLimit)
		_, _ = r.wait(ctx) // whether or not it is decided in time, the server says how things stand
		cancel()
	}
	pause := minPause
	var began time.Time
	for {
		try := a.alone != nil
		if !try && g.ear.watch.session() == 0 {
			// Nobody could tell us of a grant. A free lock can be had all the same.
			try = true
		}
		g.mu.Lock()
		if a.over {
			g.unlock()
			return false
		}
		sent := g.ear.now()
		latest := g.ear.latest(sent.at)
		a.begin(sent, latest)
		if began.IsZero() {
			began = sent.at
		}
		limit := sent.at.Add(requestLimit)
		if a.want.try {
			limit = began.Add(requestLimit)
		}
		ctx := &a.first
		if a.asking != nil {
			ctx = new(deadline)
		}
		ctx.begin(c.ctx, limit)
		a.asking = ctx
		g.unlock()
		r, err := c.server.Acquire(ctx, g.keys, a.entry, try, latest)
		ctx.end()

		g.mu.Lock()
		now := time.Now()
		a.end(err)
		if err == nil {
			g.ear.heardAt(r.Now, now)
		}
		if a.over {
			g.unlock()
			return false
		}
		if err == nil {
			g.lastErr = nil
			g.seen = r
			if r.Outcome == protocol.Busy && a.alone == nil {
				g.unlock()
				ctx, cancel := context.WithTimeout(c.ctx, requestLimit)
				err := g.ear.ready(ctx)
				cancel()
				if err == nil {
					continue
				}
				g.mu.Lock()
				if isReply(err) && !a.over {
					a.failed(err, 0) // the server does not let us hear
				}
				over := a.done()
				g.unlock()
				if !rest(pause, over) {
					return false
				}
				pause = min(2*pause, maxPause)
				continue
			}
			if r.Outcome == protocol.Late {
				g.unlock()
				continue // our idea of the server's time is right now
			}
			queued = a.take(sent, r, now)
			g.unlock()
			return queued
		}
		a.failed(err, time.Since(began)+pause)
		over := a.done()
		g.unlock()
		if !rest(pause, over) {
			return false
		}
		pause = min(2*pause, maxPause)
	}
}

// failed deals with a request that was not answered, or answered with an error, where the next would be
// sent that long after the first.
func (a *attempt) failed(err error, lasted time.Duration) {
	g := a.g
	s := judge(err)
	if g.c.ctx.Err() != nil {
		s, err = fatal, ErrClosed
	}
	if s != fatal { // what is repeated; of the rest its callers are told
		if g.lastErr == nil {
			g.later(func() { events.requestFailed.to(g.c.opts.client.logger, logKey(g.keys.Lock), logError(err)) })
		}
		g.lastErr = err
	}
	if s == passing && a.alone != nil && lasted >= requestLimit {
		s = refused
	}
	if s != passing {
		a.fail(err, s)
	}
}

// fail tells whoever the attempt is for that they cannot have it.
func (a *attempt) fail(err error, s severity) {
	g := a.g
	if w := a.alone; w != nil {
		w.tell(nil, err)
		a.abandon()
		return
	}
	a.unkeep()
	g.fail(err, s)
	g.settle()
}

// startOver gives the attempt up, and begins another once the server has let go of it.
func (a *attempt) startOver() {
	g := a.g
	if a.down != nil {
		a.down.undone(a, &LostError{Key: g.keys.Lock, Cause: CauseExpired})
		return
	}
	a.finish()
	f := &farewell{g: g, entry: a.entry, attempt: a, then: func() {
		g.mu.Lock()
		defer g.unlock()
		a.anew()
	}}
	if !g.work(f.say) {
		a.anew()
	}
}

// anew: nothing came of the attempt, which is over; whoever it was for gets another.
func (a *attempt) anew() {
	g := a.g
	if w := a.alone; w != nil && !w.gone && !g.work(g.try(w).run) {
		w.tell(nil, ErrClosed)
	}
	g.settle()
}

// take deals with what a reply, which came now, says of the attempt; sent is when its request was. It reports whether
// the attempt is in the queue.
func (a *attempt) take(sent moment, r protocol.Reply, now time.Time) (queued bool) {
	g := a.g
	switch r.Outcome {
	case protocol.Held:
		lease := a.entry.Lease
		until := sent.at.Add(r.Remaining - drift(lease))
		if r.Remaining == protocol.Forever {
			r.Remaining = lease // somebody took the expiry away; renewals set it anew
			until = sent.at.Add(lease - drift(lease))
		}
		if !a.certain(until, sent.at, now) {
			g.later(func() {
				events.leaseTooShort.to(g.c.opts.client.logger, logKey(g.keys.Lock), logLease(lease), logAfter(now.Sub(sent.at)))
			})
			a.startOver()
			return false
		}
		g.granted(a, grant{at: now, number: r.Number, since: r.Since, until: until, lease: r.Remaining, waiting: r.Waiting, proof: sent, read: reading{sent, r.Now}})
		return false
	case protocol.Queued:
		a.queued = true
		a.read = reading{sent, r.Now}
		if a.front.IsZero() && r.Place == 1 {
			a.front = time.Now()
		}
		a.foreign = r.Holder != "" && protocol.ParseHolder(r.Holder).Foreign
		a.schedule(r)
		return true
	case protocol.Busy:
		a.finish()
		a.alone.tell(nil, g.busy()) // nobody else takes that for an answer
		return false
	case protocol.Mismatch:
		a.fail(mismatch(g, r.Holder), fatal)
		return false
	default: // gone: it was dropped, and joins anew under a new name
		g.ear.doubt()
		if a.down != nil {
			a.down.undone(a, &LostError{Key: g.keys.Lock, Cause: CauseDeleted})
			return false
		}
		if a.unsure {
			a.forget()
		}
		a.finish()
		a.anew()
		return false
	}
}

// certain: something certain is left now of a hold whose lease ends then and whose proof of life is that.
func (a *attempt) certain(until, proof, now time.Time) bool {
	if grace := a.entry.Grace; grace > 0 {
		until = earlier(until, proof.Add(grace-drift(grace)))
	}
	return now.Before(until)
}

// schedule sets the timer of a waiter: at the front the holder's remaining lease, and never later than one
// lease of its own (a lost event, a foreign holder without expiry), with crash detection a quarter of the
// grace; behind it as many leases as its place, so that a row of dead fronts cannot strand it; and one, or
// one grace, behind a front that is dead already, or is about to connect anew.
func (a *attempt) schedule(r protocol.Reply) {
	grace := a.want.opts.grace
	wait := a.entry.Lease * time.Duration(max(r.Place, 1))
	if r.Place == 1 && r.Remaining != protocol.Forever {
		wait = min(wait, r.Remaining+time.Millisecond)
	}
	if r.DeadFront {
		wait = a.entry.Lease
		if grace > 0 {
			wait = min(wait, grace)
		}
	}
	if grace > 0 && !a.foreign {
		// Look whether the holder lives; and those behind, whether those before them do: a machine that dies
		// takes the holder along and all who waited there. By the square of the place, all together look
		// less than once a grace and a half, however many they are.
		if place := time.Duration(r.Place); place == 1 {
			wait = min(wait, grace/4)
		} else if place < 2*a.entry.Lease/grace {
			wait = min(wait, grace*place*place/2)
		}
	}
	a.checkAt = time.Now().Add(wait)
}

// message takes what a script said to the attempt.
func (a *attempt) message(m protocol.Message, session int64) {
	g := a.g
	switch m.Verb {
	case protocol.Grant:
		now := time.Now()
		proof, _ := a.read.when(m.Now, session, now)
		until := proof.Add(m.Lease - drift(m.Lease))
		if !a.certain(until, proof, now) {
			a.look() // nothing certain is left on arrival: no hold
			return
		}
		g.c.stats.wokenByMessage.Add(1)
		if a.asking != nil {
			a.asking.end() // Lock must not wait for a reply that says no more
		}
		g.granted(a, grant{at: now, number: m.Number, since: m.Now, until: until, lease: m.Lease, waiting: m.Waiting, byMessage: true, proof: moment{proof, session}, read: a.read})
	case protocol.Front:
		if a.front.IsZero() {
			a.front = time.Now()
			if grace := a.want.opts.grace; grace > 0 && !m.Foreign {
				a.checkAt = earlier(a.checkAt, a.front.Add(grace/4))
			}
		}
		a.foreign = m.Foreign
		a.stir()
	case protocol.Waits:
		a.contended = true
	case protocol.Lost:
		a.forced = true
	case protocol.Dropped:
		a.fail(mismatch(g, string(protocol.SemaphoreKind(m.Number))), fatal)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// look has the waiter check at once.
func (a *attempt) look() {
	a.lookNow = true
	a.stir()
}

func (a *attempt) stir() {
	select {
	case a.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// event is something that happened to the key that the attempt watches. Renewals and grants make events
// too; they are no reason to look.
func (a *attempt) event(name string) {
	if name == "expire" || name == "set" {
		return
	}
	a.g.mu.Lock()
	defer a.g.unlock()
	a.g.c.stats.wokenByEvent.Add(1)
	a.look()
}

// wait sleeps until the attempt is over, and checks when it is woken, when a timer runs out, and when it
// has begun to watch the key.
func (a *attempt) wait() {
	g, c := a.g, a.g.c
	c.stats.waits.Add(1)
	var w *watch
	defer func() { w.stop() }()
	var confirmed <-chan struct{}
	over, wake := a.sleeps()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		look, echo, due, watchNow := a.plan(w != nil)
		if watchNow {
			w = c.hub.watch(c.keyspace(g.keys.Lock), a.event)
			confirmed = w.confirmed()
		}
		if look {
			a.check(echo)
			continue
		}
		timer.Reset(time.Until(due))
		select {
		case <-over:
			return
		case <-wake:
		case <-timer.C:
		case <-confirmed:
			confirmed = nil
			a.check(false) // what happened before the subscription made no event for us
		}
	}
}

// sleeps says what ends the sleep of a waiter.
func (a *attempt) sleeps() (over <-chan struct{}, wake chan struct{}) {
	a.g.mu.Lock()
	defer a.g.unlock()
	a.wake = make(chan struct{}, 1)
	return a.done(), a.wake
}

// plan says what a waiter does next: look, with an echo where a timer says so, or begin to watch, or sleep
// until due.
func (a *attempt) plan(watching bool) (look, echo bool, due time.Time, watch bool) {
	a.g.mu.Lock()
	defer a.g.unlock()
	if a.over {
		return false, false, time.Now(), false
	}
	now := time.Now()
	look, a.lookNow = a.lookNow, false
	if !now.Before(a.checkAt) {
		look, echo = true, true
		a.checkAt = now.Add(a.entry.Lease) // until the reply says better
		a.g.c.stats.wokenByTimer.Add(1)
	}
	due = a.checkAt
	if !watching && !a.front.IsZero() {
		watchAt := a.front
		if !a.foreign {
			watchAt = watchAt.Add(settleTime)
		}
		if watch = !now.Before(watchAt); !watch && watchAt.Before(due) {
			due = watchAt
		}
	}
	return look, echo, due, watch
}

// check asks the server how things stand for the attempt.
func (a *attempt) check(echo bool) {
	g, c := a.g, a.g.c
	g.mu.Lock()
	if a.over {
		g.unlock()
		return
	}
	sent := g.ear.now()
	a.begin(sent, 0)
	g.unlock()
	heard := g.ear.judges(a.want.opts.grace)
	ctx := withDeadline(c.ctx, sent.at.Add(requestLimit))
	r, err := c.server.Check(ctx, g.keys, a.entry, echo, heard)
	ctx.end()
	g.mu.Lock()
	defer g.unlock()
	now := time.Now()
	a.end(nil) // a check makes nothing, answered or not
	if err == nil {
		g.ear.heardAt(r.Now, now)
		if echo {
			g.ear.watch.expectEcho(sent.at)
		}
	}
	if a.over {
		return
	}
	if err != nil {
		a.failed(err, 0)
		a.checkAt = time.Now().Add(maxPause / 2)
		return
	}
	g.lastErr = nil
	g.seen = r
	a.take(sent, r, now)
}
