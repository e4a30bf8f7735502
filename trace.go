package valkeysync

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Tracer is told of acquisitions as they happen, so that waits and holds can be timed. See [WithTracer].
type Tracer interface {
	// Acquire is called before a lock is asked for, on the goroutine that asks, and returns who is told what
	// becomes of that; nil: nobody. ctx is what the call was given; context.Background where it was given
	// none, as Lock is.
	Acquire(ctx context.Context, a Acquisition) Trace
}

// Trace is told what becomes of one acquisition: Failed; or Acquired, and later Released. Nothing else, and
// none of them twice.
type Trace interface {
	// Acquired: it is held from now on. It is called on the goroutine that asked for it, before that goes on.
	// The context that the lock gives is made from the one that Acquired returns, which must be ctx or made
	// from it, and not nil. ctx is what the call was given; for the second key of [Client.LockAll], and those
	// after it, the context of the key before.
	Acquired(ctx context.Context, l *Lease, by Grant) context.Context

	// Failed: it is not held, and not waited for any more. It is called on the goroutine that asked for it,
	// and err is what that gets: a *WaitError where its context ended, or where a try found the lock taken.
	Failed(err error)

	// Released: it is not held any more. After an unlock it is called on the goroutine that unlocks, when the
	// server has answered or nothing was asked of it, and err is what UnlockContext returns: nil; a *LostError
	// where the server says that it was not ours any more; or why that is not confirmed yet. When a lease is
	// lost it is called as soon as that is noticed, on a goroutine of its own, with the *LostError.
	Released(err error)
}

// Acquisition is what one call asks for.
type Acquisition struct {
	Key     string // as it stands on the server, prefix included
	Kind    string // "Mutex", "RWMutex", "Semaphore" or "QuorumMutex"
	Read    bool   // of an RWMutex: for reading
	Permits int64  // of a Semaphore; 1 of all others
	Try     bool   // it does not wait for the lock
	Began   time.Time
}

// Grant is how an acquisition came about.
type Grant string

// The ways to an acquisition.
const (
	GrantReply   Grant = "reply"   // the server gave it when it was asked
	GrantMessage Grant = "message" // another process's release handed it over, in a message
	GrantLocal   Grant = "local"   // out of what this process holds already: handed over, shared with a reader, or kept by WithLinger
)

// grants in the order of Lease.by.
var grants = [...]Grant{GrantLocal, GrantReply, GrantMessage}

const (
	byReply   uint8 = 1
	byMessage uint8 = 2
)

// tracing is one acquisition that somebody is told of. Its methods are for nil too: nobody is.
type tracing struct {
	Trace
	held context.Context // what the lock's own context is made from
	told atomic.Bool     // of its end
}

// trace begins the tracing of what ctx asks for.
func (h *handle) trace(ctx context.Context, w want) *tracing {
	if h.opts.tracer == nil {
		return nil
	}
	return h.traceSince(ctx, w, time.Now())
}

func (h *handle) traceSince(ctx context.Context, w want, began time.Time) *tracing {
	if h.opts.tracer == nil {
		return nil
	}
	a := Acquisition{
		Key: h.keys.Lock, Kind: "Mutex", Permits: w.weight, Try: w.try, Began: began,
	}
	switch {
	case h.opts.contest != nil:
		a.Kind = "QuorumMutex"
	case h.kind == protocol.RWMutexKind:
		a.Kind, a.Read = "RWMutex", w.mode == protocol.Reader
	case w.mode == protocol.Permit:
		a.Kind = "Semaphore"
	}
	if t := h.opts.tracer.Acquire(ctx, a); t != nil {
		return &tracing{Trace: t}
	}
	return nil
}

// acquired: l is what was asked for with ctx, and nobody has been given it yet.
func (t *tracing) acquired(ctx context.Context, l *Lease) {
	if t == nil {
		return
	}
	defer func() {
		if t.held == nil { // it has panicked: nobody would ever give l back
			_, _ = l.on.giveBack(context.WithoutCancel(ctx), l)
		}
	}()
	held := t.Acquired(ctx, l, grants[l.by])
	if held == nil {
		panic("valkeysync: Trace.Acquired returned no context: return the one it was given, or one made from it")
	}
	t.held = held
	l.on.lock()
	defer l.on.unlock()
	l.trace = t
	if l.lost != nil { // before it could be told
		l.traceLost(l.lost)
	}
}

func (t *tracing) failed(err error) error {
	if t != nil {
		t.Failed(err)
	}
	return err
}

func (t *tracing) released(err error) {
	if t != nil && !t.told.Swap(true) {
		t.Released(err)
	}
}

// traceLost has the loss told, on a goroutine of its own. The keeper's mutex is held.
func (l *Lease) traceLost(err *LostError) {
	if t := l.trace; t != nil {
		l.on.later(func() { l.on.run(func() { t.released(err) }) })
	}
}
