package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The lost-reply matrix for readers and permits. See matrix_test.go.

// shared is one scenario with one fault: far is behind the proxy, near is not.
type shared struct {
	t         *testing.T
	s         *testserver.Server
	key       string
	rule      func() *proxy.Rule // arms the fault
	far, near *Client
}

// got is what a goroutine that acquires in the background comes to.
func (c *shared) start(get func(ctx context.Context) (context.Context, error)) (ctx <-chan context.Context, stop func() error) {
	in := make(chan context.Context, 1)
	end, cancel := context.WithCancel(context.Background())
	done := async(func() error {
		held, err := get(end)
		if err == nil {
			in <- held
		}
		return err
	})
	return in, func() error { cancel(); return <-done }
}

// in waits for what start promised.
func (c *shared) in(got <-chan context.Context) context.Context {
	c.t.Helper()
	select {
	case held := <-got:
		require.NoError(c.t, held.Err())
		return held
	case <-time.After(soon):
		c.t.Fatalf("does not get in within %v", soon)
		return nil
	}
}

// done waits for a call that gives something back.
func (c *shared) done(what string, err func() error) {
	c.t.Helper()
	var got error
	within(c.t, 2*soon, what, func() {
		for {
			// On a busy machine it may be found out late that a connection is dead: it is asked for again.
			if got = err(); !errors.Is(got, context.DeadlineExceeded) {
				return
			}
		}
	})
	require.NoError(c.t, got, what)
}

const permits = 5

var sharedMatrix = []struct {
	name, script string
	run          func(c *shared)
}{
	{"reader uncontended", "acquire", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		fired := c.rule().Fired()
		got, _ := c.start(far.RLockContext)
		r := c.in(got)
		happened(c.t, fired)
		require.True(c.t, near.TryRLock())
		require.False(c.t, near.TryLock())
		near.RUnlock()
		c.done("RUnlock", func() error { return far.RUnlockContext(r) })
	}},
	{"reader that queues", "acquire", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		near.Lock()
		fired := c.rule().Fired()
		got, _ := c.start(far.RLockContext)
		happened(c.t, fired)
		queued(c.t, c.s, c.near, c.key, 1)
		near.Unlock()
		r := c.in(got)
		c.done("RUnlock", func() error { return far.RUnlockContext(r) })
	}},
	{"reader that gives up", "leave", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		near.Lock()
		_, stop := c.start(far.RLockContext)
		queued(c.t, c.s, c.near, c.key, 1)
		fired := c.rule().Fired()
		require.ErrorIs(c.t, stop(), context.Canceled)
		happened(c.t, fired)
		near.Unlock()
		eventually(c.t, soon, "free", near.TryLock)
		near.Unlock()
	}},
	{"reader released", "release", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		far.RLock()
		got, _ := c.start(near.LockContext)
		queued(c.t, c.s, c.near, c.key, 1)
		fired := c.rule().Fired()
		c.done("RUnlock", func() error { return far.RUnlockContext(contextOf(soon)) })
		happened(c.t, fired)
		w := c.in(got)
		c.done("Unlock", func() error { return near.UnlockContext(w) })
	}},
	{"reader renewed", "renew", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		fired := c.rule().Fired()
		r, err := far.RLockContext(context.Background())
		require.NoError(c.t, err)
		c.renewed(r, fired)
		require.False(c.t, near.TryLock())
		c.done("RUnlock", func() error { return far.RUnlockContext(r) })
	}},
	{"writer that becomes a reader", "release", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		w, err := far.LockContext(context.Background())
		require.NoError(c.t, err)
		fired := c.rule().Fired()
		got, _ := c.start(func(context.Context) (context.Context, error) { return far.Downgrade(w) })
		r := c.in(got)
		happened(c.t, fired)
		require.Greater(c.t, tokenOf(c.t, r), tokenOf(c.t, w))
		require.True(c.t, near.TryRLock())
		require.False(c.t, near.TryLock())
		near.RUnlock()
		c.done("RUnlock", func() error { return far.RUnlockContext(r) })
	}},
	{"writer released to a reader here", "release", func(c *shared) {
		far, near := c.far.RWMutex(c.key), c.near.RWMutex(c.key)
		w, err := far.LockContext(context.Background())
		require.NoError(c.t, err)
		here, _ := c.start(far.RLockContext)
		there, _ := c.start(near.RLockContext)
		queued(c.t, c.s, c.near, c.key, 1)
		fired := c.rule().Fired()
		c.done("Unlock", func() error { return far.UnlockContext(w) })
		happened(c.t, fired)
		r := c.in(here)
		c.done("RUnlock", func() error { return near.RUnlockContext(c.in(there)) })
		c.done("RUnlock", func() error { return far.RUnlockContext(r) })
	}},
	{"permits uncontended", "acquire", func(c *shared) {
		far, near := c.far.Semaphore(c.key, permits), c.near.Semaphore(c.key, permits)
		fired := c.rule().Fired()
		got, _ := c.start(func(ctx context.Context) (context.Context, error) { return far.AcquireContext(ctx, 3) })
		p := c.in(got)
		happened(c.t, fired)
		require.EqualValues(c.t, 2, free(c.t, near), "once, not twice")
		c.done("Release", func() error { return far.ReleaseContext(p, 3) })
	}},
	{"permits that queue", "acquire", func(c *shared) {
		far, near := c.far.Semaphore(c.key, permits), c.near.Semaphore(c.key, permits)
		require.True(c.t, near.TryAcquire(4))
		fired := c.rule().Fired()
		got, _ := c.start(func(ctx context.Context) (context.Context, error) { return far.AcquireContext(ctx, 3) })
		happened(c.t, fired)
		queued(c.t, c.s, c.near, c.key, 1)
		near.Release(4)
		p := c.in(got)
		require.EqualValues(c.t, 2, free(c.t, near))
		c.done("Release", func() error { return far.ReleaseContext(p, 3) })
	}},
	{"permits given up", "leave", func(c *shared) {
		far, near := c.far.Semaphore(c.key, permits), c.near.Semaphore(c.key, permits)
		require.True(c.t, near.TryAcquire(4))
		_, stop := c.start(func(ctx context.Context) (context.Context, error) { return far.AcquireContext(ctx, 3) })
		queued(c.t, c.s, c.near, c.key, 1)
		fired := c.rule().Fired()
		require.ErrorIs(c.t, stop(), context.Canceled)
		happened(c.t, fired)
		near.Release(4)
		eventually(c.t, soon, "all there", func() bool { return free(c.t, near) == permits })
	}},
	{"permits released", "release", func(c *shared) {
		far, near := c.far.Semaphore(c.key, permits), c.near.Semaphore(c.key, permits)
		require.True(c.t, far.TryAcquire(3))
		fired := c.rule().Fired()
		c.done("Release", func() error { return far.ReleaseContext(contextOf(soon), 3) })
		happened(c.t, fired)
		require.EqualValues(c.t, permits, free(c.t, near))
	}},
	{"permits released in part", "release", func(c *shared) {
		far, near := c.far.Semaphore(c.key, permits), c.near.Semaphore(c.key, permits)
		require.True(c.t, far.TryAcquire(4))
		fired := c.rule().Fired()
		c.done("Release", func() error { return far.ReleaseContext(contextOf(soon), 1) })
		happened(c.t, fired)
		require.EqualValues(c.t, 2, free(c.t, near))
		c.done("Release", func() error { return far.ReleaseContext(contextOf(soon), 2) })
		require.EqualValues(c.t, 4, free(c.t, near))
		c.done("Release", func() error { return far.ReleaseContext(contextOf(soon), 1) })
		require.EqualValues(c.t, permits, free(c.t, near))
	}},
	{"permits renewed", "renew", func(c *shared) {
		far, near := c.far.Semaphore(c.key, permits), c.near.Semaphore(c.key, permits)
		fired := c.rule().Fired()
		p, err := far.AcquireContext(context.Background(), 4)
		require.NoError(c.t, err)
		c.done("Release", func() error { return far.ReleaseContext(p, 1) })
		c.renewed(p, fired)
		require.EqualValues(c.t, 2, free(c.t, near))
		c.done("Release", func() error { return far.ReleaseContext(p, 3) })
	}},
	{"size changed", "resize", func(c *shared) {
		far, near := c.far.Semaphore(c.key, 9), c.near.Semaphore(c.key, permits)
		require.True(c.t, near.TryAcquire(3))
		fired := c.rule().Fired()
		eventually(c.t, soon, "resized", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			return far.Resize(ctx) == nil
		})
		happened(c.t, fired)
		require.False(c.t, near.TryAcquire(1))
		require.EqualValues(c.t, 6, free(c.t, c.near.Semaphore(c.key, 9)))
		near.Release(3)
	}},
}

// contextOf is a context of its own for one call.
func contextOf(limit time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// renewed waits until the fault has fired and the lease was renewed nevertheless.
func (c *shared) renewed(held context.Context, fired <-chan struct{}) {
	c.t.Helper()
	happened(c.t, fired)
	l := leaseOf(c.t, held)
	first := l.Until()
	eventually(c.t, soon, "renewed", func() bool { return l.Until().After(first) })
	require.NoError(c.t, held.Err())
}

// Not parallel: it needs both cores, and its requests have short limits.
func TestEveryRequestOfReadersAndPermitsMayBeLostOrLate(t *testing.T) {
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		digests := map[string]string{}
		for name, source := range protocol.Sources() {
			digest, err := ptr(command(t, s, "SCRIPT", "LOAD", source)).ToString()
			require.NoError(t, err)
			digests[name] = digest
		}
		crash := WithCrashDetection(10 * time.Second) // a machine may stand still for a while; nobody dies here
		near := on(t, s, crash, WithLease(2*soon))
		var cells []sub
		for _, scenario := range sharedMatrix {
			for _, f := range faults {
				key := fmt.Sprintf("%s: %s", scenario.name, f.name)
				p := proxy.Start(t, s.Addr())
				lease := 2 * soon // so that a hold left behind does not lapse before it is found
				if scenario.script == "renew" {
					lease = 6 * time.Second
				}
				far := through(t, s, p, crash, WithLease(lease))
				cells = append(cells, sub{key, func(t *testing.T) {
					scenario.run(&shared{
						t: t, s: s, key: key, far: far, near: near,
						rule: func() *proxy.Rule { return p.On(digests[scenario.script], f.action) },
					})
					eventually(t, soon, "the late request has come", func() bool { return p.Conns() <= 2 })
					nothingLeft(t, s, key)
					require.Empty(t, far.Stats().Lost)
				}})
			}
		}
		together(t, cells...)
		require.Empty(t, near.Stats().Lost)
	})
}
