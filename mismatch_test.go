package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// use is one way to use a key.
type use struct {
	name   string // of the primitive, in errors
	how    string
	lock   func(c *Client, ctx context.Context) (context.Context, error)
	try    func(c *Client, ctx context.Context) (context.Context, error)
	unlock func(c *Client)
}

// uses are all primitives on one key, from any Client.
func uses() []use {
	handles := map[*Client]*struct {
		m      *Mutex
		rw     *RWMutex
		s3, s5 *Semaphore
	}{}
	of := func(c *Client) *struct {
		m      *Mutex
		rw     *RWMutex
		s3, s5 *Semaphore
	} {
		if handles[c] == nil {
			handles[c] = &struct {
				m      *Mutex
				rw     *RWMutex
				s3, s5 *Semaphore
			}{c.Mutex("k"), c.RWMutex("k"), c.Semaphore("k", 3), c.Semaphore("k", 5)}
		}
		return handles[c]
	}
	type ctx = context.Context
	return []use{
		{"Mutex", "", func(c *Client, x ctx) (ctx, error) { return of(c).m.LockContext(x) },
			func(c *Client, x ctx) (ctx, error) { return of(c).m.TryLockContext(x) }, func(c *Client) { of(c).m.Unlock() }},
		{"RWMutex", " (writer)", func(c *Client, x ctx) (ctx, error) { return of(c).rw.LockContext(x) },
			func(c *Client, x ctx) (ctx, error) { return of(c).rw.TryLockContext(x) }, func(c *Client) { of(c).rw.Unlock() }},
		{"RWMutex", " (reader)", func(c *Client, x ctx) (ctx, error) { return of(c).rw.RLockContext(x) },
			func(c *Client, x ctx) (ctx, error) { return of(c).rw.TryRLockContext(x) }, func(c *Client) { of(c).rw.RUnlock() }},
		{"Semaphore of size 3", "", func(c *Client, x ctx) (ctx, error) { return of(c).s3.AcquireContext(x, 1) },
			func(c *Client, x ctx) (ctx, error) { return of(c).s3.TryAcquireContext(x, 1) }, func(c *Client) { of(c).s3.Release(1) }},
		{"Semaphore of size 5", "", func(c *Client, x ctx) (ctx, error) { return of(c).s5.AcquireContext(x, 5) },
			func(c *Client, x ctx) (ctx, error) { return of(c).s5.TryAcquireContext(x, 5) }, func(c *Client) { of(c).s5.Release(5) }},
	}
}

// A key serves one kind of primitive, and one size, at a time: as long as somebody holds it or waits for it.
// The error names both, in the same process and in another; and as soon as the key is free, any may have it.
func TestAKeyServesOneKindAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		a, other := b.client(), b.client()
		all := uses()
		for _, first := range all {
			for _, second := range all {
				if first.name == second.name {
					continue
				}
				for _, c := range []*Client{a, other} {
					refused := func(when string) {
						for _, get := range []func(*Client, context.Context) (context.Context, error){second.lock, second.try} {
							_, err := get(c, t.Context())
							require.ErrorIs(t, err, ErrMismatch, "%s%s, then %s%s, %s", first.name, first.how, second.name, second.how, when)
							require.ErrorContains(t, err, `"k" is in use by a `+first.name+", this is a "+second.name)
						}
					}
					_, err := first.lock(a, t.Context())
					require.NoError(t, err)
					refused("held")
					first.unlock(a)

					require.NoError(t, b.Set("k", "another program"))
					ctx, stop := context.WithCancel(t.Context())
					waiting := async(func() error { _, err := first.lock(a, ctx); return err })
					synctest.Wait()
					refused("waited for")
					stop()
					require.ErrorIs(t, <-waiting, context.Canceled)
					synctest.Wait()
					b.Del("k")

					_, err = second.try(c, t.Context())
					require.NoError(t, err, "free")
					second.unlock(c)
				}
			}
		}
	})
}

// The end of a lease, and an operator's DEL, free a key as an unlock does.
func TestAKeyIsFreeForAnyKindOnceTheLeaseIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		dead, _, line := b.lined(WithLease(time.Second), WithCrashDetection(0))
		c := b.client()
		require.True(t, dead.Semaphore("k", 3).TryAcquire(1))
		line.cut(true, false)
		require.ErrorIs(t, c.Semaphore("k", 4).Acquire(t.Context(), 1), ErrMismatch)
		time.Sleep(2 * time.Second)
		require.True(t, c.Semaphore("k", 4).TryAcquire(1))

		// The marker alone says nothing of who holds.
		b.Del("k")
		_, err := c.Semaphore("k", 3).TryAcquireContext(t.Context(), 1)
		require.ErrorIs(t, err, ErrMismatch)
		_, err = c.RWMutex("k").TryRLockContext(t.Context())
		require.ErrorIs(t, err, ErrMismatch)
		_, err = c.RWMutex("k").TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrMismatch)
	})
}
