package valkeysync

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// line is a Client's way to the server, which can be cut. A Client whose line is cut for good is what the
// server sees of a process that was killed; the Client itself lives on here, so that what it believes can
// be compared with what the others were given.
type line struct {
	mu    sync.Mutex
	conns map[*lineConn]bool
	dead  bool
}

type lineConn struct {
	net.Conn
	line       *line
	subscriber bool
}

func (l *line) wrap(c net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn := &lineConn{Conn: c, line: l}
	if l.dead {
		_ = c.Close()
		return conn
	}
	if l.conns == nil {
		l.conns = map[*lineConn]bool{}
	}
	l.conns[conn] = true
	return conn
}

func (c *lineConn) Write(p []byte) (int, error) {
	if containsWord(p, "SUBSCRIBE") {
		c.line.mu.Lock()
		c.subscriber = true
		c.line.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func containsWord(p []byte, word string) bool {
	for i := 0; i+len(word) <= len(p); i++ {
		if string(p[i:i+len(word)]) == word {
			return true
		}
	}
	return false
}

// cut closes the connections; with dead, no new ones come to be.
func (l *line) cut(dead, onlySubscriber bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = dead
	for c := range l.conns {
		if !onlySubscriber || c.subscriber {
			_ = c.Close()
			delete(l.conns, c)
		}
	}
}

// lined is a Client of the bubble whose line can be cut.
func (b *bubble) lined(opts ...Option) (*Client, valkey.Client, *line) {
	l := &line{}
	v := b.dial(l.wrap)
	return newClient(b.t, v, append([]Option{WithCrashDetection(defaultGrace)}, opts...)...), v, l
}

func TestDeadHolderIsReplacedWithinTheGrace(t *testing.T) {
	for _, grace := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
		t.Run(grace.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				opts := []Option{WithLease(30 * time.Second), WithCrashDetection(grace)}
				holder, _, wire := b.lined(opts...)
				ctx, err := holder.Mutex("k").LockContext(t.Context())
				require.NoError(t, err)

				got := make(chan time.Time, 1)
				waiter := b.client(opts...).Mutex("k")
				go func() {
					waiter.Lock()
					got <- time.Now()
				}()
				time.Sleep(time.Minute)
				require.NoError(t, ctx.Err(), "a living holder keeps it")

				died := time.Now()
				wire.cut(true, false)
				<-ctx.Done()
				lost := time.Now()
				at := <-got
				require.LessOrEqual(t, at.Sub(died), grace+600*time.Millisecond)
				require.True(t, lost.Before(at), "the holder knew %v after the cut, the other had it %v after", lost.Sub(died), at.Sub(died))
				var why *LostError
				require.ErrorAs(t, context.Cause(ctx), &why)
				require.Equal(t, CauseUnreachable, why.Cause)
				waiter.Unlock()
			})
		})
	}
}

func TestDeadReadersAndPermitsAreReplacedWithinTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		opts := []Option{WithLease(30 * time.Second), WithCrashDetection(defaultGrace)}
		dying, _, wire := b.lined(opts...)
		living := b.client(opts...)
		waiter := b.client(opts...)

		_, err := dying.RWMutex("rw").RLockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, dying.Semaphore("sem", 3).Acquire(t.Context(), 2))
		require.NoError(t, living.Semaphore("sem", 3).Acquire(t.Context(), 1))

		time.Sleep(5 * time.Second) // a Client that is new itself is no judge of others
		wire.cut(true, false)
		died := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			waiter.RWMutex("rw").Lock()
			require.LessOrEqual(t, time.Since(died), 2600*time.Millisecond)
		})
		wg.Go(func() {
			require.NoError(t, waiter.Semaphore("sem", 3).Acquire(t.Context(), 2))
			require.LessOrEqual(t, time.Since(died), 2600*time.Millisecond)
		})
		wg.Wait()
		require.False(t, waiter.Semaphore("sem", 3).TryAcquire(1), "the living one's permit stays")
	})
}

func TestCutConnectionsThatComeBackCostNoLease(t *testing.T) {
	for _, onlySubscriber := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t)
			holder, _, wire := b.lined(WithLease(30 * time.Second))
			ctx, err := holder.Mutex("k").LockContext(t.Context())
			require.NoError(t, err)
			waiter := b.client(WithCrashDetection(defaultGrace)).Mutex("k")
			go func() { _, _ = waiter.LockContext(t.Context()) }()
			for range 50 {
				time.Sleep(1700 * time.Millisecond)
				wire.cut(false, onlySubscriber)
			}
			require.NoError(t, ctx.Err(), "%v", context.Cause(ctx))
		})
	}
}

func TestHolderWithoutSubscriptionLivesByItsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		holder, _, wire := b.lined(WithLease(30 * time.Second))
		ctx, err := holder.Mutex("k").LockContext(t.Context())
		require.NoError(t, err)
		waiter := b.client(WithCrashDetection(defaultGrace)).Mutex("k")
		got := make(chan struct{})
		go func() {
			if _, err := waiter.LockContext(t.Context()); err == nil {
				close(got)
			}
		}()
		for range 500 { // its subscriber connection never stands for long
			time.Sleep(10 * time.Millisecond)
			wire.cut(false, true)
		}
		require.NoError(t, ctx.Err())
		require.NoError(t, holder.Mutex("other").Do(t.Context(), func(context.Context) error { return nil }))
		select {
		case <-got:
			t.Fatal("two holders")
		default:
		}
	})
}

func TestHolderIsNeverCutWithoutCrashDetection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		holder, _, wire := b.lined(WithLease(30*time.Second), WithCrashDetection(0))
		ctx, err := holder.Mutex("k").LockContext(t.Context())
		require.NoError(t, err)
		got := make(chan time.Time, 1)
		waiter := b.client(WithCrashDetection(defaultGrace)).Mutex("k")
		go func() { waiter.Lock(); got <- time.Now() }()
		synctest.Wait()
		wire.cut(true, false)
		died := time.Now()
		<-ctx.Done()
		require.Greater(t, time.Since(died), 29*time.Second)
		require.GreaterOrEqual(t, (<-got).Sub(died), 30*time.Second)
	})
}

// A lock that is held and waited for costs the server two to three commands a second under crash detection. It grows
// with the logarithm of those who wait, by a tenth: at place i a waiter looks once in i leases. The holder has no
// need to beat: each look tells it that it lives.
func TestIdleLockUnderCrashDetectionCostsLittle(t *testing.T) {
	for waiting, most := range map[int]float64{1: 2.4, 10: 3, 100: 3.1} {
		t.Run(fmt.Sprint(waiting), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				tap := b.tap()
				opts := []Option{WithCrashDetection(defaultGrace)}
				holder := newClient(t, tap, opts...).Mutex("orders")
				ctx := lock(t, holder)
				waits, cancel := context.WithCancel(t.Context())
				var all sync.WaitGroup
				for range waiting {
					m := newClient(t, tap, opts...).Mutex("orders")
					all.Go(func() { _, _ = m.LockContext(waits) })
				}
				const while = 2 * time.Minute
				time.Sleep(time.Minute)
				before, beats := tap.total(), tap.beats()
				time.Sleep(while)
				each := float64(tap.total()-before) / while.Seconds()
				t.Logf("%.2f scripts a second, and %d beats", each, tap.beats()-beats)
				require.LessOrEqual(t, each, most)
				require.Zero(t, tap.beats()-beats)
				require.NoError(t, ctx.Err())
				cancel()
				all.Wait()
				require.NoError(t, ctx.Err())
				unlock(t, holder, ctx)
			})
		})
	}
}

// A machine that held the lock and had the next in line dies. Who waits behind that looks after two graces, and these
// do not wait for so long: they look when they give up.
func TestWaitsThatAreShortEndWithALook(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		dead := b.mute("dead", "orders")
		held, next := dead.entry("1"), dead.entry("2")
		held.Grace, next.Grace = defaultGrace, defaultGrace
		require.Equal(t, protocol.Held, dead.acquire(held).Outcome)
		m := b.client(WithCrashDetection(defaultGrace)).Mutex("orders")
		time.Sleep(2 * defaultGrace) // until it may judge others
		require.Equal(t, protocol.Queued, dead.acquire(next).Outcome)
		start := time.Now()
		for tries := 1; ; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			ctx, err := m.LockContext(ctx)
			if err == nil {
				t.Logf("the %d. had it", tries)
				require.NoError(t, m.UnlockContext(ctx))
				cancel()
				break
			}
			cancel()
			require.Less(t, tries, 10)
		}
		require.LessOrEqual(t, time.Since(start), time.Second+defaultGrace, "the first wait, and a grace")
	})
}
