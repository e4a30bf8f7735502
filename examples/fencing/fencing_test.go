//go:build unix

package main

import (
	"database/sql"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/examples/internal/replicas"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

// balance reads the account, and checks it against all that the replicas have said that they wrote.
func balance(t *testing.T, file string, crew *replicas.Crew) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow(`SELECT balance FROM accounts WHERE id = 1`).Scan(&n))
	var wrote int
	for _, l := range crew.Log() {
		if strings.HasPrefix(l.Text, "wrote") {
			wrote++
		}
	}
	require.Equal(t, wrote, n, "a deposit was lost")
	return n
}

func TestNoDepositIsLost(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	file := filepath.Join(t.TempDir(), "accounts.db")
	crew := replicas.New(t)
	var all []*replicas.Replica
	for _, name := range []string{"a", "b", "c"} {
		all = append(all, crew.Start(name, "-url", "redis://"+s.Addr(), "-db", file, "-n", "20", "-think", "1ms"))
	}
	for _, r := range all {
		require.Zero(t, r.Exit())
	}
	require.Equal(t, 60, balance(t, file, crew))
}

// A holder is stopped between reading and writing, for longer than its lease. When it goes on, its context keeps it
// from writing; and where its write has left already (-late), its token does, whether the next holder has written
// or has only read.
func TestAStoppedHolderCannotWrite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		old, new []string
		refusal  string
	}{
		{"by its context", nil, nil, `lease of "account:1" lost`},
		{"by its token, the next has written", []string{"-late"}, nil, errFenced.Error()},
		{"by its token, the next has read", []string{"-late"}, []string{"-think", "10s"}, errFenced.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, testserver.Valkey)
			file := filepath.Join(t.TempDir(), "accounts.db")
			args := []string{"-url", "redis://" + s.Addr(), "-db", file, "-n", "1", "-lease", "1s", "-think", "500ms"}
			crew := replicas.New(t)
			old := crew.Start("old", append(args, c.old...)...)
			old.Await("read 0")
			old.Signal(syscall.SIGSTOP)
			next := crew.Start("new", append(args, c.new...)...)
			next.Await("read 0")
			if c.new == nil {
				next.Await("wrote 1")
			}
			old.Signal(syscall.SIGCONT)
			old.Await(c.refusal)
			require.Zero(t, old.Exit())
			if c.new != nil {
				next.Signal(syscall.SIGKILL) // it thinks for long enough to be sure that it has not written
				next.Exit()
				require.Zero(t, balance(t, file, crew))
				return
			}
			require.Zero(t, next.Exit())
			require.Equal(t, 1, balance(t, file, crew))
		})
	}
}
