package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// on is the program's arguments for a server: the command, the server, the rest.
func on(s *testserver.Server, command string, args ...string) []string {
	return append([]string{command, "-url", string(s.Flavor()) + "://" + s.Addr()}, args...)
}

// holding starts run with a command that goes on until something is written to its standard input.
func holding(t *testing.T, s *testserver.Server, args ...string) (r *running, end func()) {
	t.Helper()
	in, out := io.Pipe()
	t.Cleanup(func() { out.Close() })
	r = startWith(t, func(c *exec.Cmd) { c.Stdin = in }, on(s, "run", append(args, "--", "sh", "-c", "echo ready; read line; echo done")...)...)
	return r, func() {
		_, _ = out.Write([]byte("go\n"))
		out.Close()
	}
}

// waiting waits until that many wait for the key.
func waiting(t *testing.T, s *testserver.Server, key string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		m, err := s.Do("ZCARD", "{"+key+"}:queue")
		require.NoError(t, err)
		is, err := m.ToInt64()
		require.NoError(t, err)
		return is == n
	}, runLimit, 5*time.Millisecond)
}

// client is a Client in this process.
func client(t *testing.T, s *testserver.Server) *valkeysync.Client {
	t.Helper()
	c, err := valkeysync.New(s.Client(t), valkeysync.WithLogger(slog.New(slog.DiscardHandler)), valkeysync.WithName("the test"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestRunGivesTheCommandKeyAndTokenAndPassesItsStatusOn(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		var before int64
		for range 2 {
			r := start(t, on(s, "run", "-prefix", "app:", "k", "--", "sh", "-c", "echo $VALKEYSYNC_KEY $VALKEYSYNC_TOKEN; exit 7")...)
			require.Equal(t, 7, r.status(), "%s%s", &r.stdout, &r.stderr)
			require.Empty(t, r.stderr.String())
			m := regexp.MustCompile(`^app:k ([0-9]+)\n$`).FindStringSubmatch(r.stdout.String())
			require.NotNil(t, m, r.stdout.String())
			token, err := strconv.ParseInt(m[1], 10, 64)
			require.NoError(t, err)
			require.Greater(t, token, before)
			before = token
			held, err := s.Do("EXISTS", "app:k")
			require.NoError(t, err)
			n, err := held.ToInt64()
			require.NoError(t, err)
			require.Zero(t, n, "it was given back")
		}
	})
}

func TestRunTakesTheServerFromTheEnvironment(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := startWith(t, func(c *exec.Cmd) {
		c.Env = append(c.Env, "VALKEYSYNC_URL=valkey://"+s.Addr(), "VALKEYSYNC_PREFIX=p:")
	}, "run", "k", "--", "sh", "-c", "echo $VALKEYSYNC_KEY")
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Equal(t, "p:k\n", r.stdout.String())
}

func TestRunWaitsItsTurnAndSaysWhoHasIt(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		first, end := holding(t, s, "-name", "the first", "k")
		first.until("^ready")
		second := start(t, on(s, "run", "k", "--", "echo", "second")...)
		waiting(t, s, "k", 1)
		for _, wait := range []string{"0", "100ms"} {
			r := start(t, on(s, "run", "-wait", wait, "k", "--", "echo", "never")...)
			require.Equal(t, 124, r.status(), "%s%s", &r.stdout, &r.stderr)
			require.Empty(t, r.stdout.String())
			require.Contains(t, r.stderr.String(), `"k" held by the first for up to`)
			require.NotContains(t, r.stderr.String(), "context")
		}
		waiting(t, s, "k", 1) // who gave up is gone
		require.Empty(t, second.stdout.String())
		end()
		require.Equal(t, 0, first.status(), &first.stderr)
		require.Equal(t, 0, second.status(), &second.stderr)
		require.Equal(t, "second\n", second.stdout.String())
	})
}

func TestRunSharesWithThoseWhoShare(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	status := func(want int, text string, args ...string) {
		t.Helper()
		r := start(t, on(s, "run", append(args, "--", "true")...)...)
		require.Equal(t, want, r.status(), "%v: %s", args, &r.stderr)
		require.Contains(t, r.stderr.String(), text)
	}
	reader, end := holding(t, s, "-shared", "rw")
	reader.until("^ready")
	status(0, "", "-shared", "-wait", "0", "rw")
	status(124, "held by", "-exclusive", "-wait", "0", "rw")
	status(125, "-exclusive and -shared are for an RWMutex", "-wait", "0", "rw")
	end()
	require.Equal(t, 0, reader.status(), &reader.stderr)
	status(0, "", "-exclusive", "-wait", "0", "rw")

	part, end := holding(t, s, "-owner", "flow 7", "own")
	part.until("^ready")
	status(0, "", "-owner", "flow 7", "-wait", "0", "own")
	status(124, "held by", "-owner", "flow 8", "-wait", "0", "own")
	st := start(t, on(s, "status", "own")...)
	require.Equal(t, 0, st.status(), &st.stderr)
	require.Contains(t, st.stdout.String(), "state    held by owner flow 7, in 1 process\n")
	end()
	require.Equal(t, 0, part.status(), &part.stderr)

	permit, end := holding(t, s, "-permits", "2/3", "sem")
	permit.until("^ready")
	status(0, "", "-permits", "1/3", "-wait", "0", "sem")
	status(124, "held by", "-permits", "2/3", "-wait", "0", "sem")
	status(125, "Semaphore of size 3", "-permits", "1/4", "-wait", "0", "sem")
	end()
	require.Equal(t, 0, permit.status(), &permit.stderr)
	status(0, "", "-permits", "3/3", "-wait", "0", "sem")
}

func TestRunOfWhatCannotBeRun(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("no program"), 0o600))
	r := start(t, on(s, "run", "k", "--", file)...)
	require.Equal(t, 126, r.status(), &r.stderr)
	require.NoError(t, os.Chmod(file, 0o700))
	r = start(t, on(s, "run", "k", "--", file)...)
	require.Equal(t, 126, r.status(), &r.stderr)
	require.Contains(t, r.stderr.String(), "exec format error")
	m, err := s.Do("EXISTS", "k")
	require.NoError(t, err)
	n, err := m.ToInt64()
	require.NoError(t, err)
	require.Zero(t, n, "it was given back")

	r = start(t, on(s, "run", "}", "--", "true")...)
	require.Equal(t, 125, r.status())
	require.Contains(t, r.stderr.String(), "help run")
}

// TestRunAndGoExcludeEachOther: what run holds is the lock of a Go program.
func TestRunAndGoExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Redis)
	mu := client(t, s).Mutex("k")
	r, end := holding(t, s, "k")
	r.until("^ready")
	require.False(t, mu.TryLock())
	end()
	held, err := mu.LockContext(context.Background())
	require.NoError(t, err)
	require.Equal(t, 0, r.status(), &r.stderr)
	r = start(t, on(s, "run", "-wait", "0", "k", "--", "true")...)
	require.Equal(t, 124, r.status())
	require.Contains(t, r.stderr.String(), "held by the test")
	require.NoError(t, mu.UnlockContext(held))
}
