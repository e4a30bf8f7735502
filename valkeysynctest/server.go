// Package valkeysynctest is for the tests of programs that use valkeysync: a server inside the test, with
// nothing to install and nothing on the network, Clients on it, and ways to have them lose what they hold.
// It is made of miniredis: go get github.com/valkeysync/valkeysync/valkeysynctest adds that to your go.sum.
//
//	func TestReport(t *testing.T) {
//		locks := valkeysynctest.New(t).Client()
//		report := NewReport(locks)
//		…
//	}
//
// Everything ends with the test. Several Clients of one server stand for several processes; [Server.Lose]
// takes a lock from its holder, [Server.Kill] ends a holder as SIGKILL does, [Server.Cut] takes the network away
// and [Server.Mend] brings it back.
//
// It works inside a testing/synctest bubble, where time is the bubble's own: leases of hours end in no time,
// and when something happens can be asserted to the millisecond. Make the Server inside the bubble, with the
// bubble's t.
//
// The server is [miniredis], whose leases run by the clock (or the bubble's). It has no keyspace notifications,
// so what does not pass through an unlock of valkeysync is noticed by timers, and Watch cannot be used; and no
// cluster, no replicas and no ACL. What depends on those needs a real server.
//
// [miniredis]: https://github.com/alicebob/miniredis
package valkeysynctest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

const (
	// never is longer than any test, by its own clock or a bubble's.
	never = 1000 * time.Hour
	// waitLimit is how long AwaitWaiting waits.
	waitLimit = 10 * time.Second
	waitPause = time.Millisecond
)

// Server is a server inside a test. Its methods may be called from any goroutine; those that cannot do what
// they are asked end the test, so they belong in the test's own goroutine.
type Server struct {
	t    testing.TB
	opts []valkeysync.Option
	mini *miniredis.Miniredis

	mu      sync.Mutex
	down    bool // for all
	clients int
	links   map[*valkeysync.Client]*link
	all     []*link
	admin   *valkeysync.Client // made by the first who needs it
}

// New starts a server that ends with the test. The options are those of all its Clients.
func New(t testing.TB, opts ...valkeysync.Option) *Server {
	s := &Server{t: t, opts: opts, mini: miniredis.NewMiniRedis(), links: map[*valkeysync.Client]*link{}}
	s.mini.ClockTTL(true)
	t.Cleanup(s.mini.Close)
	return s
}

// Client makes a Client, with its own connections to the server, as another process would have them. It logs to the
// test's log and is called "client 1", "client 2" … where the options do not say otherwise: those of the Server, and
// then opts. It is closed when the test ends.
func (s *Server) Client(opts ...valkeysync.Option) *valkeysync.Client {
	s.t.Helper()
	s.mu.Lock()
	s.clients++
	name := fmt.Sprintf("client %d", s.clients)
	s.mu.Unlock()
	c, l := s.client(name, append(append([]valkeysync.Option{}, s.opts...), opts...))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[c] = l
	return c
}

func (s *Server) client(name string, opts []valkeysync.Option) (*valkeysync.Client, *link) {
	s.t.Helper()
	raw, l := s.dial()
	locks, err := valkeysync.New(raw, append([]valkeysync.Option{
		valkeysync.WithName(name), valkeysync.WithLogger(logger(s.t)),
	}, opts...)...)
	if err != nil {
		s.t.Fatalf("valkeysynctest: %v", err)
	}
	s.t.Cleanup(func() {
		l.mu.Lock()
		down := l.down
		l.mu.Unlock()
		if down {
			raw.Close() // or Close would try for seconds to give back what it held
		}
		_ = locks.Close()
	})
	return locks, l
}

// Valkey makes a valkey.Client on the server, for programs that make their valkeysync.Client themselves, and for
// looking at keys. It is closed when the test ends. Cut without a Client, and Mend, reach it too.
func (s *Server) Valkey() valkey.Client {
	s.t.Helper()
	c, _ := s.dial()
	return c
}

func (s *Server) dial() (valkey.Client, *link) {
	s.t.Helper()
	l := newLink()
	s.mu.Lock()
	if s.down {
		s.mu.Unlock()
		s.t.Fatal("valkeysynctest: the server is cut off: make Clients before Cut, or after Mend")
	}
	s.all = append(s.all, l)
	s.mu.Unlock()
	c, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{"valkeysynctest:1"}, DisableCache: true, ForceSingleClient: true,
		Dialer:           net.Dialer{KeepAlive: never}, // no PINGs of valkey-go's own: the connection is in memory
		ConnWriteTimeout: never,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			return l.dial(s.mini.Dial)
		},
	})
	if err != nil {
		s.t.Fatalf("valkeysynctest: %v", err)
	}
	s.t.Cleanup(c.Close)
	return c, l
}

// Lose has whoever holds the lock lose it, now: the holder is told at once (its context ends, with
// valkeysync.CauseTaken or CauseDeleted), and the next who waits gets it. It blocks until the server has done it. The
// key is the whole one, with the prefix.
func (s *Server) Lose(key string) {
	s.t.Helper()
	if err := s.own().ForceUnlock(context.Background(), key); err != nil {
		s.t.Fatalf("valkeysynctest: Lose(%q): %v", key, err)
	}
}

// Flush empties the server, as a failover that loses everything or an operator's FLUSHALL does. Holders find out with
// their next renewal, within a third of their lease (valkeysync.CauseDeleted); meanwhile another may get the lock.
func (s *Server) Flush() { s.mini.FlushAll() }

// Kill ends the Client's connections for ever, as the death of its process does: what it holds is free after
// the grace (valkeysync.WithCrashDetection) and a quarter of it, if somebody waits for it by then. The Client itself
// lives on in the test, and loses what it held (valkeysync.CauseUnreachable) before the other gets it.
func (s *Server) Kill(c *valkeysync.Client) {
	s.t.Helper()
	s.link(c, "Kill").cut(true)
}

// Cut ends the connections of the Clients, and lets them make no new ones until Mend: their network is away. Without
// a Client it is the server that is away, for all; meanwhile no Client can be made.
func (s *Server) Cut(clients ...*valkeysync.Client) {
	s.t.Helper()
	for _, l := range s.which(clients, "Cut", true) {
		l.cut(false)
	}
}

// Mend is the end of Cut, for the Clients or for all. It does not block until they are connected again, which they
// see to themselves, within a second. One that was killed stays so.
func (s *Server) Mend(clients ...*valkeysync.Client) {
	s.t.Helper()
	for _, l := range s.which(clients, "Mend", false) {
		if !l.mend() && len(clients) > 0 {
			s.t.Fatal("valkeysynctest: Mend of a Client that was killed")
		}
	}
}

// AwaitWaiting blocks until n processes (Clients) wait for the lock, and ends the test if that takes longer than
// 10 s. The key is the whole one, with the prefix.
func (s *Server) AwaitWaiting(key string, n int) {
	s.t.Helper()
	locks := s.own()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	for {
		st, err := locks.Status(ctx, key)
		if err == nil && st.Waiting == n {
			return
		}
		select {
		case <-time.After(waitPause):
		case <-ctx.Done():
			s.t.Fatalf("valkeysynctest: AwaitWaiting(%q, %d): %d wait after %v (%v)", key, n, st.Waiting, waitLimit, err)
		}
	}
}

// own is a Client that is nobody's, which Cut does not reach.
func (s *Server) own() *valkeysync.Client {
	s.t.Helper()
	s.mu.Lock()
	c := s.admin
	s.mu.Unlock()
	if c != nil {
		return c
	}
	c, l := s.client("valkeysynctest", nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		if s.all[i] == l {
			s.all = append(s.all[:i], s.all[i+1:]...)
			break
		}
	}
	s.admin = c
	return c
}

func (s *Server) which(clients []*valkeysync.Client, what string, down bool) []*link {
	s.t.Helper()
	if len(clients) == 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.down = down
		return append([]*link{}, s.all...)
	}
	var links []*link
	for _, c := range clients {
		links = append(links, s.link(c, what))
	}
	return links
}

func (s *Server) link(c *valkeysync.Client, what string) *link {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.links[c]
	if l == nil {
		s.t.Fatalf("valkeysynctest: %s of a Client that is not of this Server", what)
	}
	return l
}
