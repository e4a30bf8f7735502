package valkeysync

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// Lease is one acquisition: what the holder of a lock may know about it. It is safe for use by many
// goroutines, and of no effect on the lock.
type Lease struct {
	on    keeper
	gate  *gate // of a hold on one server; nil otherwise
	hold  *hold // the same
	token int64
	opts  *options
	began time.Time
	held  atomic.Int64 // weight that is not released yet; changed under the Semaphore's mutex
	over  atomic.Bool  // given back or lost, for readers without the mutex
	by    uint8        // how it came about: an index of grants
	bound bool         // it was asked for with a context, which carries it; under the mutex of its handle

	// Guarded by the keeper's mutex.
	ended   bool
	entries int // how often it was entered again and not yet left
	lost    *LostError
	lostCh  chan struct{}
	cancel  context.CancelCauseFunc
	release *release // under way or done
	trace   *tracing
}

// keeper is what a lease stands on: a hold on one server, or one on a majority of several. Its mutex guards
// the lease.
type keeper interface {
	key() string
	valid() bool         // certain now; without the mutex
	deadline() time.Time // certain until then
	end()                // loses it, if its certain time is over
	giveBack(ctx context.Context, l *Lease) (decided bool, err error)

	lock()
	unlock()
	later(f func()) // once the mutex is released
	run(f func())   // on a goroutine for which Close waits
	endLocked()
	decided(l *Lease) bool // of a giveBack that was not; without the mutex
}

// Key is the key as it stands on the server, prefix included.
func (l *Lease) Key() string { return l.on.key() }

// Token is the fencing token: a number that rises over the holds of a key that exclude each other, over
// processes, restarts, failover and data loss. Give it to whatever the lock protects, and have that refuse
// a token lower than one it has seen: this alone keeps out a holder that was stopped in the middle of
// something and does not know yet that its lease is over.
//
// Holds that do not exclude each other have tokens in the order of holds, not of calls: a reader that joins
// a hold of its process and a permit that is handed on inside a process may have a lower one than a reader
// or permit that was given before it.
func (l *Lease) Token() int64 { return l.token }

// Valid reports whether the lease is certain at this moment: not lost, not given back, and no other
// process can have been given the lock. It looks at the clock, so it is right even where a process that
// was stopped has just gone on. Where the machine was suspended it is not: Go's monotonic clock stood still
// meanwhile. The fencing token protects then.
func (l *Lease) Valid() bool { return !l.over.Load() && l.on.valid() }

// Until is the time until which the lease is certain; renewals move it on, and so do signs of life where
// crash detection is on: it is never further away than the grace then, however long the lease is
// ([WithCrashDetection]). It is past once the lease is lost or given back.
func (l *Lease) Until() time.Time {
	l.on.lock()
	defer l.on.unlock()
	until := l.on.deadline()
	if l.over.Load() && time.Now().Before(until) {
		return time.Time{}
	}
	return until
}

// Lost is closed when the lease is lost. It stays open when the lock is given back.
func (l *Lease) Lost() <-chan struct{} {
	l.on.lock()
	defer l.on.unlock()
	if l.lostCh == nil {
		l.lostCh = make(chan struct{})
		if l.lost != nil {
			close(l.lostCh)
		}
	}
	return l.lostCh
}

// lose tells whoever uses the lease. The keeper's mutex is held.
func (l *Lease) lose(err *LostError) {
	l.lost = err
	l.over.Store(true)
	if l.lostCh != nil {
		close(l.lostCh)
	}
	if l.cancel != nil {
		cancel := l.cancel
		l.on.later(func() { cancel(err) })
	}
	l.traceLost(err)
}

// onLost tells whoever asked for it with WithOnLost.
func (l *Lease) onLost(err *LostError) {
	if f := l.opts.onLost; f != nil {
		l.on.run(func() { f(err.Key, err) })
	}
}

// stale: held for longer than WithMaxHold allows.
func (l *Lease) stale() bool {
	return l.opts.maxHold > 0 && time.Since(l.began) >= l.opts.maxHold
}

// finish is the ordinary end. The keeper's mutex is held.
func (l *Lease) finish() {
	l.ended = true
	l.over.Store(true)
	if l.cancel != nil {
		cancel := l.cancel
		l.on.later(func() { cancel(nil) })
	}
}

// lapseLocked is lapse for who has the mutex.
func (l *Lease) lapseLocked() {
	l.on.endLocked()
}

// lostErr is lost as an error. The keeper's mutex is held.
func (l *Lease) lostErr() error {
	if l.lost == nil {
		return nil
	}
	return l.lost
}

func (l *Lease) isLost() bool {
	if !l.over.Load() {
		return false // without the mutex: there may be thousands
	}
	l.on.lock()
	defer l.on.unlock()
	return l.lost != nil
}

// lapse has a lease whose time is over be lost now, if its timer has not come to it yet: a process that
// was stopped must not see a living context when it goes on.
func (l *Lease) lapse() {
	if !l.on.valid() {
		l.on.end()
	}
}

// context makes the context that the acquisition gives: parent itself, where it carries that already.
func (l *Lease) context(parent context.Context) context.Context {
	if carried(parent, func(other *Lease) bool { return other == l }) != nil {
		return parent
	}
	from := parent
	if l.trace != nil {
		from = l.trace.held
	}
	outer, _ := parent.Value(leaseKey{}).(*leaseContext)
	ctx, cancel := context.WithCancelCause(from)
	l.on.lock()
	defer l.on.unlock()
	switch lost := l.lost; {
	case lost != nil:
		l.on.later(func() { cancel(lost) })
	case l.ended:
		l.on.later(func() { cancel(nil) })
	default:
		l.cancel = cancel
	}
	return &leaseContext{Context: ctx, parent: parent, lease: l, outer: outer}
}

// leaseContext ends when its lease is lost or given back, or its parent ends.
type leaseContext struct {
	context.Context
	parent context.Context // what the lock was given
	lease  *Lease
	outer  *leaseContext // of the lock around it; nil: there is none
}

type leaseKey struct{}

func (c *leaseContext) Value(key any) any {
	if key == (leaseKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// lapse is that of its lease and of those of the locks around it, whose ends are its own.
func (c *leaseContext) lapse() {
	for ; c != nil; c = c.outer {
		c.lease.lapse()
	}
}

func (c *leaseContext) Err() error {
	c.lapse()
	return c.Context.Err()
}

func (c *leaseContext) Done() <-chan struct{} {
	c.lapse()
	return c.Context.Done()
}

// FromContext returns the lease of the innermost lock that gave ctx, and whether there is one. It says
// nothing about whether that lease is still valid.
func FromContext(ctx context.Context) (*Lease, bool) {
	if c, ok := ctx.Value(leaseKey{}).(*leaseContext); ok {
		return c.lease, true
	}
	return nil, false
}

// carried is the innermost acquisition in ctx for which match holds; nil if there is none.
func carried(ctx context.Context, match func(*Lease) bool) *Lease {
	for {
		c, ok := ctx.Value(leaseKey{}).(*leaseContext)
		if !ok {
			return nil
		}
		if match(c.lease) {
			return c.lease
		}
		ctx = c.Context
	}
}

// Leases returns the leases of all locks that gave ctx, the outermost first: of [Client.LockAll], in the order
// of the keys' names.
func Leases(ctx context.Context) []*Lease {
	var all []*Lease
	carried(ctx, func(l *Lease) bool {
		all = append(all, l)
		return false
	})
	slices.Reverse(all)
	return all
}
