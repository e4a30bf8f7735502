package valkeysync

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Which acquisition a call without a context ends, where one handle holds several: what a context was given for is
// its owner's, as long as there is another.

func TestAnUnlockWithoutAContextLeavesWhatAContextWasGivenFor(t *testing.T) {
	type pair struct {
		lock       func()
		lockWith   func(ctx context.Context) (context.Context, error)
		unlock     func()
		unlockWith func(ctx context.Context) error
	}
	for name, of := range map[string]func(c *Client) pair{
		"readers": func(c *Client) pair {
			rw := c.RWMutex("orders")
			return pair{rw.RLock, rw.RLockContext, rw.RUnlock, rw.RUnlockContext}
		},
		"tries": func(c *Client) pair {
			rw := c.RWMutex("orders")
			return pair{func() { rw.TryRLock() }, rw.TryRLockContext, rw.RUnlock, rw.RUnlockContext}
		},
		"an owner": func(c *Client) pair {
			m := c.Mutex("orders", WithOwner("o"))
			return pair{m.Lock, m.LockContext, m.Unlock, m.UnlockContext}
		},
		"permits": func(c *Client) pair {
			s := c.Semaphore("orders", 9)
			return pair{
				func() { s.TryAcquire(2) },
				func(ctx context.Context) (context.Context, error) { return s.AcquireContext(ctx, 2) },
				func() { s.Release(2) },
				func(ctx context.Context) error { return s.ReleaseContext(ctx, 2) },
			}
		},
		"a writer's reader": func(c *Client) pair {
			rw := c.RWMutex("orders")
			return pair{rw.RLock, func(ctx context.Context) (context.Context, error) {
				held, err := rw.LockContext(ctx)
				require.NoError(t, err)
				return rw.Downgrade(held)
			}, rw.RUnlock, rw.RUnlockContext}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				p := of(b.client())
				ctx, err := p.lockWith(t.Context())
				require.NoError(t, err)
				p.lock()
				p.unlock()
				require.NoError(t, ctx.Err(), "the older one is somebody else's")
				require.NoError(t, p.unlockWith(ctx))
				require.False(t, b.Exists("orders"))
				require.Panics(t, p.unlock)

				ctx, err = p.lockWith(t.Context())
				require.NoError(t, err)
				p.unlock() // the only one
				require.ErrorIs(t, ctx.Err(), context.Canceled)
			})
		})
	}
}

// An unlock without a context counts for what was lost, whoever calls: it must not open the next holder's lock. Where that
// turns out to have been the next holder's own, because the loser comes with its context, nothing stays locked.
func TestAnUnlockThatCountedForALostLockIsMadeGood(t *testing.T) {
	for name, with := range map[string]func(c *Client) (m sync.Locker, lock func(context.Context) (context.Context, error), unlock func(context.Context) error){
		"mutex": func(c *Client) (sync.Locker, func(context.Context) (context.Context, error), func(context.Context) error) {
			m := c.Mutex("orders")
			return m, m.LockContext, m.UnlockContext
		},
		"readers": func(c *Client) (sync.Locker, func(context.Context) (context.Context, error), func(context.Context) error) {
			rw := c.RWMutex("orders")
			return rw.RLocker(), rw.RLockContext, rw.RUnlockContext
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m, lock, unlock := with(b.client())
				lose := func() context.Context {
					ctx, err := lock(t.Context())
					require.NoError(t, err)
					b.FlushAll()
					leaseOf(t, ctx).hold.verify()
					<-ctx.Done()
					return ctx
				}
				lost := lose()
				m.Lock()
				m.Unlock()
				require.ErrorIs(t, unlock(lost), ErrLeaseLost)
				require.False(t, b.Exists("orders"))
				require.ErrorIs(t, unlock(lost), ErrNotLocked)

				// It was the loser's, so the next holder keeps what it has until its own comes.
				lose()
				m.Lock()
				m.Unlock()
				require.True(t, b.Exists("orders"))
				m.Unlock()
				require.False(t, b.Exists("orders"))

				// Whoever locked without a context afterwards is not meant.
				lost = lose()
				m.Lock()
				m.Unlock()
				m.Unlock()
				require.ErrorIs(t, unlock(lost), ErrNotLocked)
			})
		})
	}
}

func TestADowngradeOfALostLockMakesGoodTheUnlockThatCountedForIt(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		rw := b.client().RWMutex("orders")
		lost, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		b.FlushAll()
		leaseOf(t, lost).hold.verify()
		<-lost.Done()
		rw.Lock()
		rw.Unlock()
		_, err = rw.Downgrade(lost)
		require.ErrorIs(t, err, ErrLeaseLost)
		require.False(t, b.Exists("orders"))
	})
}

func TestAReleaseWithoutAContextTakesPermitsOfAContextLast(t *testing.T) {
	acquire := func(t *testing.T, s *Semaphore, n int64) context.Context {
		ctx, err := s.AcquireContext(t.Context(), n)
		require.NoError(t, err)
		return ctx
	}
	for name, c := range map[string]struct {
		plain   []int64 // acquired without a context, after one of 2 and one of 3 with
		release int64
		left    []int64 // of the two with
	}{
		"just that weight is with a context, and without there is more": {[]int64{3}, 2, []int64{2, 3}},
		"without a context it is in parts":                              {[]int64{1, 1}, 2, []int64{2, 3}},
		"without a context it is too little, and with one just that":    {[]int64{1}, 3, []int64{2, 0}},
		"it takes both": {[]int64{2}, 4, []int64{0, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				s := b.client().Semaphore("api", 20)
				with := []context.Context{acquire(t, s, 2), acquire(t, s, 3)}
				for _, n := range c.plain {
					require.True(t, s.TryAcquire(n))
				}
				s.Release(c.release)
				for i, ctx := range with {
					require.Equal(t, c.left[i], leaseOf(t, ctx).held.Load(), "of number %d", i)
				}
			})
		})
	}
}

func TestAReleaseThatCountedForALostPermitIsMadeGood(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s := b.client().Semaphore("api", 9)
		acquire := func(n int64) { require.NoError(t, s.Acquire(t.Context(), n)) }
		lose := func() context.Context {
			ctx, err := s.AcquireContext(t.Context(), 3)
			require.NoError(t, err)
			b.FlushAll()
			leaseOf(t, ctx).hold.verify()
			<-ctx.Done()
			return ctx
		}
		for _, plain := range [][]int64{{2}, {3}, {1, 4}} { // less than was lost, as much, and more
			lost := lose()
			for _, n := range plain {
				acquire(n)
			}
			for _, n := range plain {
				s.Release(n)
			}
			require.ErrorIs(t, s.ReleaseContext(lost, 4), ErrNotLocked, "it was 3")
			require.True(t, b.Exists("api"))
			require.ErrorIs(t, s.ReleaseContext(lost, 3), ErrLeaseLost)
			require.False(t, b.Exists("api"), "%v", plain)
			require.ErrorIs(t, s.ReleaseContext(lost, 1), ErrNotLocked)
		}

		// It was the loser's, so who came after it keeps what it has until its own release comes.
		lost := lose()
		acquire(2)
		s.Release(3)
		require.True(t, b.Exists("api"))
		s.Release(2)
		require.False(t, b.Exists("api"))

		// Who came later still is not meant.
		acquire(2)
		require.ErrorIs(t, s.ReleaseContext(lost, 3), ErrNotLocked)
		require.True(t, b.Exists("api"))
		s.Release(2)
	})
}
