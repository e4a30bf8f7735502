package proxy_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a bare client: what it gets and does not get must be the proxy's
// doing, not that of a library which retries.
type peer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return &peer{t: t, Conn: c, r: bufio.NewReader(c)}
}

// resp is a command as clients send it.
func resp(args ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b.String()
}

func (p *peer) send(args ...string) { p.write(resp(args...)) }

func (p *peer) write(raw string) {
	p.t.Helper()
	_, err := io.WriteString(p, raw)
	require.NoError(p.t, err)
}

// line reads one line of a reply.
func (p *peer) line() string {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(10*time.Second)))
	s, err := p.r.ReadString('\n')
	require.NoError(p.t, err)
	return strings.TrimSpace(s)
}

// ask sends a command whose reply is one line.
func (p *peer) ask(args ...string) string {
	p.t.Helper()
	p.send(args...)
	return p.line()
}

// silent fails when anything comes, or the connection ends, within a while.
func (p *peer) silent() {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	b, err := p.r.ReadByte()
	require.ErrorIs(p.t, err, os.ErrDeadlineExceeded, "got %q", b)
}

// over returns how the connection ended, and fails when it does not.
func (p *peer) over() error {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err := io.Copy(io.Discard, p.r)
	require.NotErrorIs(p.t, err, os.ErrDeadlineExceeded)
	if err == nil {
		err = io.EOF
	}
	return err
}

func setUp(t *testing.T) (*testserver.Server, *proxy.Proxy) {
	t.Helper()
	s := testserver.Start(t, testserver.Valkey)
	return s, proxy.Start(t, s.Addr())
}

func get(t *testing.T, s *testserver.Server, key string) string {
	t.Helper()
	m, err := s.Do("GET", key)
	require.NoError(t, err)
	v, err := m.ToString()
	require.NoError(t, err)
	return v
}

func exists(t *testing.T, s *testserver.Server, key string) bool {
	t.Helper()
	m, err := s.Do("EXISTS", key)
	require.NoError(t, err)
	n, err := m.AsInt64()
	require.NoError(t, err)
	return n > 0
}

// numsub is how many subscribers the server believes a channel to have.
func numsub(t *testing.T, s *testserver.Server, channel string) int64 {
	t.Helper()
	m, err := s.Do("PUBSUB", "NUMSUB", channel)
	require.NoError(t, err)
	counts, err := m.AsIntMap()
	require.NoError(t, err)
	return counts[channel]
}

func (p *peer) subscribe(channel string) {
	p.t.Helper()
	p.send("SUBSCRIBE", channel)
	for _, want := range []string{"*3", "$9", "subscribe", fmt.Sprintf("$%d", len(channel)), channel, ":1"} {
		require.Equal(p.t, want, p.line())
	}
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 10*time.Second, time.Millisecond, what)
}

func TestForwardsBothWays(t *testing.T) {
	_, p := setUp(t)
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	require.Equal(t, "+OK", a.ask("SET", "k", "v"))
	require.Equal(t, "$1", b.ask("GET", "k"))
	require.Equal(t, "v", b.line())
	require.Equal(t, 2, p.Conns())

	require.NoError(t, a.Close())
	eventually(t, "a closed connection is forgotten", func() bool { return p.Conns() == 1 })
}

func TestForwardsWhatIsNoCommand(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	a.write("PING\r\nSET inline 1\r\n")
	require.Equal(t, "+PONG", a.line())
	require.Equal(t, "+OK", a.line())
	require.Equal(t, "1", get(t, s, "inline"))

	a.write("*1\r\n+nonsense\r\n")
	require.Contains(t, a.line(), "Protocol error")
	require.ErrorIs(t, a.over(), io.EOF)
}

func TestLargeCommandsAndReplies(t *testing.T) {
	_, p := setUp(t)
	p.SetDelay(time.Millisecond, time.Millisecond)
	a := dial(t, p.Addr())
	big := strings.Repeat("x", 20<<20)
	require.Equal(t, "+OK", a.ask("SET", "big", big))
	require.Equal(t, fmt.Sprintf("$%d", len(big)), a.ask("GET", "big"))
	require.Equal(t, big, a.line())
}

func TestServerThatIsNotThere(t *testing.T) {
	s, p := setUp(t)
	open := dial(t, p.Addr())
	require.Equal(t, "+PONG", open.ask("PING"))
	s.Kill()
	open.over()
	dial(t, p.Addr()).over()
	s.Restart()
	require.Equal(t, "+PONG", dial(t, p.Addr()).ask("PING"))
}

func TestCutClosesWhatIsOpenOnly(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	a.subscribe("c")
	p.Cut()
	require.Zero(t, p.Conns())
	a.over()
	eventually(t, "the server's side is closed too", func() bool { return numsub(t, s, "c") == 0 })
	require.Equal(t, "+PONG", dial(t, p.Addr()).ask("PING"))
}

func TestResetIsAReset(t *testing.T) {
	_, p := setUp(t)
	a := dial(t, p.Addr())
	require.Equal(t, "+PONG", a.ask("PING"))
	p.Reset()
	require.ErrorIs(t, a.over(), syscall.ECONNRESET)
}

func TestRefuse(t *testing.T) {
	_, p := setUp(t)
	open := dial(t, p.Addr())
	require.Equal(t, "+PONG", open.ask("PING"))
	p.Refuse(true)
	dial(t, p.Addr()).over()
	require.Equal(t, "+PONG", open.ask("PING"), "open ones go on")
	p.Refuse(false)
	require.Equal(t, "+PONG", dial(t, p.Addr()).ask("PING"))
}

func TestRoles(t *testing.T) {
	s, p := setUp(t)
	commands, messages := dial(t, p.Addr()), dial(t, p.Addr())
	require.Equal(t, "+PONG", commands.ask("PING"))
	require.Equal(t, "+PONG", messages.ask("PING"))
	require.Equal(t, 2, p.ConnsRole(proxy.Commands))

	messages.subscribe("c")
	require.Equal(t, 1, p.ConnsRole(proxy.Commands))
	require.Equal(t, 1, p.ConnsRole(proxy.Messages))
	for _, sub := range []string{resp("psubscribe", "c*"), resp("SSubscribe", "c"), "subscribe c\r\n"} {
		other := dial(t, p.Addr())
		other.write(sub)
		other.line()
	}
	require.Equal(t, 4, p.ConnsRole(proxy.Messages))

	t.Run("blackhole", func(t *testing.T) {
		p.BlackholeRole(proxy.Commands, proxy.Both, true)
		deaf := dial(t, p.Addr())
		deaf.send("PING")
		deaf.silent()
		_, err := s.Do("PUBLISH", "c", "m")
		require.NoError(t, err)
		require.Equal(t, "*3", messages.line(), "messages pass")
		p.BlackholeRole(proxy.Commands, proxy.Both, false)
		deaf.send("PING")
		deaf.silent()
	})
	t.Run("delay", func(t *testing.T) {
		p.SetDelayRole(proxy.Messages, 0, time.Hour)
		late := dial(t, p.Addr())
		require.Equal(t, "+PONG", late.ask("PING"))
		late.send("SUBSCRIBE", "d")
		eventually(t, "subscribed", func() bool { return numsub(t, s, "d") == 1 })
		late.silent() // the confirmation is held back already
		p.SetDelay(0, 0)
	})
	t.Run("cut", func(t *testing.T) {
		p.CutRole(proxy.Messages)
		messages.over()
		require.Zero(t, p.ConnsRole(proxy.Messages))
		require.Equal(t, "+PONG", commands.ask("PING"))
	})
}

func TestRoleChangeLeavesTheHole(t *testing.T) {
	s, p := setUp(t)
	p.BlackholeRole(proxy.Commands, proxy.ToClient, true)
	fresh, lossy := dial(t, p.Addr()), dial(t, p.Addr())
	fresh.subscribe("c")

	lossy.send("SET", "k", "v") // its reply is lost
	eventually(t, "executed", func() bool { return exists(t, s, "k") })
	lossy.silent()
	lossy.send("SUBSCRIBE", "d")
	lossy.silent()
	require.Zero(t, numsub(t, s, "d"), "a connection with a gap is dead both ways")
}

func TestBlackholeDirections(t *testing.T) {
	for name, d := range map[string]proxy.Direction{
		"to server": proxy.ToServer, "to client": proxy.ToClient, "both": proxy.Both,
	} {
		t.Run(name, func(t *testing.T) {
			s, p := setUp(t)
			idle, busy, quitter := dial(t, p.Addr()), dial(t, p.Addr()), dial(t, p.Addr())
			require.Equal(t, "+PONG", idle.ask("PING"))
			require.Equal(t, "+PONG", busy.ask("PING"))
			quitter.subscribe("c")

			p.Blackhole(d, true)
			fresh := dial(t, p.Addr())
			busy.send("SET", "busy", "1")
			fresh.send("SET", "fresh", "1")
			require.NoError(t, quitter.Close())
			busy.silent()
			fresh.silent()
			if d&proxy.ToServer == 0 {
				require.True(t, exists(t, s, "busy") && exists(t, s, "fresh"))
				eventually(t, "the close arrives", func() bool { return numsub(t, s, "c") == 0 })
			} else {
				require.False(t, exists(t, s, "busy") || exists(t, s, "fresh"))
				require.EqualValues(t, 1, numsub(t, s, "c"), "the close is swallowed as well")
			}

			p.Blackhole(d, false)
			busy.send("SET", "later", "1")
			busy.silent()
			require.False(t, exists(t, s, "later"), "dead for good")
			require.Equal(t, "+PONG", idle.ask("PING"), "nothing was lost on it")
			require.Equal(t, "+PONG", dial(t, p.Addr()).ask("PING"))
			eventually(t, "the close arrives late", func() bool { return numsub(t, s, "c") == 0 })

			// A dead connection still ends with its server.
			s.Kill()
			busy.over()
		})
	}
}

func TestBlackholeHidesAServerThatIsGone(t *testing.T) {
	s, p := setUp(t)
	open := dial(t, p.Addr())
	require.Equal(t, "+PONG", open.ask("PING"))
	p.Blackhole(proxy.ToClient, true)
	s.Kill()
	open.silent()
	fresh := dial(t, p.Addr())
	fresh.silent()
	p.Blackhole(proxy.ToClient, false)
	open.over()
	fresh.over()
}

func TestBlackholeSwallowsWhatIsUnderWay(t *testing.T) {
	s, p := setUp(t)
	p.SetDelay(20*time.Millisecond, 0)
	a := dial(t, p.Addr())
	require.Equal(t, "+PONG", a.ask("PING"))
	a.send("SET", "k", "v")
	p.Blackhole(proxy.ToServer, true)
	a.silent()
	require.False(t, exists(t, s, "k"))
}

func TestDelayIsAccurate(t *testing.T) {
	_, p := setUp(t)
	a := dial(t, p.Addr())
	const n = 60
	// The best round trip, since others work on this machine too; and none may
	// be too short.
	best := func() time.Duration {
		min := time.Hour
		for range n {
			start := time.Now()
			require.Equal(t, "+PONG", a.ask("PING"))
			if d := time.Since(start); d < min {
				min = d
			}
		}
		return min
	}
	direct := best()
	for _, d := range [][2]time.Duration{{500 * time.Microsecond, 0}, {0, 700 * time.Microsecond}, {5 * time.Millisecond, 3 * time.Millisecond}} {
		p.SetDelay(d[0], d[1])
		got := best()
		t.Logf("delay %v: %v, without: %v", d, got, direct)
		require.GreaterOrEqual(t, got, d[0]+d[1])
		require.Less(t, got, d[0]+d[1]+direct+2*300*time.Microsecond)
	}
}

func TestDelayKeepsThroughputAndOrder(t *testing.T) {
	_, p := setUp(t)
	const delay, n = 50 * time.Millisecond, 20000
	p.SetDelay(delay, delay)
	a := dial(t, p.Addr())
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			if _, err := io.WriteString(a, resp("ECHO", fmt.Sprint(i))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range n {
		a.line()
		require.Equal(t, fmt.Sprint(i), a.line())
	}
	wg.Wait()
	took := time.Since(start)
	require.GreaterOrEqual(t, took, 2*delay)
	require.Less(t, took, n*delay/10, "they travel together")
}

func TestShorterDelayDoesNotOvertake(t *testing.T) {
	_, p := setUp(t)
	a := dial(t, p.Addr())
	p.SetDelay(100*time.Millisecond, 0)
	taken := p.On("first", proxy.Delay(0))
	a.send("ECHO", "first")
	fired(t, taken)
	p.SetDelay(0, 0)
	a.send("ECHO", "second")
	a.line()
	first := a.line()
	a.line()
	require.Equal(t, []string{"first", "second"}, []string{first, a.line()})
}

func TestCloseEndsEverything(t *testing.T) {
	s := testserver.Start(t, testserver.Valkey)
	before := goleak.IgnoreCurrent()
	p, err := proxy.Listen(s.Addr())
	require.NoError(t, err)
	p.SetDelay(time.Hour, time.Hour)
	p.On("nothing", proxy.LoseReply)
	var peers []*peer
	for range 5 {
		a := dial(t, p.Addr())
		a.send("PING")
		peers = append(peers, a)
	}
	eventually(t, "all are in", func() bool { return p.Conns() == 5 })
	p.Close()
	p.Close()
	for _, a := range peers {
		a.over()
	}
	_, err = net.Dial("tcp", p.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	goleak.VerifyNone(t, before)
}

// TestFaultsAtRandom has no more to say than that nothing hangs, leaks or races
// whatever happens together.
func TestFaultsAtRandom(t *testing.T) {
	_, p := setUp(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue // reset before it was open
				}
				_ = c.SetDeadline(time.Now().Add(5 * time.Millisecond))
				for j := range 5 {
					if _, err := io.WriteString(c, resp("SET", fmt.Sprintf("k%d-%d", w, j), "v")+resp("SUBSCRIBE", "c")); err != nil {
						break
					}
					if _, err := c.Read(make([]byte, 64)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						break
					}
				}
				_ = c.Close()
			}
		})
	}
	actions := []proxy.Action{proxy.LoseRequest, proxy.LoseRequestCut, proxy.LoseReply, proxy.LoseReplyCut, proxy.Delay(time.Millisecond)}
	for i := range 300 {
		p.On("k", actions[i%len(actions)])
		p.SetDelayRole(proxy.Role(i%2), time.Duration(i%3)*time.Millisecond, 0)
		p.BlackholeRole(proxy.Role(i/2%2), proxy.Direction(i%3+1), i%5 == 0)
		p.Refuse(i%7 == 0)
		switch i % 11 {
		case 0:
			p.Cut()
		case 1:
			p.Reset()
		}
		time.Sleep(time.Millisecond) // let traffic come in between: there is nothing to wait for
	}
	close(stop)
	wg.Wait()
}
