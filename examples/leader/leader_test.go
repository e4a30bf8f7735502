//go:build unix

package main

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/examples/internal/replicas"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

// candidates starts three, and returns when one leads, whose line that is, and the others wait in line.
func candidates(t *testing.T, s *testserver.Server, lease time.Duration) (*replicas.Crew, replicas.Line) {
	t.Helper()
	crew := replicas.New(t)
	for _, name := range []string{"a", "b", "c"} {
		crew.Start(name, "-url", "redis://"+s.Addr(), "-lease", lease.String(), "-every", "20ms")
	}
	leads := crew.Await("leads")
	require.Eventually(t, func() bool {
		n, err := s.Do("ZCARD", "{leader:mailer}:queue")
		require.NoError(t, err)
		waiting, err := n.AsInt64()
		return err == nil && waiting == 2
	}, 10*time.Second, time.Millisecond)
	return crew, leads
}

func term(t *testing.T, l replicas.Line) int64 {
	t.Helper()
	fields := strings.Fields(l.Text)
	n, err := strconv.ParseInt(fields[1], 10, 64)
	require.NoError(t, err, l.Text)
	return n
}

func TestALeaderThatIsToldToStopHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		const lease = time.Minute // nobody waits for that
		crew, old := candidates(t, s, lease)
		for range 2 {
			old.From.Await("works")
			old.From.Signal(syscall.SIGTERM)
			led := old.From.Await("led")
			require.Contains(t, led.Text, "terminated")
			next := crew.Await("leads")
			require.NotEqual(t, old.From, next.From)
			require.Greater(t, term(t, next), term(t, old))
			require.Less(t, next.At.Sub(led.At), time.Second)
			require.Zero(t, old.From.Exit())
			old = next
		}
		old.From.Await("works")
	})
}

func TestADeadLeaderIsReplacedBeforeItsLeaseEnds(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	crew, old := candidates(t, s, time.Minute)
	old.From.Await("works")
	old.From.Signal(syscall.SIGKILL)
	next := crew.Await("leads")
	require.Greater(t, term(t, next), term(t, old))
	next.From.Await("works")
}

// A leader that is stopped longer than its lease has a successor, and does no more work of its term when it goes on.
func TestAStoppedLeaderDoesNotWorkOnWhenItGoesOn(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	crew, old := candidates(t, s, time.Second)
	old.From.Await("works")
	old.From.Signal(syscall.SIGSTOP)
	next := crew.Await("leads")
	require.Greater(t, term(t, next), term(t, old))
	next.From.Await("works")
	goesOn := time.Now()
	old.From.Signal(syscall.SIGCONT)
	led := old.From.Await("led")
	require.Equal(t, term(t, old), term(t, led))
	require.Contains(t, led.Text, "lease of")
	for _, l := range crew.Log() {
		require.False(t, l.From == old.From && l.At.After(goesOn) && strings.HasPrefix(l.Text, "works"), "it worked on")
	}
}

// A leader whose lock is taken away steps down at once, and another leads. It stands again, and can be elected again.
func TestALeaderThatIsDeposedStepsDownAtOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	crew, old := candidates(t, s, time.Minute)
	operator, err := valkeysync.New(s.Client(t))
	require.NoError(t, err)
	defer operator.Close()
	for range 3 {
		old.From.Await("works")
		require.NoError(t, operator.ForceUnlock(t.Context(), "leader:mailer"))
		lost := time.Now()
		next := crew.Await("leads")
		require.NotEqual(t, old.From, next.From)
		require.Greater(t, term(t, next), term(t, old))
		led := old.From.Await("led")
		require.Contains(t, led.Text, "lease of")
		require.Less(t, led.At.Sub(lost), time.Second)
		old = next
	}
}
