//go:build unix

package main

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/examples/internal/replicas"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

// runs counts how often the job was done for each time.
func runs(t *testing.T, crew *replicas.Crew) map[time.Time]int {
	t.Helper()
	n := map[time.Time]int{}
	for _, l := range crew.Log() {
		if rest, ok := strings.CutPrefix(l.Text, "done "); ok {
			due, err := time.Parse(time.RFC3339Nano, rest)
			require.NoError(t, err)
			n[due]++
		}
	}
	return n
}

// Clocks differ by far more than the job takes: each time is done once, and none is left out.
func TestEachTimeIsDoneOnceThoughClocksDiffer(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		crew := replicas.New(t)
		for _, skew := range []string{"0s", "70ms", "-100ms", "100ms"} {
			crew.Start(skew, "-url", "redis://"+s.Addr(), "-every", "300ms", "-work", "1ms", "-skew", skew)
		}
		const times = 10
		for range times {
			crew.Await("done")
		}
		done := runs(t, crew)
		for due, n := range done {
			require.Equal(t, 1, n, "%v was done %d times", due, n)
		}
		all := slices.SortedFunc(maps.Keys(done), time.Time.Compare)
		for i, due := range all[1:] {
			require.Equal(t, 300*time.Millisecond, due.Sub(all[i]), "a time was left out")
		}
	})
}

// A clock is fast by more than a period: it sets the times, and still none is done twice.
func TestNoTimeIsDoneTwiceHoweverFastAClockIs(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	crew := replicas.New(t)
	for _, skew := range []string{"0s", "1s", "5s"} {
		crew.Start(skew, "-url", "redis://"+s.Addr(), "-every", "300ms", "-work", "1ms", "-skew", skew)
	}
	for range 5 {
		crew.Await("done")
	}
	for due, n := range runs(t, crew) {
		require.Equal(t, 1, n, "%v was done %d times", due, n)
	}
}

// The replica that runs the job is killed in the middle of it: another runs it, for the same time.
func TestWhatADeadReplicaHadBegunIsDoneByAnother(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	crew := replicas.New(t)
	for _, name := range []string{"a", "b", "c"} {
		crew.Start(name, "-url", "redis://"+s.Addr(), "-every", "8s", "-work", "500ms")
	}
	begun := crew.Await("begins")
	begun.From.Signal(syscall.SIGKILL)
	due := strings.TrimPrefix(begun.Text, "begins ")
	again := crew.Await("begins " + due)
	require.NotEqual(t, begun.From, again.From)
	again.From.Await("done " + due)
	require.Equal(t, -1, begun.From.Exit())
}

// A replica that is told to stop stops its job, and ends in order; the time is another's.
func TestAReplicaThatIsToldToStopStopsItsJob(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	crew := replicas.New(t)
	for _, name := range []string{"a", "b"} {
		crew.Start(name, "-url", "redis://"+s.Addr(), "-every", "3s", "-work", "1s")
	}
	begun := crew.Await("begins")
	begun.From.Signal(syscall.SIGTERM)
	due := strings.TrimPrefix(begun.Text, "begins ")
	require.NotEqual(t, begun.From, crew.Await("begins "+due).From)
	crew.Await("done " + due)
	require.Zero(t, begun.From.Exit())
	for _, l := range crew.Log() {
		require.False(t, l.From == begun.From && strings.HasPrefix(l.Text, "done"))
	}
}
