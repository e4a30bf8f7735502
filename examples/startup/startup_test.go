//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/examples/internal/replicas"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

// check looks at the database, and that each migration was made once.
func check(t *testing.T, file string, crew *replicas.Crew) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	var users int
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM users WHERE email IS NULL`).Scan(&users))
	require.Equal(t, 2, users)
	made := map[string]int{}
	for _, l := range crew.Log() {
		if strings.HasPrefix(l.Text, "made") {
			made[l.Text]++
		}
	}
	require.Equal(t, map[string]int{"made 1": 1, "made 2": 1, "made 3": 1}, made)
}

func TestOneMigratesAndTheOthersFindItDone(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		file := filepath.Join(t.TempDir(), "app.db")
		crew := replicas.New(t)
		var all []*replicas.Replica
		for i := range 5 {
			all = append(all, crew.Start(fmt.Sprint(i), "-url", "redis://"+s.Addr(), "-db", file, "-slowly", "50ms"))
		}
		for _, r := range all {
			r.Exit()
		}
		check(t, file, crew)
		started := 0
		for _, l := range crew.Log() {
			if strings.HasPrefix(l.Text, "starts") {
				started++
				require.Equal(t, "starts with version 3", l.Text)
			}
		}
		require.Equal(t, len(all), started)
	})
}

// The one that migrates ends in the middle of the second migration, in one way or another: that is rolled back, and
// the next in line goes on from there.
func TestAnotherGoesOnWhereTheFirstStopped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		end    func(t *testing.T, s *testserver.Server, first *replicas.Replica)
		status int
	}{
		"killed":       {func(_ *testing.T, _ *testserver.Server, first *replicas.Replica) { first.Signal(syscall.SIGKILL) }, -1},
		"told to stop": {func(_ *testing.T, _ *testserver.Server, first *replicas.Replica) { first.Signal(syscall.SIGTERM) }, 1},
		"its lock is lost": {func(t *testing.T, s *testserver.Server, first *replicas.Replica) {
			operator, err := valkeysync.New(s.Client(t))
			require.NoError(t, err)
			defer operator.Close()
			require.NoError(t, operator.ForceUnlock(t.Context(), "migrations:app"))
			first.Await("migration 2:")
			first.Await(`lease of "migrations:app" lost`)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, testserver.Valkey)
			file := filepath.Join(t.TempDir(), "app.db")
			crew := replicas.New(t)
			for _, name := range []string{"a", "b", "c"} {
				crew.Start(name, "-url", "redis://"+s.Addr(), "-db", file, "-slowly", "500ms")
			}
			first := crew.Await("makes 2").From
			c.end(t, s, first)
			require.Equal(t, c.status, first.Exit())
			for range 2 {
				require.NotEqual(t, first, crew.Await("starts with version 3").From)
			}
			check(t, file, crew)
		})
	}
}

// Without a server's URL there is one inside, and three replicas.
func TestItNeedsNothingInstalled(t *testing.T) {
	t.Parallel()
	crew := replicas.New(t)
	all := crew.Start("all", "-slowly", "10ms")
	require.Zero(t, all.Exit())
	for _, n := range []string{"[1]", "[2]", "[3]"} {
		require.True(t, slices.ContainsFunc(crew.Log(), func(l replicas.Line) bool {
			return l.Text == n+" starts with version 3"
		}), "replica %s has not started", n)
	}
}

// A replica that has waited for as long as it may does not start, and says for whom it has waited.
func TestAReplicaThatWaitsInVainSaysForWhom(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	file := filepath.Join(t.TempDir(), "app.db")
	crew := replicas.New(t)
	args := []string{"-url", "redis://" + s.Addr(), "-db", file, "-slowly", "20s"}
	crew.Start("slow", args...).Await("makes 1")
	hasty := crew.Start("hasty", append(args, "-limit", "500ms")...)
	require.Contains(t, hasty.Await("deadline").Text, `"migrations:app" held by`)
	require.Equal(t, 1, hasty.Exit())
}
