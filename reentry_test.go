package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The hold is counted up, without the server, and the last unlock gives it back, whichever handle it is
// called on and in whichever order.
func TestReentryCountsUpAndTheLastUnlockGivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		c := newClient(t, tap, WithReentrancy())
		m, handle, other := c.Mutex("orders"), c.Mutex("orders"), b.client().Mutex("orders")
		outer, err := m.LockContext(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		before := tap.total()

		inner, err := m.LockContext(outer)
		require.NoError(t, err)
		short, cancel := context.WithTimeout(inner, time.Second)
		defer cancel()
		innermost, err := handle.TryLockContext(short)
		require.NoError(t, err)
		require.Equal(t, leaseOf(t, outer).Token(), leaseOf(t, innermost).Token())
		require.NoError(t, m.Do(innermost, func(ctx context.Context) error { return ctx.Err() }))
		require.Equal(t, before, tap.total(), "nothing was asked of the server")

		waits := lockAsync(t.Context(), other)
		require.NoError(t, m.UnlockContext(outer), "any order")
		require.NoError(t, handle.UnlockContext(innermost))
		notYet(t, waits)
		require.NoError(t, inner.Err())
		require.NoError(t, m.UnlockContext(inner))
		require.NoError(t, other.UnlockContext(now(t, waits)))
		require.ErrorIs(t, m.UnlockContext(inner), ErrNotLocked)
		require.ErrorIs(t, handle.UnlockContext(inner), ErrNotLocked)
		require.Error(t, outer.Err())
	})
}

// Goroutines share the ownership that their context carries; others do not.
func TestReentryFollowsTheContextNotTheGoroutine(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := b.client(WithReentrancy()).Mutex("orders")
		outer, err := m.LockContext(t.Context())
		require.NoError(t, err)
		inner := now(t, lockAsync(outer, m))
		stranger := lockAsync(t.Context(), m)
		notYet(t, stranger)
		require.NoError(t, m.UnlockContext(inner))
		notYet(t, stranger)
		require.NoError(t, m.UnlockContext(outer))
		require.NoError(t, m.UnlockContext(now(t, stranger)))
	})
}

func TestReentryOfAnRWMutex(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		rw, other := b.client().RWMutex("config", WithReentrancy()), b.client().RWMutex("config")
		w, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		r, err := rw.RLockContext(w)
		require.NoError(t, err, "read within write")
		ww, err := rw.LockContext(r)
		require.NoError(t, err, "and write within that")
		_, err = rw.Downgrade(ww)
		require.ErrorIs(t, err, ErrDeadlock)
		require.NoError(t, rw.UnlockContext(ww))
		require.NoError(t, rw.RUnlockContext(r))
		require.False(t, other.TryRLock())
		require.NoError(t, rw.UnlockContext(w))

		r, err = rw.RLockContext(t.Context())
		require.NoError(t, err)
		writer := async(func() error { other.Lock(); return nil })
		synctest.Wait()
		rr, err := rw.RLockContext(r)
		require.NoError(t, err, "read within read while a writer waits")
		_, err = rw.LockContext(rr)
		require.ErrorIs(t, err, ErrDeadlock, "write within read")
		require.NoError(t, rw.RUnlockContext(rr))
		require.NoError(t, rw.RUnlockContext(r))
		require.NoError(t, <-writer)
		other.Unlock()
	})
}

// Every entry hears of a lost lease, and what is locked after it is a new hold.
func TestReentryAfterALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client(WithReentrancy())
		m := c.Mutex("orders")
		outer, err := m.LockContext(t.Context())
		require.NoError(t, err)
		inner, err := m.LockContext(outer)
		require.NoError(t, err)
		require.NoError(t, b.client().ForceUnlock(t.Context(), "orders"))
		<-inner.Done()
		_, err = m.LockContext(inner)
		require.ErrorIs(t, err, ErrLeaseLost, "the context is over")
		again, err := m.LockContext(context.WithoutCancel(inner))
		require.NoError(t, err)
		require.Greater(t, leaseOf(t, again).Token(), leaseOf(t, inner).Token())
		require.ErrorIs(t, m.UnlockContext(inner), ErrLeaseLost)
		require.ErrorIs(t, m.UnlockContext(outer), ErrLeaseLost)
		require.NoError(t, again.Err())
		require.NoError(t, m.UnlockContext(again))
	})
}

func TestReentryIsNotForASemaphore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		require.ErrorIs(t, b.client().Semaphore("api", 2, WithReentrancy()).Acquire(t.Context(), 1), ErrInvalidOption)
		s := b.client(WithReentrancy()).Semaphore("api", 1)
		ctx, err := s.AcquireContext(t.Context(), 1)
		require.NoError(t, err)
		_, err = s.TryAcquireContext(ctx, 1)
		require.ErrorIs(t, err, ErrLocked, "each permit is one")
		s.Release(1)
	})
}
