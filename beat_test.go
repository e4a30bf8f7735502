package valkeysync

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// silent is a Client's way to the server whose subscriber connections the server can close without the
// Client being told before it writes.
type silent struct {
	mu       sync.Mutex
	conns    []*silentConn
	away     bool // nobody can connect any more
	halfOpen bool // nor is it told when it writes
}

type silentConn struct {
	net.Conn
	way        *silent
	subscriber bool
	cut        bool
	once       sync.Once
	told       chan struct{} // closed: the Client knows
}

func (w *silent) wrap(c net.Conn) net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away {
		_ = c.Close()
	}
	conn := &silentConn{Conn: c, way: w, told: make(chan struct{})}
	w.conns = append(w.conns, conn)
	return conn
}

func (c *silentConn) isCut() bool {
	c.way.mu.Lock()
	defer c.way.mu.Unlock()
	return c.cut
}

func (w *silent) isHalfOpen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.halfOpen
}

func (c *silentConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil && c.isCut() {
		<-c.told
	}
	return n, err
}

func (c *silentConn) Write(p []byte) (int, error) {
	if c.isCut() {
		select {
		case <-c.told:
		default:
			if c.way.isHalfOpen() {
				return len(p), nil
			}
		}
		c.once.Do(func() { close(c.told) })
		return 0, net.ErrClosed
	}
	if containsWord(p, "SUBSCRIBE") {
		c.way.mu.Lock()
		c.subscriber = true
		c.way.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *silentConn) Close() error {
	c.once.Do(func() { close(c.told) })
	return c.Conn.Close()
}

// end has the server close the subscriber connections that there are.
func (w *silent) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		if c.subscriber && !c.cut {
			c.cut = true
			_ = c.Conn.Close()
		}
	}
}

// judged is a holder under crash detection whose subscriber connection the server closes, which it is not
// told, and whose renewals get lost; a waiter that finds nobody to hear the holder cuts the lease to the
// grace. What comes then must not be a proof of life: the holder's context ends before the lease does.
func judged(t *testing.T, b *bubble, before time.Duration, start func(*Client), then func(*Client, *silent)) {
	wire, way := b.tap(), &silent{}
	wire.Client = b.dial(way.wrap)
	c := newClient(t, wire, WithLease(30*time.Second), WithCrashDetection(defaultGrace))
	m := c.Mutex("orders")
	ctx, err := m.LockContext(t.Context())
	require.NoError(t, err)
	p := b.peer("p", "orders")
	waits := p.entry("waits")
	require.Equal(t, protocol.Queued, p.acquire(waits).Outcome)
	start(c)
	time.Sleep(before)
	require.NoError(t, ctx.Err())

	wire.always("renew", swallow)
	way.end()
	synctest.Wait()
	r := p.reply(p.Check(t.Context(), &p.keys, waits, false, time.Hour))
	require.Equal(t, defaultGrace, r.Remaining, "the lease is cut")
	cut := time.Now()
	then(c, way)
	<-ctx.Done()
	require.Less(t, time.Since(cut), defaultGrace, "what the server has left of the lease")
	require.ErrorIs(t, m.UnlockContext(ctx), ErrLeaseLost)
}

// The server runs the SUBSCRIBE of an older connection after it has closed the newer one, and a waiter has
// looked in between.
func TestABeatCountsNobodyButTheConnectionThatHears(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		judged(t, b, 10*time.Second, func(*Client) {}, func(c *Client, _ *silent) {
			old := b.NewSubscriber()
			old.Subscribe(protocol.ChannelFor(c.id))
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range old.Messages() {
				}
			}()
			t.Cleanup(func() { old.Close(); <-done })
			require.Equal(t, 1, b.PubSubNumSub(protocol.ChannelFor(c.id))[protocol.ChannelFor(c.id)])
		})
	})
}

// A connection is replaced because of the channels that nobody watches any more, but was closed before the
// one that replaces it was subscribed.
func TestABeatDoesNotCountAConnectionThatCameAfterAGap(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const ahead = 100 * time.Millisecond
		judged(t, b, staleTime-ahead, func(c *Client) {
			time.Sleep(2 * ahead) // so that no beat comes between the end and the replacement
			w := c.hub.watch("news", func(string) {})
			<-w.confirmed()
			w.stop()
		}, func(c *Client, _ *silent) {
			time.Sleep(ahead)
			synctest.Wait()
			require.EqualValues(t, 2, c.hub.opened.Load(), "the next connection was made")
		})
	})
}

func TestABeatThatNobodyIsCountedForIsNone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		judged(t, b, 10*time.Second, func(*Client) {}, func(_ *Client, way *silent) {
			way.mu.Lock()
			defer way.mu.Unlock()
			way.away = true
		})
	})
}

// A connection that is replaced in order is no gap: beats go on, and nobody looks.
func TestABeatCountsOverAConnectionThatIsReplacedInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		c := newClient(t, wire, WithLease(time.Hour), WithCrashDetection(defaultGrace))
		m := c.Mutex("orders")
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		w := c.hub.watch("news", func(string) {})
		<-w.confirmed()
		before := c.ears[""].watch.session()
		_, first := c.ears[""].watch.alone()
		w.stop()
		time.Sleep(staleTime + time.Minute)
		after, second := c.ears[""].watch.alone()
		require.Equal(t, before, after)
		require.NotEqual(t, first, second, "another connection")
		require.Equal(t, map[string]int{first: 0, second: 1}, b.PubSubNumSub(first, second))
		require.NoError(t, ctx.Err())
		require.Zero(t, wire.count("renew"))
		require.Zero(t, c.Stats().Reconnects)
		m.Unlock()
	})
}

// unheard is a valkey.Client of which beats get no answer, as over a connection that loses what is sent.
type unheard struct {
	valkey.Client
	beats atomic.Int64 // still to be lost
}

func (c *unheard) Do(ctx context.Context, cmd valkey.Completed) valkey.ValkeyResult {
	if cmd.Commands()[0] == "PUBLISH" && c.beats.Add(-1) >= 0 {
		<-ctx.Done()
		return valkey.NewErrorResult(ctx.Err())
	}
	return c.Client.Do(ctx, cmd)
}

func TestABeatWithoutAnAnswerCostsNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		lossy := &unheard{Client: wire}
		c := newClient(t, lossy, WithLease(30*time.Second), WithCrashDetection(defaultGrace))
		m := c.Mutex("orders")
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		for range 5 {
			time.Sleep(8 * time.Second)
			lossy.beats.Store(1)
		}
		require.NoError(t, ctx.Err(), "%v", context.Cause(ctx))
		m.Unlock()
	})
}

// Who has not been heard itself for twice the grace is no judge of others: after a restart nobody is subscribed.
func TestAWaiterThatWasNotHeardItselfCutsNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		dead := b.mute("dead", "orders")
		e := dead.entry("1")
		e.Grace = defaultGrace
		require.Equal(t, protocol.Held, dead.acquire(e).Outcome)
		p := b.peer("p", "orders")
		waits := p.entry("waits")
		p.acquire(waits)
		for _, heard := range []time.Duration{-1, 0, defaultGrace, 2*defaultGrace - time.Millisecond} {
			r := p.reply(p.Check(t.Context(), &p.keys, waits, false, heard))
			require.Equal(t, defaultLease, r.Remaining, "heard for %v", heard)
		}
		r := p.reply(p.Check(t.Context(), &p.keys, waits, false, 2*defaultGrace))
		require.Equal(t, defaultGrace, r.Remaining)
	})
}
