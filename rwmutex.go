package valkeysync

import (
	"context"
	"errors"
	"sync"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

var _ sync.Locker = (*RWMutex)(nil)

// RWMutex is a reader/writer mutual exclusion lock over processes, with the methods of [sync.RWMutex]: at
// any time it is held by any number of readers or by one writer. What [Mutex] says of order, lease and
// handles holds here too. Make it with [Client.RWMutex].
//
// Policy, as with sync.RWMutex: a writer that waits holds off new readers, and when a writer leaves, the
// readers that wait then go in together before the next writer, so neither can starve. So a goroutine must
// not read-lock again while it holds a read lock. There is no upgrade from reading to writing: two readers
// that both waited for it would wait for each other for ever. Unlock, lock for writing, and look again.
//
// A process has one place in the queue for its waiting readers and one for its writers.
//
// The readers of one process share one hold on the server, with one lease; every process has its own, so
// the death of one reader cuts no other's. A writer's token is higher than those of all who held before
// it; readers who hold at the same time are in no order among themselves. While readers hold, the plain recipe (SET NX) on the key is
// excluded too.
type RWMutex struct {
	w, r handle
}

// RWMutex returns a reader/writer lock for the key. See [Client.Mutex] for the key and the options.
func (c *Client) RWMutex(key string, opts ...Option) *RWMutex {
	rw := new(RWMutex)
	rw.w.init(c, protocol.RWMutexKind, key, opts)
	rw.r.init(c, protocol.RWMutexKind, key, opts)
	rw.w.noOwner("RWMutex", key)
	rw.r.noOwner("RWMutex", key)
	return rw
}

// Lock locks rw for writing. It blocks and panics as [Mutex.Lock] does.
func (rw *RWMutex) Lock() { rw.w.mustLock(protocol.Exclusive) }

// TryLock tries to lock rw for writing, as [Mutex.TryLock] does.
func (rw *RWMutex) TryLock() bool { return rw.w.tryLock(protocol.Exclusive) }

// Unlock unlocks rw for writing, as [Mutex.Unlock] does. It panics if rw is not locked for writing.
func (rw *RWMutex) Unlock() { rw.w.mustUnlock("Unlock of unlocked RWMutex") }

// LockContext locks rw for writing, as [Mutex.LockContext] does. ErrDeadlock too if ctx carries a read
// lock of rw.
func (rw *RWMutex) LockContext(ctx context.Context) (context.Context, error) {
	return rw.w.lockContext(ctx, protocol.Exclusive, false)
}

// TryLockContext tries to lock rw for writing, as [Mutex.TryLockContext] does.
func (rw *RWMutex) TryLockContext(ctx context.Context) (context.Context, error) {
	return rw.w.lockContext(ctx, protocol.Exclusive, true)
}

// UnlockContext unlocks rw for writing, as [Mutex.UnlockContext] does.
func (rw *RWMutex) UnlockContext(ctx context.Context) error { return rw.w.unlockContext(ctx) }

// Do runs fn while holding rw for writing, as [Mutex.Do] does.
func (rw *RWMutex) Do(ctx context.Context, fn func(ctx context.Context) error) error {
	return rw.w.do(ctx, protocol.Exclusive, fn)
}

// RLock locks rw for reading. It blocks while a writer holds it, or waits for it, and panics as
// [Mutex.Lock] does.
func (rw *RWMutex) RLock() { rw.r.mustLock(protocol.Reader) }

// TryRLock tries to lock rw for reading and reports whether it succeeded; see [Mutex.TryLock].
func (rw *RWMutex) TryRLock() bool { return rw.r.tryLock(protocol.Reader) }

// RUnlock undoes one RLock, the oldest, as [Mutex.Unlock] does: a read lock with a context only where there is none
// without. It panics if rw is not locked for reading.
func (rw *RWMutex) RUnlock() { rw.r.mustUnlock("RUnlock of unlocked RWMutex") }

// RLockContext locks rw for reading, as [Mutex.LockContext] does. ErrDeadlock if ctx carries rw's write
// lock.
func (rw *RWMutex) RLockContext(ctx context.Context) (context.Context, error) {
	return rw.r.lockContext(ctx, protocol.Reader, false)
}

// TryRLockContext tries to lock rw for reading, as [Mutex.TryLockContext] does.
func (rw *RWMutex) TryRLockContext(ctx context.Context) (context.Context, error) {
	return rw.r.lockContext(ctx, protocol.Reader, true)
}

// RUnlockContext undoes one read lock, the one that ctx carries if it does, else the one that RUnlock would; see
// [Mutex.UnlockContext].
func (rw *RWMutex) RUnlockContext(ctx context.Context) error { return rw.r.unlockContext(ctx) }

// RDo runs fn while holding rw for reading, as [Mutex.Do] does.
func (rw *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context) error) error {
	return rw.r.do(ctx, protocol.Reader, fn)
}

// RLocker returns a [sync.Locker] whose Lock and Unlock are rw's RLock and RUnlock.
func (rw *RWMutex) RLocker() sync.Locker { return (*rlocker)(rw) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }

// Downgrade turns the write lock into a read lock without letting another writer in between, and lets the
// readers in that wait. ctx may be the one that LockContext gave; it ends with the write lock. The returned
// context carries the read lock: it is RLockContext's, made from the context that LockContext was given,
// or from ctx if that is another.
//
// It blocks until the server has answered or ctx ends. Errors: ErrNotLocked if rw is not locked for
// writing; a *LostError if the lease was lost; ctx's error or the server's. After an error rw is not held,
// for reading or writing, and is given back in the background. But where it is entered more than once
// (WithReentrancy) the error is ErrDeadlock, and the write lock stays as it is.
func (rw *RWMutex) Downgrade(ctx context.Context) (context.Context, error) {
	if rw.w.err != nil {
		return nil, rw.w.err
	}
	l := rw.w.take(ctx)
	if l == nil {
		return nil, rw.w.makeGood(ctx)
	}
	parent := ctx
	if c, ok := ctx.Value(leaseKey{}).(*leaseContext); ok && c.lease == l {
		parent = c.parent // ending the write lock ends its context, and must not end the read lock's
	}
	w := want{mode: protocol.Reader, weight: 1, opts: rw.r.opts}
	trace := rw.r.trace(parent, w)
	reader, err := l.gate.downgrade(parent, l, w)
	if errors.Is(err, ErrDeadlock) {
		rw.w.keep(l, l.bound)
	} else {
		l.trace.released(err)
	}
	if err == nil && rw.r.opts.replicas > 0 {
		err = reader.gate.replicate(parent, reader)
	}
	if err != nil {
		return nil, trace.failed(err)
	}
	trace.acquired(parent, reader)
	rw.r.keep(reader, true)
	return reader.context(parent), nil
}
