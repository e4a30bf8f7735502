package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// diary is a Tracer that writes down what it is told, with the time since its beginning.
type diary struct {
	t     *testing.T
	start time.Time

	mu    sync.Mutex
	n     int
	lines []string
}

func newDiary(t *testing.T) *diary { return &diary{t: t, start: time.Now()} }

type diaryKey struct{}

type page struct {
	d     *diary
	n     int
	token int64
}

func (d *diary) write(n int, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("#%d %v ", n, time.Since(d.start))+fmt.Sprintf(format, args...))
}

// read returns what was written since the last call, once all that is under way has come to an end.
func (d *diary) read() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	lines := d.lines
	d.lines = nil
	return lines
}

func (d *diary) Acquire(ctx context.Context, a Acquisition) Trace {
	require.NotNil(d.t, ctx)
	d.mu.Lock()
	d.n++
	p := &page{d: d, n: d.n}
	d.mu.Unlock()
	words := []string{a.Kind, a.Key}
	if a.Read {
		words = append(words, "read")
	}
	if a.Permits != 1 {
		words = append(words, fmt.Sprint(a.Permits))
	}
	if a.Try {
		words = append(words, "try")
	}
	if since := time.Since(a.Began); since != 0 {
		words = append(words, fmt.Sprint("since ", since))
	}
	d.write(p.n, "%s", strings.Join(words, " "))
	return p
}

func (p *page) Acquired(ctx context.Context, l *Lease, by Grant) context.Context {
	require.NotNil(p.d.t, ctx)
	p.token = l.Token()
	p.d.write(p.n, "by %s", by)
	return context.WithValue(ctx, diaryKey{}, p.n)
}

func (p *page) Failed(err error) { p.d.write(p.n, "failed: %s", inShort(err)) }

func (p *page) Released(err error) {
	if err == nil {
		p.d.write(p.n, "released")
		return
	}
	p.d.write(p.n, "released: %s", inShort(err))
}

func inShort(err error) string {
	var lost *LostError
	switch {
	case errors.As(err, &lost):
		return string(lost.Cause)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "ctx"
	case errors.Is(err, ErrLocked):
		return "locked"
	}
	return err.Error()
}

// tracedIn is the number of the innermost acquisition that ctx was made under; 0: none.
func tracedIn(ctx context.Context) int {
	n, _ := ctx.Value(diaryKey{}).(int)
	return n
}

func TestTracerIsToldOfEveryWayToLock(t *testing.T) {
	second := func() { time.Sleep(time.Second) }
	held := func(t *testing.T, want int, ctx context.Context, err error) {
		require.NoError(t, err)
		require.Equal(t, want, tracedIn(ctx))
		second()
	}
	for name, tt := range map[string]struct {
		do   func(t *testing.T, c *Client)
		want []string
	}{
		"Mutex": {func(t *testing.T, c *Client) {
			m := c.Mutex("orders")
			m.Lock()
			second()
			m.Unlock()
			require.True(t, m.TryLock())
			second()
			m.Unlock()
			ctx, err := m.LockContext(t.Context())
			held(t, 3, ctx, err)
			require.NoError(t, m.UnlockContext(ctx))
			ctx, err = m.TryLockContext(t.Context())
			held(t, 4, ctx, err)
			require.NoError(t, m.UnlockContext(t.Context()))
			require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
				held(t, 5, ctx, nil)
				return nil
			}))
		}, []string{
			"#1 0s Mutex app:orders", "#1 0s by reply", "#1 1s released",
			"#2 1s Mutex app:orders try", "#2 1s by reply", "#2 2s released",
			"#3 2s Mutex app:orders", "#3 2s by reply", "#3 3s released",
			"#4 3s Mutex app:orders try", "#4 3s by reply", "#4 4s released",
			"#5 4s Mutex app:orders", "#5 4s by reply", "#5 5s released",
		}},
		"Mutex of an owner": {func(t *testing.T, c *Client) {
			m := c.Mutex("orders", WithOwner("flow 7"))
			ctx, err := m.LockContext(t.Context())
			held(t, 1, ctx, err)
			again, err := m.LockContext(t.Context())
			held(t, 2, again, err)
			require.NoError(t, m.UnlockContext(ctx))
			second()
			require.NoError(t, m.UnlockContext(again))
		}, []string{
			"#1 0s Mutex app:orders", "#1 0s by reply", "#2 1s Mutex app:orders", "#2 1s by local", "#1 2s released", "#2 3s released",
		}},
		"RWMutex": {func(t *testing.T, c *Client) {
			rw := c.RWMutex("orders")
			rw.Lock()
			second()
			rw.Unlock()
			rw.RLock()
			ctx, err := rw.RLockContext(t.Context())
			held(t, 3, ctx, err)
			require.False(t, rw.TryLock())
			require.NoError(t, rw.RUnlockContext(ctx))
			second()
			rw.RUnlock()
			require.NoError(t, rw.Do(t.Context(), func(ctx context.Context) error {
				held(t, 5, ctx, nil)
				return nil
			}))
			require.NoError(t, rw.RDo(t.Context(), func(ctx context.Context) error {
				held(t, 6, ctx, nil)
				return nil
			}))
		}, []string{
			"#1 0s RWMutex app:orders", "#1 0s by reply", "#1 1s released",
			"#2 1s RWMutex app:orders read", "#2 1s by reply", "#3 1s RWMutex app:orders read", "#3 1s by local",
			"#4 2s RWMutex app:orders try", "#4 2s failed: locked",
			"#3 2s released", "#2 3s released",
			"#5 3s RWMutex app:orders", "#5 3s by reply", "#5 4s released",
			"#6 4s RWMutex app:orders read", "#6 4s by reply", "#6 5s released",
		}},
		"Downgrade": {func(t *testing.T, c *Client) {
			rw := c.RWMutex("orders")
			ctx, err := rw.LockContext(t.Context())
			held(t, 1, ctx, err)
			ctx, err = rw.Downgrade(ctx)
			held(t, 2, ctx, err)
			require.NoError(t, rw.RUnlockContext(ctx))
		}, []string{
			"#1 0s RWMutex app:orders", "#1 0s by reply",
			"#2 1s RWMutex app:orders read", "#1 1s released", "#2 1s by reply", "#2 2s released",
		}},
		"Semaphore": {func(t *testing.T, c *Client) {
			s := c.Semaphore("orders", 5)
			require.NoError(t, s.Acquire(t.Context(), 3))
			second()
			require.False(t, s.TryAcquire(4))
			ctx, err := s.AcquireContext(t.Context(), 1)
			held(t, 3, ctx, err)
			s.Release(2) // a part of the first
			require.NoError(t, s.ReleaseContext(ctx, 1))
			second()
			s.Release(1)
			require.NoError(t, s.Do(t.Context(), 5, func(ctx context.Context) error {
				held(t, 4, ctx, nil)
				return nil
			}))
		}, []string{
			"#1 0s Semaphore app:orders 3", "#1 0s by reply",
			"#2 1s Semaphore app:orders 4 try", "#2 1s failed: locked",
			"#3 1s Semaphore app:orders", "#3 1s by reply", "#3 2s released", "#1 3s released",
			"#4 3s Semaphore app:orders 5", "#4 3s by reply", "#4 4s released",
		}},
		"re-entry": {func(t *testing.T, c *Client) {
			m := c.Mutex("orders", WithReentrancy())
			ctx, err := m.LockContext(t.Context())
			held(t, 1, ctx, err)
			inner, err := m.LockContext(ctx)
			held(t, 1, inner, err)
			require.NoError(t, m.UnlockContext(inner))
			second()
			require.NoError(t, m.UnlockContext(ctx))
		}, []string{"#1 0s Mutex app:orders", "#1 0s by reply", "#1 3s released"}},
		"LockAll, free": {func(t *testing.T, c *Client) {
			ctx, err := c.LockAll(t.Context(), "{x}b", "{x}a")
			held(t, 2, ctx, err)
			require.Len(t, Leases(ctx), 2)
			require.NoError(t, c.UnlockAll(ctx))
		}, []string{
			"#1 0s Mutex app:{x}a", "#1 0s by reply", "#2 0s Mutex app:{x}b", "#2 0s by reply", "#1 1s released", "#2 1s released",
		}},
		"LockAll, not free": {func(t *testing.T, c *Client) {
			m := c.Mutex("{x}b")
			m.Lock()
			time.AfterFunc(time.Second, m.Unlock)
			ctx, err := c.LockAll(t.Context(), "{x}b", "{x}a")
			held(t, 3, ctx, err)
			require.NoError(t, c.UnlockAll(ctx))
		}, []string{
			"#1 0s Mutex app:{x}b", "#1 0s by reply",
			"#2 0s Mutex app:{x}a", "#2 0s by reply", "#3 0s Mutex app:{x}b", "#1 1s released", "#3 1s by reply",
			"#2 2s released", "#3 2s released",
		}},
		"a linger": {func(t *testing.T, c *Client) {
			m := c.Mutex("orders", WithLinger(2*time.Second))
			m.Lock()
			second()
			m.Unlock()
			second()
			m.Lock()
			m.Unlock()
			time.Sleep(3 * time.Second) // that it is given back then is nobody's
		}, []string{
			"#1 0s Mutex app:orders", "#1 0s by reply", "#1 1s released", "#2 2s Mutex app:orders", "#2 2s by local", "#2 2s released",
		}},
		"misuse": {func(t *testing.T, c *Client) {
			m := c.Mutex("orders")
			require.ErrorIs(t, m.UnlockContext(t.Context()), ErrNotLocked)
			over, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := m.LockContext(over)
			require.ErrorIs(t, err, context.Canceled)
			_, err = c.Mutex(" ").LockContext(t.Context())
			require.ErrorIs(t, err, ErrInvalidKey)
			require.ErrorIs(t, c.Semaphore("orders", 1).Acquire(t.Context(), 2), ErrTooLarge)
			ctx, err := m.LockContext(t.Context())
			require.NoError(t, err)
			_, err = m.LockContext(ctx)
			require.ErrorIs(t, err, ErrDeadlock)
			m.Unlock()
		}, []string{"#1 0s Mutex app:orders", "#1 0s by reply", "#1 0s released"}},
		"turned off for one": {func(t *testing.T, c *Client) {
			m := c.Mutex("orders", WithTracer(nil))
			m.Lock()
			m.Unlock()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				d := newDiary(t)
				tt.do(t, b.client(WithTracer(d), WithPrefix("app:")))
				got := d.read()
				if strings.HasPrefix(name, "LockAll") { // given back at the same time
					require.ElementsMatch(t, tt.want, got)
					return
				}
				require.Equal(t, tt.want, got)
			})
		})
	}
}

func TestTracerIsToldOfHandOvers(t *testing.T) {
	t.Run("here", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			d := newDiary(t)
			m := b.client(WithTracer(d), WithTurn(defaultTurn)).Mutex("orders")
			m.Lock()
			got := lockAsync(t.Context(), m)
			time.Sleep(time.Second)
			m.Unlock()
			require.Equal(t, 2, tracedIn(now(t, got)))
			require.ElementsMatch(t, []string{
				"#1 0s Mutex orders", "#1 0s by reply", "#2 0s Mutex orders", "#1 1s released", "#2 1s by local",
			}, d.read())
			m.Unlock()
		})
	})
	t.Run("by another process's message", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			d := newDiary(t)
			p := b.peer("p", "orders")
			e, held := p.hold("1")
			got := lockAsync(t.Context(), b.client(WithTracer(d)).Mutex("orders"))
			time.Sleep(time.Second)
			p.release(e, held)
			now(t, got)
			require.Equal(t, []string{"#1 0s Mutex orders", "#1 1s by message"}, d.read())
		})
	})
	t.Run("to all readers here", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			d := newDiary(t)
			p := b.peer("p", "orders")
			e := p.entry("1")
			e.Kind = protocol.RWMutexKind
			held := p.acquire(e)
			require.Equal(t, protocol.Held, held.Outcome)
			rw := b.client(WithTracer(d)).RWMutex("orders")
			var all sync.WaitGroup
			for range 2 {
				all.Go(rw.RLock)
			}
			time.Sleep(time.Second)
			d.read()
			p.release(e, held)
			all.Wait()
			lines := d.read()
			require.Len(t, lines, 2)
			both := strings.Join(lines, " ")
			require.Contains(t, both, "by message")
			require.Contains(t, both, "by local")
		})
	})
}

func TestTracerIsToldOfWaitsThatAreGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		d := newDiary(t)
		b.client().Mutex("orders").Lock()
		m := b.client(WithTracer(d)).Mutex("orders")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := m.LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = m.TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrLocked)
		require.False(t, m.TryLock())
		require.Equal(t, []string{
			"#1 0s Mutex orders", "#1 3s failed: ctx",
			"#2 3s Mutex orders try", "#2 3s failed: locked", "#3 3s Mutex orders try", "#3 3s failed: locked",
		}, d.read())
	})
}

// What raced with the end of the wait is given back, and was never anybody's hold.
func TestTracerIsNotToldOfAGrantThatIsGivenBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		d := newDiary(t)
		wire := b.tap()
		m := newClient(t, wire, WithTracer(d)).Mutex("orders")
		wire.on("acquire", slow(0, time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		_, err := m.LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"#1 0s Mutex orders", "#1 500ms failed: ctx"}, d.read())
	})
}

func TestTracerIsToldOfEveryLossOnce(t *testing.T) {
	for cause, tt := range map[Cause]struct {
		opts []Option
		do   func(t *testing.T, b *bubble, wire *tap, c *Client)
		at   time.Duration
	}{
		CauseExpired: {[]Option{WithLease(time.Second)}, func(t *testing.T, b *bubble, wire *tap, c *Client) {
			// The renewal is answered, but not before the lease is over; a process that is stopped sees the same.
			c.each(nil, func(g *gate) {
				g.mu.Lock()
				defer g.unlock()
				g.holds[0].renewAt = time.Now().Add(time.Hour)
			})
		}, time.Second - drift(time.Second)},
		CauseTaken: {nil, func(t *testing.T, b *bubble, _ *tap, _ *Client) {
			require.NoError(t, b.Set("orders", "somebody else"))
		}, defaultLease / 3},
		CauseDeleted: {nil, func(t *testing.T, _ *bubble, _ *tap, c *Client) {
			require.NoError(t, c.ForceUnlock(t.Context(), "orders"))
		}, 0},
		CauseUnreachable: {nil, func(_ *testing.T, _ *bubble, wire *tap, _ *Client) {
			wire.goAway(true)
		}, defaultLease - drift(defaultLease)},
		CauseMaxHold: {[]Option{WithMaxHold(time.Second)}, func(*testing.T, *bubble, *tap, *Client) {
		}, defaultLease - drift(defaultLease)},
		CauseClosed: {nil, func(t *testing.T, _ *bubble, _ *tap, c *Client) {
			require.NoError(t, c.Close())
		}, 0},
	} {
		t.Run(string(cause), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				d := newDiary(t)
				wire := b.tap()
				c, err := New(wire, append([]Option{WithTracer(d), WithLogger(quiet), WithCrashDetection(0)}, tt.opts...)...)
				require.NoError(t, err)
				defer c.Close()
				defer wire.goAway(false)
				m := c.Mutex("orders")
				ctx, err := m.LockContext(t.Context())
				require.NoError(t, err)
				tt.do(t, b, wire, c)
				<-ctx.Done()
				require.Equal(t, []string{
					"#1 0s Mutex orders", "#1 0s by reply", fmt.Sprintf("#1 %v released: %s", tt.at, cause),
				}, d.read())
				require.ErrorIs(t, m.UnlockContext(ctx), ErrLeaseLost)
				require.Empty(t, d.read())
			})
		})
	}
}

// The unlock is the first to hear that the lease was lost.
func TestTracerIsToldOfALossThatTheUnlockFinds(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		d := newDiary(t)
		m := b.client(WithTracer(d)).Mutex("orders")
		m.Lock()
		b.Del("orders")
		time.Sleep(time.Second)
		m.Unlock()
		require.Equal(t, []string{"#1 0s Mutex orders", "#1 0s by reply", "#1 1s released: deleted"}, d.read())
	})
}

func TestTracerIsToldOfAnUnlockThatIsNotConfirmed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		d := newDiary(t)
		wire := b.tap()
		m := newClient(t, wire, WithTracer(d)).Mutex("orders")
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		wire.on("release", swallow)
		limited, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.UnlockContext(limited), context.DeadlineExceeded)
		require.NoError(t, m.UnlockContext(ctx), "called again")
		require.Equal(t, []string{"#1 0s Mutex orders", "#1 0s by reply", "#1 1s released: ctx"}, d.read())
	})
}

func TestTracerIsToldOfQuorums(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		d := newDiary(t)
		m := b.party(WithTracer(d)).Mutex("orders", WithReentrancy())
		other := b.party(WithTracer(d)).Mutex("orders")
		d.start = time.Now()
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, tracedIn(ctx))
		inner, err := m.LockContext(ctx)
		require.NoError(t, err)
		require.NoError(t, m.UnlockContext(inner))
		require.False(t, other.TryLock())
		time.Sleep(time.Second)
		require.NoError(t, m.UnlockContext(ctx))
		require.Equal(t, []string{
			"#1 0s QuorumMutex orders", "#1 0s by reply",
			"#2 0s QuorumMutex orders try", "#2 0s failed: locked", "#1 1s released",
		}, d.read())

		m.Lock()
		time.AfterFunc(time.Second, m.Unlock)
		_, err = other.LockContext(t.Context()) // waits in the queue, whose own locks are nobody's
		require.NoError(t, err)
		lines := d.read()
		require.Len(t, lines, 5, lines)
		for _, line := range lines {
			require.NotContains(t, line, "turnstile")
		}
		for _, s := range b.servers {
			s.FlushAll()
		}
		time.Sleep(time.Minute)
		lines = d.read()
		require.Len(t, lines, 1)
		require.Contains(t, lines[0], "released: deleted")
		require.ErrorIs(t, other.UnlockContext(t.Context()), ErrLeaseLost)
		require.Empty(t, d.read())
	})
}

// The lease may end while its holder is still being told of it.
func TestTracerIsToldOfALossDuringAcquired(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		d := newDiary(t)
		c := b.client(WithLogger(quiet))
		slow := funcTracer(func(ctx context.Context, a Acquisition) Trace {
			return funcTrace{d.Acquire(ctx, a), func() { require.NoError(t, c.ForceUnlock(t.Context(), "orders")) }}
		})
		ctx, err := c.Mutex("orders", WithTracer(slow)).LockContext(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, CauseDeleted, causeOf(ctx))
		require.Equal(t, []string{"#1 0s Mutex orders", "#1 0s by reply", "#1 0s released: deleted"}, d.read())
	})
}

// funcTracer is a Tracer of one function.
type funcTracer func(ctx context.Context, a Acquisition) Trace

func (f funcTracer) Acquire(ctx context.Context, a Acquisition) Trace { return f(ctx, a) }

// funcTrace does something in Acquired.
type funcTrace struct {
	Trace
	acquired func()
}

func (f funcTrace) Acquired(ctx context.Context, l *Lease, by Grant) context.Context {
	f.acquired()
	return f.Trace.Acquired(ctx, l, by)
}

func TestATracerThatPanicsLeavesNothingHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		d := newDiary(t)
		c := b.client()
		on := func(key string) Option {
			return WithTracer(funcTracer(func(ctx context.Context, a Acquisition) Trace {
				if a.Key != key {
					return nil
				}
				return funcTrace{d.Acquire(ctx, a), func() { panic("the tracer's") }}
			}))
		}
		free := func(keys ...string) {
			synctest.Wait()
			for _, key := range keys {
				require.False(t, b.Exists(key), key)
			}
		}
		require.PanicsWithValue(t, "the tracer's", c.Mutex("orders", on("orders")).Lock)
		free("orders")
		all := b.client(on("b"))
		require.PanicsWithValue(t, "the tracer's", func() { _, _ = all.LockAll(t.Context(), "a", "b", "c") })
		free("a", "b", "c")
		other := c.Mutex("c")
		other.Lock() // one after the other
		require.PanicsWithValue(t, "the tracer's", func() { _, _ = all.LockAll(t.Context(), "a", "b", "c") })
		free("a", "b")
		other.Unlock()
		none := funcTracer(func(context.Context, Acquisition) Trace { return noContext{} })
		require.Panics(t, c.Mutex("orders", WithTracer(none)).Lock)
		free("orders")
	})
}

type noContext struct{ Trace }

func (noContext) Acquired(context.Context, *Lease, Grant) context.Context { return nil }

func TestWithoutATracerNothingIsAllocatedForIt(t *testing.T) {
	m := (&Client{opts: defaultOptions()}).Mutex("orders")
	ctx := t.Context()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		trace := m.trace(ctx, want{mode: protocol.Exclusive, weight: 1})
		trace.acquired(ctx, nil)
		_ = trace.failed(nil)
		trace.released(nil)
	}))
}
