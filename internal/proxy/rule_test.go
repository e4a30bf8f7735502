package proxy_test

import (
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/proxy"
)

func fired(t *testing.T, r *proxy.Rule) {
	t.Helper()
	select {
	case <-r.Fired():
	case <-time.After(10 * time.Second):
		t.Fatal("the rule did not fire")
	}
}

func notFired(t *testing.T, r *proxy.Rule) {
	t.Helper()
	select {
	case <-r.Fired():
		t.Fatal("the rule has fired")
	default:
	}
}

// pipelined has the command that is hit between two others, in one packet.
func pipelined() string {
	return resp("SET", "before", "1") + resp("SET", "target", "1") + resp("SET", "after", "1")
}

// noMoreThan reads until nothing comes or the connection ends, and fails when it
// was anything but a beginning of want.
func (p *peer) noMoreThan(want string) {
	p.t.Helper()
	require.NoError(p.t, p.SetReadDeadline(time.Now().Add(30*time.Millisecond)))
	got, err := io.ReadAll(p.r)
	require.True(p.t, strings.HasPrefix(want, string(got)), "got %q, then %v", got, err)
}

func TestLoseRequest(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	r := p.On("target", proxy.LoseRequest)
	require.Equal(t, "+PONG", a.ask("PING"))
	notFired(t, r)

	a.write(pipelined())
	fired(t, r)
	a.noMoreThan("+OK\r\n") // to "before", if it was quick
	a.send("SET", "after", "1")
	a.silent()
	eventually(t, "what came before is executed", func() bool { return exists(t, s, "before") })
	require.False(t, exists(t, s, "target"))
	require.False(t, exists(t, s, "after"))
	require.Equal(t, "+OK", dial(t, p.Addr()).ask("SET", "target", "1"), "it fires once")
}

func TestLoseRequestCut(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	r := p.On("target", proxy.LoseRequestCut)
	a.write(pipelined())
	fired(t, r)
	require.Zero(t, p.Conns())
	a.over()
	require.False(t, exists(t, s, "target"))
	require.False(t, exists(t, s, "after"))
}

func TestLoseReply(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	r := p.On("target", proxy.LoseReply)
	require.Equal(t, "+OK", a.ask("SET", "first", "1"))
	a.write(pipelined())
	fired(t, r)
	require.True(t, exists(t, s, "target"), "executed once it has fired")
	a.send("SET", "later", "1")
	eventually(t, "what follows is executed too", func() bool { return exists(t, s, "after") && exists(t, s, "later") })
	require.Equal(t, 1, p.Conns())
	a.noMoreThan("+OK\r\n") // to "before", if it was quick
	require.Equal(t, "+OK", dial(t, p.Addr()).ask("SET", "target", "2"), "it fires once")
}

func TestLoseReplyCut(t *testing.T) {
	s, p := setUp(t)
	for i := range 200 {
		// The answer to the first of them must not be taken for the one to the
		// second, nor the connection be closed before that was executed.
		a := dial(t, p.Addr())
		r := p.On("target", proxy.LoseReplyCut)
		a.write(resp("ECHO", "before") + resp("INCR", "target"))
		fired(t, r)
		require.Zero(t, p.Conns())
		require.Equal(t, i+1, atoi(t, get(t, s, "target")))
		a.noMoreThan("$6\r\nbefore\r\n")
	}
}

func TestLoseReplyWaitsForAFrozenServer(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	require.Equal(t, "+PONG", a.ask("PING"))
	cut := p.On("target", proxy.LoseReplyCut)
	s.Freeze()
	a.send("SET", "target", "1")
	a.silent()
	notFired(t, cut)
	s.Thaw()
	fired(t, cut)
	require.True(t, exists(t, s, "target"))
	a.over()
}

func TestLoseReplyOfASubscription(t *testing.T) {
	for _, act := range []proxy.Action{proxy.LoseReply, proxy.LoseReplyCut} {
		for _, hello := range []string{"2", "3"} {
			s, p := setUp(t)
			a := dial(t, p.Addr())
			r := p.On("SUBSCRIBE", act)
			a.write(resp("HELLO", hello) + resp("SUBSCRIBE", "c"))
			fired(t, r)
			if act == proxy.LoseReply {
				require.EqualValues(t, 1, numsub(t, s, "c"))
				require.Equal(t, 1, p.ConnsRole(proxy.Messages))
			} else {
				a.over()
			}
		}
	}
}

func TestRuleFiresWhenItsConnectionEnds(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	require.Equal(t, "+PONG", a.ask("PING"))
	s.Freeze()
	r := p.On("target", proxy.LoseReply)
	a.send("SET", "target", "1")
	a.silent()
	notFired(t, r)
	p.Cut()
	fired(t, r)
}

func TestDelayOneCommand(t *testing.T) {
	const d = 50 * time.Millisecond
	s, p := setUp(t)
	a, other := dial(t, p.Addr()), dial(t, p.Addr())
	require.Equal(t, "+PONG", other.ask("PING"))
	r := p.On("target", proxy.Delay(d))
	start := time.Now()
	a.write(pipelined())
	fired(t, r)
	require.Equal(t, "+OK", a.line(), "what came before is not held back")
	require.Equal(t, "+PONG", other.ask("PING"), "nor other connections")
	if time.Since(start) < d {
		require.False(t, exists(t, s, "target"))
	}
	require.Equal(t, "+OK", a.line())
	require.GreaterOrEqual(t, time.Since(start), d)
	require.Equal(t, "+OK", a.line())
	require.Equal(t, "+PONG", a.ask("PING"))
}

func TestOldestRuleFirstAndOneACommand(t *testing.T) {
	_, p := setUp(t)
	a := dial(t, p.Addr())
	first := p.On("target", proxy.Delay(0))
	other := p.On("nothing like it", proxy.LoseRequest)
	second := p.On("SET", proxy.Delay(0))
	require.Equal(t, "+OK", a.ask("SET", "target", "1"))
	fired(t, first)
	notFired(t, second)
	require.Equal(t, "+OK", a.ask("SET", "target", "1"))
	fired(t, second)
	notFired(t, other)
}

func TestRuleSeesACommandInPieces(t *testing.T) {
	s, p := setUp(t)
	a := dial(t, p.Addr())
	r := p.On("target", proxy.LoseRequest)
	for _, b := range []byte(resp("SET", "before", "1") + resp("SET", "target", "1")) {
		a.write(string(b))
	}
	fired(t, r)
	eventually(t, "executed", func() bool { return exists(t, s, "before") })
	require.False(t, exists(t, s, "target"))
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	return n
}

func TestForgottenRulesDoNothing(t *testing.T) {
	_, p := setUp(t)
	r := p.On("target", proxy.LoseRequestCut)
	p.Forget()
	require.Equal(t, "+OK", dial(t, p.Addr()).ask("SET", "target", "1"))
	notFired(t, r)
}
