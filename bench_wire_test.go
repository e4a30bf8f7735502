package valkeysync

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// wire counts the commands that clients send, by name. It reads what goes over their connections: the
// server's own count (INFO commandstats) has what scripts call in it, so it cannot tell a SET of a client
// from a SET of a script.
//
// What a new connection begins with (HELLO, CLIENT …) counts as well: open them before the count begins.
// There is no PING of valkey-go's own in it, because testserver.Client sets Dialer.KeepAlive to an hour.
type wire struct {
	paused atomic.Bool // does not count: it is not in what is timed, and longer commands would take it longer
	mu     sync.Mutex
	more   *sync.Cond // there was one more
	sent   map[string]*int
}

func newWire() *wire {
	w := &wire{sent: map[string]*int{}}
	w.more = sync.NewCond(&w.mu)
	return w
}

// command counts one; it must not allocate, because allocations are counted too.
func (w *wire) command(name []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.sent[string(name)]
	if n == nil {
		n = new(int)
		w.sent[string(name)] = n
	}
	*n++
	w.more.Broadcast()
}

// total is how many commands were sent until now.
func (w *wire) total() int {
	n := 0
	for _, sent := range w.counts() {
		n += sent
	}
	return n
}

// counts is how often each command was sent until now; the names are in lower case.
func (w *wire) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[string]int{}
	for name, n := range w.sent {
		counts[strings.ToLower(name)] += *n
	}
	return counts
}

// await blocks until n commands of that name were sent.
func (w *wire) await(name string, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := func() int {
		if sent := w.sent[strings.ToUpper(name)]; sent != nil {
			return *sent
		}
		return 0
	}
	for sent() < n {
		w.more.Wait()
	}
}

// wrap counts what is written to conn.
func (w *wire) wrap(conn net.Conn) net.Conn {
	return &countedConn{Conn: conn, paused: &w.paused, count: w.command}
}

// option has every connection of a valkey.Client counted.
func (w *wire) option(o *valkey.ClientOption) {
	o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
		conn, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return w.wrap(conn), nil
	}
}

// countedConn finds the commands (RESP arrays of bulk strings) in what is written.
type countedConn struct {
	net.Conn
	paused *atomic.Bool // valkey-go writes whole commands, so it may be at any time
	count  func(name []byte)

	line []byte // a header whose end has not come yet
	skip int    // bytes of a string, with its line end, that have not come yet
	name []byte // of a command
	head bool   // the string that comes is a command's name
}

func (c *countedConn) Write(p []byte) (int, error) {
	if !c.paused.Load() {
		c.scan(p)
	}
	return c.Conn.Write(p)
}

func (c *countedConn) scan(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			if c.head {
				c.name = append(c.name, p[:n]...)
			}
			p = p[n:]
			if c.skip -= n; c.skip == 0 && c.head {
				c.head = false
				c.count(bytes.TrimSpace(c.name))
			}
			continue
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			c.line = append(c.line, p...)
			return
		}
		line := p[:i]
		if len(c.line) > 0 {
			c.line = append(c.line, line...)
			line, c.line = c.line, c.line[:0]
		}
		p = p[i+1:]
		switch line[0] {
		case '*':
			c.head, c.name = true, c.name[:0]
		case '$':
			n := 0
			for _, digit := range bytes.TrimSuffix(line[1:], []byte{'\r'}) {
				n = 10*n + int(digit-'0')
			}
			c.skip = n + 2
		}
	}
}

// situation is a server, the Clients that meet there, and the count of what they send.
type situation struct {
	tb     testing.TB
	server *testserver.Server
	wire   *wire
	eye    *Client // looks on, and is not counted
}

func newSituation(tb testing.TB, s *testserver.Server) *situation {
	return &situation{tb: tb, server: s, wire: newWire(), eye: newQuietClient(tb, s.Client(tb))}
}

// dial is a valkey.Client whose commands are counted.
func (s *situation) dial(opts ...func(*valkey.ClientOption)) valkey.Client {
	return s.server.Client(s.tb, append([]func(*valkey.ClientOption){s.wire.option}, opts...)...)
}

// clients makes n Clients that share a few valkey.Clients; each has a subscriber connection of its own.
func (s *situation) clients(n int, opts ...Option) []*Client {
	const each = 64
	var shared valkey.Client
	clients := make([]*Client, n)
	for i := range clients {
		if i%each == 0 {
			shared = s.dial()
		}
		clients[i] = newQuietClient(s.tb, shared, opts...)
	}
	return clients
}

// newQuietClient is newClient without the log, which would stand in the middle of a benchmark's line.
func newQuietClient(tb testing.TB, c valkey.Client, opts ...Option) *Client {
	tb.Helper()
	client, err := New(c, append([]Option{WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, client.Close()) })
	return client
}

// queued waits until n Clients wait for the key.
func (s *situation) queued(key string, n int) {
	s.tb.Helper()
	queued(s.tb, s.server, s.eye, key, n)
}
