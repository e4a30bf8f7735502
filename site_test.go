package valkeysync

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// What the tests on real servers share.

// soon is how long something may take that should take no time, on a machine that is busy with other tests.
const soon = 15 * time.Second

// sub is a subtest of together.
type sub struct {
	name string
	run  func(t *testing.T)
}

// together runs subtests at the same time: they pass their time waiting.
func together(t *testing.T, parts ...sub) {
	t.Helper()
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() { t.Run(p.name, p.run) })
	}
	wg.Wait()
}

// onBoth runs a test against a server of each flavor, at the same time.
func onBoth(t *testing.T, args []string, fn func(t *testing.T, s *testserver.Server)) {
	t.Helper()
	var parts []sub
	for _, f := range testserver.Flavors() {
		parts = append(parts, sub{string(f), func(t *testing.T) { fn(t, testserver.Start(t, f, args...)) }})
	}
	together(t, parts...)
}

// onBothByDefault is onBoth, without crash detection and turn and once more with both, as they are by default.
func onBothByDefault(t *testing.T, args []string, fn func(t *testing.T, s *testserver.Server, opts ...Option)) {
	t.Helper()
	onBoth(t, args, func(t *testing.T, s *testserver.Server) {
		together(t,
			sub{"by the lease alone", func(t *testing.T) { fn(t, s) }},
			sub{"with crash detection", func(t *testing.T) {
				fn(t, testserver.Start(t, s.Flavor(), args...), WithCrashDetection(defaultGrace), WithTurn(defaultTurn))
			}},
		)
	})
}

// on makes a Client on a connection of its own to the server.
func on(t testing.TB, s *testserver.Server, opts ...Option) *Client {
	t.Helper()
	return newClient(t, s.Client(t), opts...)
}

// through makes a Client whose connections all go through the proxy, and which notices within about a
// second that one is silent.
func through(t testing.TB, s *testserver.Server, p *proxy.Proxy, opts ...Option) *Client {
	t.Helper()
	return newClient(t, s.Client(t, via(p), impatient), opts...)
}

func via(p *proxy.Proxy) func(*valkey.ClientOption) {
	return func(o *valkey.ClientOption) { o.InitAddress = []string{p.Addr()} }
}

func impatient(o *valkey.ClientOption) {
	o.Dialer = net.Dialer{KeepAlive: 200 * time.Millisecond, Timeout: 2 * time.Second}
	o.ConnWriteTimeout = 800 * time.Millisecond
	o.PipelineMultiplex = -1 // one connection for commands
	o.RingScaleEachConn = 6  // of which no more are under way
}

// happened waits for what a fault of the proxy promised.
func happened(t testing.TB, fired <-chan struct{}) {
	t.Helper()
	select {
	case <-fired:
	case <-time.After(2 * soon):
		t.Fatalf("the request that is to be lost or late was not sent within %v", 2*soon)
	}
}

// eventually waits until ok, for what sends no signal.
func eventually(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.After(limit)
	for !ok() {
		select {
		case <-end:
			t.Fatalf("%s: not within %v", what, limit)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// taking is a lock that a goroutine tries to take.
type taking struct {
	done chan struct{}
	ctx  context.Context
	err  error
	at   time.Time
}

// take takes m in the background.
func take(ctx context.Context, m *Mutex) *taking {
	k := &taking{done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.ctx, k.err = m.LockContext(ctx)
		k.at = time.Now()
	}()
	return k
}

// got waits for the lock and returns its context.
func (k *taking) got(t testing.TB, limit time.Duration) context.Context {
	t.Helper()
	k.wait(t, limit)
	require.NoError(t, k.err)
	return k.ctx
}

// failed waits for the error.
func (k *taking) failed(t testing.TB, limit time.Duration) error {
	t.Helper()
	k.wait(t, limit)
	require.Error(t, k.err)
	return k.err
}

func (k *taking) wait(t testing.TB, limit time.Duration) {
	t.Helper()
	select {
	case <-k.done:
	case <-time.After(limit):
		t.Fatalf("still waiting for the lock after %v", limit)
	}
}

// lock takes m, soon.
func lock(t testing.TB, m *Mutex) context.Context {
	t.Helper()
	return take(context.Background(), m).got(t, soon)
}

// unlock gives m back, soon.
func unlock(t testing.TB, m *Mutex, held context.Context) {
	t.Helper()
	var err error
	within(t, soon, "unlock", func() { err = m.UnlockContext(held) })
	require.NoError(t, err)
}

func tokenOf(t testing.TB, held context.Context) int64 {
	t.Helper()
	l, ok := FromContext(held)
	require.True(t, ok)
	return l.Token()
}

// ends waits until the context that a lock gave has ended, and returns its cause.
func ends(t testing.TB, held context.Context, limit time.Duration) *LostError {
	t.Helper()
	select {
	case <-held.Done():
	case <-time.After(limit):
		t.Fatalf("the context did not end within %v", limit)
	}
	var lost *LostError
	require.ErrorAs(t, context.Cause(held), &lost)
	return lost
}

// command sends a command to the server, past every proxy.
func command(t testing.TB, s *testserver.Server, args ...string) valkey.ValkeyMessage {
	t.Helper()
	m, err := s.Do(args...)
	require.NoError(t, err, "%v", args)
	return m
}

func exists(t testing.TB, s *testserver.Server, key string) bool {
	t.Helper()
	n, err := ptr(command(t, s, "EXISTS", key)).AsInt64()
	require.NoError(t, err)
	return n == 1
}

func ptr[T any](v T) *T { return &v }

// leftovers is what the server still has of a mutex that nobody uses, the fence left aside. (A channel that
// nobody watches any more goes later, see subscriber.)
func leftovers(t testing.TB, s *testserver.Server, key string) string {
	t.Helper()
	var left []string
	for _, k := range []string{key, "{" + key + "}:queue", "{" + key + "}:shared"} {
		if exists(t, s, k) {
			left = append(left, k)
		}
	}
	return strings.Join(left, ", ")
}

// nothingLeft waits until the server has nothing of the mutex any more.
func nothingLeft(t testing.TB, s *testserver.Server, key string) {
	t.Helper()
	var left string
	end := time.After(soon)
	for {
		if left = leftovers(t, s, key); left == "" {
			return
		}
		select {
		case <-end:
			t.Fatalf("left behind: %s", left)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// subscribers is how many listen to a channel.
func subscribers(t testing.TB, s *testserver.Server, channel string) int64 {
	t.Helper()
	reply, err := ptr(command(t, s, "PUBSUB", "NUMSUB", channel)).ToArray()
	require.NoError(t, err)
	n, err := reply[1].AsInt64()
	require.NoError(t, err)
	return n
}

// watches waits until m's Client watches the key, at the front of the queue, and has looked once more: what
// happens from now on reaches it by an event.
func watches(t testing.TB, m *Mutex) {
	t.Helper()
	eventually(t, soon, "watches the key", func() bool {
		g, err := m.c.enter(m.kind, &m.keys)
		require.NoError(t, err)
		defer m.c.leave(g)
		g.mu.Lock()
		defer g.unlock()
		a := g.attempt(protocol.Exclusive)
		return a != nil && !a.front.IsZero() && a.read.sent.at.After(a.front)
	})
}

// watched waits until n connections watch the key.
func watched(t testing.TB, s *testserver.Server, key string, n int64) {
	t.Helper()
	eventually(t, soon, fmt.Sprintf("%d watch %q", n, key), func() bool {
		return subscribers(t, s, "__keyspace@0__:"+key) == n
	})
}
