package valkeysync

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The lost-reply matrix: whichever request of whichever script is lost, or its reply, or comes late, and
// whether the connection breaks or goes silent: nobody gets in who should not, everybody is served, the
// callers are told the truth, and nothing is left behind.

// faults are what can happen to one request.
var faults = []struct {
	name   string
	action proxy.Action
	late   time.Duration // how much later it is run
}{
	{"request lost, silent", proxy.LoseRequest, 0},
	{"request lost, cut", proxy.LoseRequestCut, 0},
	{"reply lost, silent", proxy.LoseReply, 0},
	{"reply lost, cut", proxy.LoseReplyCut, 0},
	// The connection is given up after a second; what is under way on it is run all the same.
	{"late", proxy.Delay(1500 * time.Millisecond), 1500 * time.Millisecond},
	{"later than its latest time", proxy.Delay(requestLimit + time.Second), requestLimit + time.Second},
}

// cell is one scenario with one fault.
type cell struct {
	t      *testing.T
	s      *testserver.Server
	proxy  *proxy.Proxy
	key    string
	fault  func() <-chan struct{} // arms the fault, and tells when it has happened
	inside atomic.Int32           // how many hold

	far, near *Mutex // of the Client behind the proxy, and of one that has no trouble
	third     *Mutex // of a third Client
	token     int64
}

// matrix are the scenarios: each ends with the lock free.
var matrix = []struct {
	name, script string
	run          func(c *cell)
}{
	{"acquire uncontended", "acquire", func(c *cell) {
		fired := c.fault()
		far := c.lock(c.far)
		happened(c.t, fired)
		waits := take(context.Background(), c.near)
		queued(c.t, c.s, c.near.c, c.key, 1)
		c.unlock(c.far, far)
		c.unlock(c.near, c.enter(waits.got(c.t, soon)))
	}},
	{"acquire that queues", "acquire", func(c *cell) {
		near := c.lock(c.near)
		fired := c.fault()
		waits := take(context.Background(), c.far)
		happened(c.t, fired)
		queued(c.t, c.s, c.near.c, c.key, 1)
		behind := take(context.Background(), c.third)
		queued(c.t, c.s, c.near.c, c.key, 2)
		c.unlock(c.near, near)
		c.unlock(c.far, c.enter(waits.got(c.t, soon)))
		c.unlock(c.third, c.enter(behind.got(c.t, soon)))
	}},
	{"acquire uncontended that is given up", "acquire", func(c *cell) {
		ctx, cancel := context.WithCancel(context.Background())
		fired := c.fault()
		waits := take(ctx, c.far)
		happened(c.t, fired)
		cancel()
		waits.wait(c.t, time.Second)
		if waits.err == nil { // its connection was cut, and it was quick
			c.unlock(c.far, c.enter(waits.ctx))
		}
	}},
	{"acquire that is given up", "acquire", func(c *cell) {
		near := c.lock(c.near)
		ctx, cancel := context.WithCancel(context.Background())
		fired := c.fault()
		waits := take(ctx, c.far)
		happened(c.t, fired)
		cancel()
		require.ErrorIs(c.t, waits.failed(c.t, time.Second), context.Canceled)
		c.unlock(c.near, near)
	}},
	{"release", "release", func(c *cell) {
		far := c.lock(c.far)
		waits := take(context.Background(), c.near)
		queued(c.t, c.s, c.near.c, c.key, 1)
		fired := c.fault()
		c.unlock(c.far, far)
		happened(c.t, fired)
		c.unlock(c.near, c.enter(waits.got(c.t, soon)))
	}},
	{"release that queues again", "release", func(c *cell) {
		far := c.lock(c.far)
		again := take(context.Background(), c.far)
		waits := take(context.Background(), c.near)
		queued(c.t, c.s, c.near.c, c.key, 1)
		eventually(c.t, soon, "a goroutine waits here", func() bool { return waitingHere(c.far) == 1 })
		fired := c.fault()
		c.unlock(c.far, far)
		happened(c.t, fired)
		c.unlock(c.near, c.enter(waits.got(c.t, soon)))
		c.unlock(c.far, c.enter(again.got(c.t, soon)))
	}},
	{"release that locks again", "release", func(c *cell) {
		far := c.lock(c.far)
		again := take(context.Background(), c.far)
		eventually(c.t, soon, "a goroutine waits here", func() bool { return waitingHere(c.far) == 1 })
		fired := c.fault()
		c.unlock(c.far, far)
		happened(c.t, fired)
		c.unlock(c.far, c.enter(again.got(c.t, soon)))
	}},
	{"leave", "leave", func(c *cell) {
		near := c.lock(c.near)
		ctx, cancel := context.WithCancel(context.Background())
		waits := take(ctx, c.far)
		queued(c.t, c.s, c.near.c, c.key, 1)
		fired := c.fault()
		cancel()
		require.ErrorIs(c.t, waits.failed(c.t, time.Second), context.Canceled)
		behind := take(context.Background(), c.third)
		happened(c.t, fired)
		c.unlock(c.near, near)
		c.unlock(c.third, c.enter(behind.got(c.t, soon)))
	}},
	{"check that finds it taken", "check", func(c *cell) {
		command(c.t, c.s, "SET", c.key, "foreign", "PX", "60000")
		fired := c.fault()
		waits := take(context.Background(), c.far) // it checks as soon as it watches the key
		happened(c.t, fired)
		command(c.t, c.s, "DEL", c.key)
		c.unlock(c.far, c.enter(waits.got(c.t, soon)))
	}},
	{"check that gets it", "check", func(c *cell) {
		command(c.t, c.s, "SET", c.key, "foreign", "PX", "700")
		waits := take(context.Background(), c.far)
		watched(c.t, c.s, c.key, 1)
		fired := c.fault()
		happened(c.t, fired) // when the foreign lease ends, at the latest
		c.unlock(c.far, c.enter(waits.got(c.t, soon)))
	}},
	{"renew", "renew", func(c *cell) {
		fired := c.fault()
		far := c.lock(c.far)
		waits := take(context.Background(), c.near)
		happened(c.t, fired)
		l, _ := FromContext(far)
		first := l.Until()
		eventually(c.t, soon, "renewed", func() bool { return l.Until().After(first) })
		require.NoError(c.t, far.Err())
		c.unlock(c.far, far)
		c.unlock(c.near, c.enter(waits.got(c.t, soon)))
	}},
}

// waitingHere is how many goroutines of m's Client wait for it.
func waitingHere(m *Mutex) int {
	g, err := m.c.enter(m.kind, &m.keys)
	if err != nil {
		return 0
	}
	defer m.c.leave(g)
	g.mu.Lock()
	defer g.unlock()
	return len(g.waiters)
}

func (c *cell) lock(m *Mutex) context.Context {
	c.t.Helper()
	return c.enter(lock(c.t, m))
}

// enter: somebody holds now, alone, with the highest token.
func (c *cell) enter(held context.Context) context.Context {
	c.t.Helper()
	require.EqualValues(c.t, 1, c.inside.Add(1), "exclusion")
	require.NoError(c.t, held.Err())
	token := tokenOf(c.t, held)
	require.Greater(c.t, token, c.token)
	c.token = token
	return held
}

func (c *cell) unlock(m *Mutex, held context.Context) {
	c.t.Helper()
	c.inside.Add(-1)
	var err error
	within(c.t, soon, "unlock", func() {
		for {
			// On a busy machine it may be found out late that a connection is dead.
			if err = m.UnlockContext(held); !errors.Is(err, context.DeadlineExceeded) {
				return
			}
		}
	})
	require.NoError(c.t, err)
}

// Not parallel: it needs both cores, and its requests have short limits.
func TestEveryRequestMayBeLostOrLate(t *testing.T) {
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		digests := map[string]string{}
		for name, source := range protocol.Sources() {
			digest, err := ptr(command(t, s, "SCRIPT", "LOAD", source)).ToString()
			require.NoError(t, err)
			digests[name] = digest
		}
		crash := WithCrashDetection(10 * time.Second)
		near, third := on(t, s, crash), on(t, s, crash)
		var cells []sub
		for _, scenario := range matrix {
			for _, f := range faults {
				name := scenario.name + ": " + f.name
				p := proxy.Start(t, s.Addr())
				// Long enough that a hold left behind does not lapse before it is found; or else short
				// enough that renewals come, and early enough for a silent connection to be noticed first.
				lease := 2 * soon
				if scenario.script == "renew" {
					lease = 6 * time.Second
				}
				far := through(t, s, p, crash, WithLease(lease))
				cells = append(cells, sub{name, func(t *testing.T) {
					c := &cell{
						t: t, s: s, proxy: p, key: name,
						far: far.Mutex(name), near: near.Mutex(name), third: third.Mutex(name),
					}
					late := make(chan struct{})
					c.fault = func() <-chan struct{} {
						fired := p.On(digests[scenario.script], f.action).Fired()
						go func() {
							defer close(late)
							<-fired
							<-time.After(f.late)
						}()
						return fired
					}
					scenario.run(c)
					require.Zero(t, c.inside.Load())
					// The late request has been run, and the connection that it came by has ended: there is
					// one for commands and one for messages.
					<-late
					eventually(t, soon, "the connection has ended", func() bool { return p.Conns() <= 2 })
					nothingLeft(t, s, name)
					c.unlock(c.third, c.enter(lock(t, c.third)))
					require.Empty(t, far.Stats().Lost)
				}})
			}
		}
		together(t, cells...)
		require.Empty(t, near.Stats().Lost)
		require.Empty(t, third.Stats().Lost)
	})
}
