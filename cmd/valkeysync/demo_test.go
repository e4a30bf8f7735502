package main

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// keys is how many keys a server has.
func keys(t *testing.T, s *testserver.Server) int64 {
	t.Helper()
	m, err := s.Do("DBSIZE")
	require.NoError(t, err)
	n, err := m.ToInt64()
	require.NoError(t, err)
	return n
}

func TestDemoNeedsNothingInstalled(t *testing.T) {
	t.Parallel()
	r := start(t, "demo", "-duration", "1500ms")
	require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Empty(t, r.stderr.String())
	require.Positive(t, r.row("acquisitions"))
	require.Equal(t, r.row("acquisitions"), r.row("counter at the end"))
	require.Zero(t, r.row("lost updates"))
	require.Regexp(t, `(?m)`+progress+`worker [1-4] holds; waiting: `, r.stdout.String())
	require.Contains(t, r.stdout.String(), "No update was lost.")
	require.NotContains(t, r.stdout.String(), "\x1b", "nothing for terminals in a pipe")
	require.NotRegexp(t, `(?m) $`, r.stdout.String())
	for _, n := range []string{"1", "2", "3", "4"} {
		require.Regexp(t, `(?m)^worker `+n+` +[0-9]+ +[0-9,]+ +(1[5-9]|[23][0-9])\.[0-9]%`, r.stdout.String(), "first come, first served: equal shares")
	}
}

func TestDemoOnARealServerLeavesNothingThereAndCountsWhatItCost(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		r := start(t, "demo", "-url", string(s.Flavor())+"://"+s.Addr()+"/5", "-duration", "1s", "-workers", "3", "-goroutines", "2")
		require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
		require.Empty(t, r.stderr.String())
		require.Zero(t, r.row("lost updates"))
		total := r.row("acquisitions")
		require.Positive(t, total)
		info, err := s.Do("INFO", "keyspace")
		require.NoError(t, err)
		text, err := info.ToString()
		require.NoError(t, err)
		require.NotContains(t, text, "db", "no key is left")

		// The server has counted the scripts too, with those that the demo does not show: four Clients
		// that are made and closed, and a look at the lock every second.
		lock := regexp.MustCompile(`(?m)^  lock +([0-9.]+)  (.*)$`).FindStringSubmatch(r.stdout.String())
		require.NotNil(t, lock, r.stdout.String())
		shown := map[string]int{}
		sum := 0
		for _, c := range regexp.MustCompile(`([A-Z]+) ([0-9,]*[0-9])`).FindAllStringSubmatch(lock[2], -1) {
			shown[c[1]] = number(t, c[2])
			sum += shown[c[1]]
		}
		require.Contains(t, shown, "EVALSHA")
		counted := int(s.Calls()["evalsha"])
		require.GreaterOrEqual(t, counted, shown["EVALSHA"])
		require.LessOrEqual(t, counted, shown["EVALSHA"]+40)
		each, err := strconv.ParseFloat(lock[1], 64)
		require.NoError(t, err)
		require.InDelta(t, float64(sum)/float64(total), each, 0.006, "%v", shown)
	})
}

func TestDemoOnAClusterLeavesNothingThere(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.Valkey, 3, 0)
	r := start(t, "demo", "-url", "valkey://"+c.Nodes()[0].Addr(), "-duration", "1s", "-workers", "3", "-goroutines", "2")
	require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Empty(t, r.stderr.String())
	require.Positive(t, r.row("acquisitions"))
	require.Zero(t, r.row("lost updates"))
	for _, n := range c.Nodes() {
		require.Zero(t, keys(t, n))
	}
}

func TestDemoWithoutTheLockLosesUpdatesAndSaysSo(t *testing.T) {
	t.Parallel()
	r := start(t, "demo", "-duration", "500ms", "-no-lock")
	require.Equal(t, 1, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Empty(t, r.stderr.String())
	require.Contains(t, r.stdout.String(), "WITHOUT a lock")
	lost := r.row("lost updates")
	require.Positive(t, lost)
	require.Equal(t, r.row("increments"), r.row("counter at the end")+lost)
	require.Contains(t, r.stdout.String(), "updates were lost, as they are without a lock")
}

func TestDemoWithoutTheLockAndAloneLosesNothing(t *testing.T) {
	t.Parallel()
	r := start(t, "demo", "-duration", "300ms", "-no-lock", "-workers", "1", "-goroutines", "1")
	require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Zero(t, r.row("lost updates"))
}

func TestDemoThatLosesItsServerCannotSay(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := start(t, "demo", "-url", "valkey://"+s.Addr(), "-duration", "2s", "-workers", "2")
	r.until(progress)
	s.Kill()
	require.Equal(t, 2, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Contains(t, r.stderr.String(), "read the counter")
}
