package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnlockOfWhatIsNotLockedPanicsAndAsksNobody(t *testing.T) {
	for name, misuse := range map[string]func(t *testing.T, c *Client) (unlock func()){
		"never locked": func(_ *testing.T, c *Client) func() { return c.Mutex("orders").Unlock },
		"twice": func(_ *testing.T, c *Client) func() {
			m := c.Mutex("orders")
			m.Lock()
			m.Unlock()
			return m.Unlock
		},
		"by another handle": func(_ *testing.T, c *Client) func() {
			c.Mutex("orders").Lock()
			return c.Mutex("orders").Unlock
		},
		"locked for writing, unlocked for reading": func(_ *testing.T, c *Client) func() {
			rw := c.RWMutex("rw")
			rw.Lock()
			return rw.RUnlock
		},
		"after a try that found it taken": func(t *testing.T, c *Client) func() {
			c.Mutex("orders").Lock()
			m := c.Mutex("orders")
			require.False(t, m.TryLock())
			return m.Unlock
		},
		"after a wait that was given up": func(t *testing.T, c *Client) func() {
			c.Mutex("orders").Lock()
			m := c.Mutex("orders")
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := m.LockContext(ctx)
			require.Error(t, err)
			return m.Unlock
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				wire := b.tap()
				c := newClient(t, wire)
				unlock := misuse(t, c)
				synctest.Wait()
				asked := wire.total()
				require.Panics(t, unlock)
				synctest.Wait()
				require.Equal(t, asked, wire.total())
			})
		})
	}
}

func TestUnlockContextOfWhatIsNotLockedIsErrNotLocked(t *testing.T) {
	for name, misuse := range map[string]func(t *testing.T, c *Client, ctx context.Context) error{
		"never locked": func(_ *testing.T, c *Client, ctx context.Context) error {
			return c.Mutex("orders").UnlockContext(ctx)
		},
		"twice": func(t *testing.T, c *Client, ctx context.Context) error {
			m := c.Mutex("orders")
			held, err := m.LockContext(ctx)
			require.NoError(t, err)
			require.NoError(t, m.UnlockContext(held))
			return m.UnlockContext(held)
		},
		"twice, and another goroutine has it meanwhile": func(t *testing.T, c *Client, ctx context.Context) error {
			m := c.Mutex("orders")
			held, err := m.LockContext(ctx)
			require.NoError(t, err)
			require.NoError(t, m.UnlockContext(held))
			m.Lock()
			defer m.Unlock() // would panic if it were open
			return m.UnlockContext(held)
		},
		"twice, by the context of another lock inside": func(t *testing.T, c *Client, ctx context.Context) error {
			outer, inner := c.Mutex("orders"), c.Mutex("other")
			held, err := outer.LockContext(ctx)
			require.NoError(t, err)
			both, err := inner.LockContext(held)
			require.NoError(t, err)
			require.NoError(t, inner.UnlockContext(both))
			require.NoError(t, outer.UnlockContext(both))
			outer.Lock()
			defer outer.Unlock()
			return outer.UnlockContext(both)
		},
		"with the context of another handle": func(t *testing.T, c *Client, ctx context.Context) error {
			m := c.Mutex("orders")
			held, err := m.LockContext(ctx)
			require.NoError(t, err)
			defer m.Unlock()
			return c.Mutex("orders").UnlockContext(held)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				require.Equal(t, ErrNotLocked, misuse(t, b.client(), t.Context()))
				require.False(t, b.Exists("orders"))
			})
		})
	}
}

func TestOneGoroutineMayLockAndAnotherUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := b.client().Mutex("orders")
		m.Lock()
		go m.Unlock()
		synctest.Wait()
		require.True(t, m.TryLock())
		ctx := context.Background()
		m.Unlock()
		held, err := m.LockContext(ctx)
		require.NoError(t, err)
		go func() { assert.NoError(t, m.UnlockContext(held)) }()
		synctest.Wait()
		require.Error(t, held.Err())
		require.True(t, m.TryLock())
		m.Unlock()
	})
}

func TestOneMutexIsSharedByManyGoroutines(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := b.client().Mutex("orders")
		n, done := 0, make(chan struct{})
		for range 100 {
			go func() {
				for range 5 {
					m.Lock()
					n++ // not atomic: the race detector is the judge
					m.Unlock()
				}
				done <- struct{}{}
			}()
		}
		for range 100 {
			<-done
		}
		require.Equal(t, 500, n)
	})
}

func TestLockingWhatTheContextCarriesIsErrDeadlock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		m := c.Mutex("orders")
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		for _, again := range []*Mutex{m, c.Mutex("orders")} {
			_, err = again.LockContext(ctx)
			require.ErrorIs(t, err, ErrDeadlock)
			require.ErrorContains(t, err, `carries "`)
			_, err = again.TryLockContext(context.WithoutCancel(ctx))
			require.ErrorIs(t, err, ErrDeadlock)
			require.ErrorContains(t, err, `carries "`)
		}
		other := lockAsync(t.Context(), m)
		require.NoError(t, m.UnlockContext(ctx))
		now(t, other)
		again := lockAsync(context.WithoutCancel(ctx), m) // waits: what ctx carries is not held any more
		notYet(t, again)
		m.Unlock()
		require.NoError(t, m.UnlockContext(now(t, again)))
	})
}

func TestMisuseLeavesTheLockUsable(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		m := c.Mutex("orders")
		var nobody context.Context
		require.Panics(t, func() { _, _ = m.LockContext(nobody) })
		require.Panics(t, func() { _ = m.Do(t.Context(), nil) })
		require.True(t, m.TryLock())
		require.Panics(t, func() { _ = m.UnlockContext(nobody) })
		m.Unlock()
		require.False(t, b.Exists("orders"))
	})
}

func TestAKeyOrAnOptionThatCannotBeUsedIsToldByEveryCall(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		c := newClient(t, wire)
		asked := wire.total()
		for _, bad := range []struct {
			m   *Mutex
			err error
		}{
			{c.Mutex(""), ErrInvalidKey},
			{c.Mutex(" \n"), ErrInvalidKey},
			{c.Mutex("a}b"), ErrInvalidKey},
			{c.Mutex("orders", WithLease(time.Millisecond)), ErrInvalidOption},
			{c.Mutex("orders", WithPrefix("p:")), ErrInvalidOption},
		} {
			_, err := bad.m.LockContext(t.Context())
			require.ErrorIs(t, err, bad.err)
			_, err = bad.m.TryLockContext(t.Context())
			require.ErrorIs(t, err, bad.err)
			require.ErrorIs(t, bad.m.UnlockContext(t.Context()), bad.err)
			require.ErrorIs(t, bad.m.Do(t.Context(), func(context.Context) error { panic("called") }), bad.err)
			for _, f := range []func(){bad.m.Lock, func() { bad.m.TryLock() }} {
				func() {
					defer func() {
						err, _ := recover().(error)
						require.ErrorIs(t, err, bad.err, "the panic is the error")
					}()
					f()
				}()
			}
			require.Panics(t, bad.m.Unlock)
		}
		require.Equal(t, asked, wire.total())
	})
}

func TestUnlocksThatAreNeverConfirmedDoNotPileUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		for range 50 {
			m.Lock()
			wire.always("release", loseRequest)
			m.Unlock()
			wire.always("release", nil)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		require.LessOrEqual(t, len(m.rare().pending), 2)
	})
}
