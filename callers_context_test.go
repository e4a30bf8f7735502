package valkeysync

import (
	"context"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// A caller's context may be one that a lock gave, of this key or another: what it is asked it may answer only once it
// has that lock's mutex. Under a mutex of ours nothing is asked of it: two goroutines would wait for each other, or one
// for itself.

// A logger is somebody else's too, and may be slow.

// released looks whether the mutex is free.
func released(t *testing.T, mu *sync.Mutex) {
	t.Helper()
	for range 1 << 20 { // others may have it for a moment
		if mu.TryLock() {
			mu.Unlock()
			return
		}
		runtime.Gosched()
	}
	t.Error("called under the mutex")
}

// watchful is a context that looks whether the mutex is free, whatever it is asked.
type watchful struct {
	context.Context
	t  *testing.T
	mu *sync.Mutex
}

func (c watchful) look() {
	c.t.Helper()
	released(c.t, c.mu)
}

func (c watchful) Err() error                  { c.look(); return c.Context.Err() }
func (c watchful) Done() <-chan struct{}       { c.look(); return c.Context.Done() }
func (c watchful) Deadline() (time.Time, bool) { c.look(); return c.Context.Deadline() }
func (c watchful) Value(key any) any           { c.look(); return c.Context.Value(key) }

func TestACallersContextIsNotAskedUnderAGatesMutex(t *testing.T) {
	for name, f := range map[string]func(t *testing.T, b *bubble, wire *tap, c *Client, ctx context.Context, cancel func()){
		"a lock that is free": func(t *testing.T, _ *bubble, _ *tap, c *Client, ctx context.Context, _ func()) {
			m := c.Mutex("k")
			held, err := m.LockContext(ctx)
			require.NoError(t, err)
			require.NoError(t, m.UnlockContext(held))
		},
		"it ends while one waits": func(t *testing.T, b *bubble, _ *tap, c *Client, ctx context.Context, cancel func()) {
			b.peer("p", "k").hold("1")
			got := lockAsync(ctx, c.Mutex("k"))
			cancel()
			require.ErrorIs(t, (<-got).err, context.Canceled)
		},
		"it has ended by the time of the grant": func(t *testing.T, _ *bubble, wire *tap, c *Client, ctx context.Context, cancel func()) {
			wire.on("acquire", before(cancel))
			_, err := c.Mutex("k").LockContext(ctx)
			require.ErrorIs(t, err, context.Canceled)
		},
		"it ends during a try": func(t *testing.T, _ *bubble, wire *tap, c *Client, ctx context.Context, cancel func()) {
			wire.on("acquire", before(cancel))
			_, err := c.Mutex("k").TryLockContext(ctx)
			require.ErrorIs(t, err, context.Canceled)
		},
		"it ends during a downgrade": func(t *testing.T, _ *bubble, wire *tap, c *Client, ctx context.Context, cancel func()) {
			rw := c.RWMutex("k")
			held, err := rw.LockContext(ctx)
			require.NoError(t, err)
			wire.on("release", before(cancel))
			_, err = rw.Downgrade(held)
			require.ErrorIs(t, err, context.Canceled)
		},
		"it ends while several are locked": func(t *testing.T, _ *bubble, wire *tap, c *Client, ctx context.Context, cancel func()) {
			wire.on("acquire_all", before(cancel))
			_, err := c.LockAll(ctx, "k", "k2")
			require.ErrorIs(t, err, context.Canceled)
		},
		"it ends during an unlock": func(t *testing.T, _ *bubble, wire *tap, c *Client, ctx context.Context, cancel func()) {
			m := c.Mutex("k")
			m.Lock()
			wire.on("release", func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
				cancel()
				return slow(time.Second, 0)(ctx, run)
			})
			require.ErrorIs(t, m.UnlockContext(ctx), context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				wire := b.tap()
				c := newClient(t, wire, WithLogger(quiet))
				h := &c.Mutex("k").handle
				if name == "it ends during a downgrade" {
					h = &c.RWMutex("k").w
				}
				g, err := c.enter(h.kind, &h.keys) // the gate that it will be
				require.NoError(t, err)
				defer c.leave(g)
				within, cancel := context.WithCancel(t.Context())
				defer cancel()
				f(t, b, wire, c, watchful{within, t, &g.mu}, cancel)
				synctest.Wait()
			})
		})
	}
}

func TestACallersContextIsNotAskedUnderTheMutexOfALockOnSeveralServers(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party(WithLogger(quiet))
		m := p.Mutex("k")
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		p.freeze(0, 1, 2)
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mu := &leaseOf(t, held).on.(*stake).mu
		require.ErrorIs(t, m.UnlockContext(watchful{within, t, mu}), context.DeadlineExceeded)
		p.thaw(0, 1, 2)
		require.NoError(t, m.UnlockContext(held))
	})
}

// watchfulLog is a logger that looks whether every gate's mutex is free.
type watchfulLog struct {
	slog.Handler
	t    *testing.T
	c    **Client
	seen map[string]bool // what it was told
}

func (w watchfulLog) Handle(_ context.Context, r slog.Record) error {
	w.t.Helper()
	(*w.c).each(nil, func(g *gate) { released(w.t, &g.mu) })
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "event" {
			w.seen[a.Value.String()] = true
		}
		return true
	})
	return nil
}

func TestNothingIsLoggedUnderAGatesMutex(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var c *Client
		log := watchfulLog{slog.NewTextHandler(io.Discard, nil), t, &c, map[string]bool{}}
		wire := b.tap()
		c = newClient(t, wire)
		c.opts.client.logger = slog.New(log) // not before there is a Client to look at
		m := c.Mutex("k")
		wire.on("acquire", loseRequest, slow(0, defaultLease))
		ctx := lock(t, m)
		wire.always("renew", loseRequest)
		<-ctx.Done()
		require.ErrorIs(t, m.UnlockContext(ctx), ErrLeaseLost)
		synctest.Wait()
		require.Equal(t, map[string]bool{"request_failed": true, "lease_too_short": true, "renewal_failed": true, "lease_lost": true}, log.seen)
	})
}
