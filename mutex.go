package valkeysync

import (
	"context"
	"sync"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

var _ sync.Locker = (*Mutex)(nil)

// Mutex is a mutual exclusion lock over processes, with the methods of [sync.Mutex]: at most one
// acquisition of a key is held at a time, over all Clients of all processes. Like sync.Mutex it is safe
// for use by many goroutines, it is not tied to a goroutine (one may lock and another unlock), and it is
// not re-entrant, unless [WithReentrancy] says so. Make it with [Client.Mutex].
//
// Order. Processes get the lock in the order in which they began to wait; so do the goroutines of one
// process. A process with many waiting goroutines has one place in the queue: it hands the lock from one to
// the next for a turn ([WithTurn]), and then takes its place again, behind the others.
//
// Lease. A hold lasts for a lease on the server and is renewed, in the background, for as long as it is
// held. It is lost when no renewal is confirmed until the lease ends (the process was stopped, the network
// or the server was away), when somebody deletes or takes the key, or when the Client is closed. A lost
// lease ends the context that the acquisition gave, before the server can give the lock to another; what
// is done with that context, or checked with [Lease.Valid], is safe. Lock gives no context: who uses Lock
// should give a [WithOnLost], and keep what must not happen twice behind the fencing token.
//
// Handles. Every Mutex for one key is the same lock, but only the Mutex that locked can unlock.
type Mutex struct {
	handle
	mode protocol.Mode
}

// Mutex returns a mutex for the key. It costs nothing until it is used and needs no clean-up. A key that
// is empty or blank, or contains '}' without a hash tag, and an option that cannot be used, are errors
// from the first use: ErrInvalidKey, ErrInvalidOption.
func (c *Client) Mutex(key string, opts ...Option) *Mutex {
	m := new(Mutex)
	m.mode = protocol.Exclusive
	m.init(c, protocol.MutexKind, key, opts)
	if owner := m.opts.owner; owner != "" {
		m.kind, m.mode = protocol.OwnerKind(owner), protocol.Reader // its processes share, as readers do
	}
	return m
}

// Lock locks m. If the lock is in use, it blocks until it is available, however long that takes: what may
// pass (the network, a server that starts, a failover, a server out of memory) is waited out, with a
// warning to the logger.
//
// It panics, with an error, where waiting is no use: ErrClosed, ErrInvalidKey, ErrInvalidOption,
// ErrMismatch, and the server's NOAUTH, WRONGPASS, NOPERM and WRONGTYPE. Use LockContext for an error
// instead.
func (m *Mutex) Lock() { m.mustLock(m.mode) }

// TryLock tries to lock m and reports whether it succeeded. It asks the server once and does not wait for
// the lock; a server that does not answer is waited for, for 2 s at most, logged, and reported as false.
// It panics where Lock does.
func (m *Mutex) TryLock() bool { return m.tryLock(m.mode) }

// Unlock unlocks m. It panics if m is not locked, as sync.Mutex does.
//
// It blocks until the server has answered, for 2 s at most; then it goes on in the background. Nothing is
// renewed any more from the moment it is called, so at the worst the lock lapses with its lease. Whether
// the lease had been lost is not told here but to the logger and to OnLost.
//
// After a lost lease the Mutex may be locked again at once. While an earlier, lost acquisition has not
// been unlocked, Unlock counts for that one, so that a late Unlock never opens the lock of the next holder
// of the same Mutex; what it was meant for instead ends, should the lost one be unlocked with its context after
// all. UnlockContext, with the context that the lock gave, says exactly which is meant. Where more
// than one acquisition of m is held at the same time ([WithOwner]) Unlock is for the oldest that was made without a
// context; for one with a context only where there is none without.
func (m *Mutex) Unlock() { m.mustUnlock("unlock of unlocked mutex") }

// LockContext locks m, and blocks until it has the lock or ctx ends. The context it returns ends, with a
// *LostError as its cause, when the lease is lost, and when m is unlocked or ctx ends; [FromContext] finds
// the [Lease] in it.
//
// What may pass is waited out as in Lock. Errors: a *WaitError around ctx's error, which says who has the
// lock and for how long; ErrClosed, ErrInvalidKey, ErrInvalidOption, ErrMismatch; ErrDeadlock if ctx
// already carries this lock; the server's own (NOPERM, WRONGTYPE, OOM …). After an error nothing is held,
// and what the server may have of it is taken back in the background.
func (m *Mutex) LockContext(ctx context.Context) (context.Context, error) {
	return m.lockContext(ctx, m.mode, false)
}

// TryLockContext is LockContext without the wait: if the lock is in use, or others wait for it, the error
// is a *WaitError that is ErrLocked and says who has it. It asks the server once; if there is no answer it
// tries again, for 2 s at most or until ctx ends.
func (m *Mutex) TryLockContext(ctx context.Context) (context.Context, error) {
	return m.lockContext(ctx, m.mode, true)
}

// UnlockContext unlocks m; where ctx comes from this Mutex's lock, that acquisition and no other. It
// works with a ctx that has ended: then it blocks as Unlock does, otherwise until ctx ends.
//
// Errors: ErrNotLocked if m is not locked; a *LostError (ErrLeaseLost) if the lease was lost before, in
// which case nothing is left to unlock; ctx's error, or the last one of the server or the network, if the
// server has not confirmed it in time: then it goes on in the background, nothing is renewed any more, and
// UnlockContext may be called again to wait for it.
func (m *Mutex) UnlockContext(ctx context.Context) error { return m.unlockContext(ctx) }

// Do runs fn while holding m, with the context that LockContext gives, and unlocks m when fn returns or
// panics. fn is not called without the lock. The error is LockContext's, or fn's, joined with a
// *LostError if the lease was lost before the end.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	return m.do(ctx, m.mode, fn)
}
