package valkeysync

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// valkey-go closes the connection to a node that left the map, or was replaced, 5 s later.
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*clusterClient).redirectOrNew.func1"),
		// It looks at the map anew up to 1 s after it was told to.
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"),
	)
}

// notifying is how a server is started that wakes by keyspace notifications.
var notifying = []string{"--notify-keyspace-events", "Kgxe"}

// bubble is a server inside a testing/synctest bubble, whose leases run by the bubble's clock, and what
// makes Clients of it. miniredis has no keyspace notifications: what is tested here works without.
type bubble struct {
	t *testing.T
	*miniredis.Miniredis
}

func newBubble(t *testing.T) *bubble {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return &bubble{t, m}
}

// dial is a valkey.Client on the server, through wrap (nil: directly).
func (b *bubble) dial(wrap func(net.Conn) net.Conn) valkey.Client {
	c, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{"bubble:1"}, DisableCache: true, ForceSingleClient: true,
		Dialer:           net.Dialer{KeepAlive: 1000 * time.Hour}, // no PINGs of valkey-go's own
		ConnWriteTimeout: 1000 * time.Hour,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			conn, err := b.Dial()
			if err == nil && wrap != nil {
				conn = wrap(conn)
			}
			return conn, err
		},
	})
	require.NoError(b.t, err)
	b.t.Cleanup(c.Close)
	return c
}

func (b *bubble) client(opts ...Option) *Client { return newClient(b.t, b.dial(nil), opts...) }

// newClient makes a Client that is closed at the end of the test and logs to it. Crash detection
// and the turn are off unless opts turn them on, so that what is counted and timed is not their doing.
func newClient(t testing.TB, c valkey.Client, opts ...Option) *Client {
	t.Helper()
	client, err := New(c, append([]Option{WithLogger(testLogger(t)), WithCrashDetection(0), WithTurn(0)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

// testLogger writes to the test's log until the test ends.
func testLogger(t testing.TB) *slog.Logger {
	w := &logWriter{t: t}
	t.Cleanup(w.end)
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

type logWriter struct {
	mu   sync.Mutex
	t    testing.TB
	over bool
}

func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Log(string(bytes.TrimSpace(p)))
	}
	return len(p), nil
}

func (w *logWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// within fails the test, with all goroutines' stacks from -timeout left out, if f does not return in time.
func within(t testing.TB, limit time.Duration, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s: not done within %v", what, limit)
	}
}

// queued waits until n processes wait for the key on the server.
func queued(t testing.TB, s *testserver.Server, c *Client, key string, n int) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for {
		st, err := c.Status(context.Background(), key)
		require.NoError(t, err)
		if st.Waiting == n {
			return
		}
		select {
		case <-limit:
			t.Fatalf("%d wait for %q, want %d (%s)", st.Waiting, key, n, s.Flavor())
		case <-time.After(time.Millisecond):
		}
	}
}
