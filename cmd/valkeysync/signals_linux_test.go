package main

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// saying is run with the command that says which signals it gets.
func saying(t *testing.T, s *testserver.Server, flags ...string) *running {
	t.Helper()
	r := start(t, on(s, "run", append(flags, "k", "--", os.Args[0], asCommand)...)...)
	r.until("^ready")
	return r
}

func (r *running) signal(sig syscall.Signal) {
	r.t.Helper()
	require.NoError(r.t, r.cmd.Process.Signal(sig))
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	// Under nohup(1) the command would be told to ignore it, too; what is caught here is not.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	s := testserver.Start(t, testserver.Valkey)
	r := saying(t, s)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTERM} {
		r.signal(sig)
		r.until("^got " + sig.String() + "$")
	}
	require.Equal(t, 3, r.status(), &r.stderr)
	require.Empty(t, r.stderr.String())
	require.Equal(t, 6, strings.Count(r.stdout.String(), "got "), "each once: %s", &r.stdout)
}

// TestRunIgnoresWhatItIsToldToIgnore: as under nohup(1).
func TestRunIgnoresWhatItIsToldToIgnore(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := startWith(t, func(c *exec.Cmd) {
		c.Path = "/bin/sh"
		c.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", os.Args[0]}, c.Args[1:]...)
	}, on(s, "run", "k", "--", "sh", "-c", "echo ready; kill -HUP $$; echo alive; exec sleep 1000")...)
	r.until("^alive$")
	r.signal(syscall.SIGHUP)
	r.signal(syscall.SIGUSR1)
	require.Equal(t, 128+int(syscall.SIGUSR1), r.status(), &r.stderr)
}

func TestRunTellsTheSignalThatItsCommandDiedBy(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	for sig, status := range map[string]int{"TERM": 143, "KILL": 137, "INT": 130} {
		r := start(t, on(s, "run", "k", "--", "sh", "-c", "kill -"+sig+" $$")...)
		require.Equal(t, status, r.status(), &r.stderr)
	}
}

func TestASignalEndsTheWaitOfRun(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	first := saying(t, s)
	for sig, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		r := start(t, on(s, "run", "-wait", "10m", "k", "--", "echo", "never")...)
		waiting(t, s, "k", 1)
		r.signal(sig)
		require.Equal(t, status, r.status(), &r.stderr)
		require.Empty(t, r.stdout.String())
		waiting(t, s, "k", 0)
	}
	first.signal(syscall.SIGTERM)
	require.Equal(t, 3, first.status())
}

func TestRunStopsItsCommandWhenTheLockIsTaken(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		r := saying(t, s)
		u := start(t, on(s, "unlock", "-force", "-yes", "k")...)
		require.Equal(t, 0, u.status(), &u.stderr)
		require.Contains(t, u.stdout.String(), "Taken.")
		require.Equal(t, 123, r.status(), &r.stderr)
		r.until("^got terminated")
		require.Contains(t, r.stderr.String(), `lease of "k" lost`)
	})
}

func TestRunKillsACommandThatDoesNotStop(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := start(t, on(s, "run", "-kill-after", "200ms", "k", "--", os.Args[0], asCommand, "deaf")...)
	r.until("^ready")
	start(t, on(s, "unlock", "-force", "-yes", "k")...)
	require.Equal(t, 123, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "got terminated")
}

func TestRunStopsWhatItsCommandHasStarted(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := start(t, on(s, "run", "k", "--", "sh", "-c", "sleep 1000 & echo ready; wait")...)
	r.until("^ready")
	shell := children(t, r.cmd.Process.Pid)
	require.Len(t, shell, 1)
	sleeper := children(t, shell[0])
	require.Len(t, sleeper, 1)
	start(t, on(s, "unlock", "-force", "-yes", "k")...)
	require.Equal(t, 123, r.status(), &r.stderr)
	gone(t, append(shell, sleeper...))
}

func TestRunStopsItsCommandWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := saying(t, s, "-lease", "2s", "-grace", "400ms")
	s.Kill()
	require.Equal(t, 123, r.status(), &r.stderr)
	require.Contains(t, r.stderr.String(), "unreachable")
	require.Contains(t, r.stdout.String(), "got terminated")
}

func TestRunThatWasStoppedStopsItsCommandWhenItGoesOn(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := saying(t, s, "-lease", "300ms")
	r.signal(syscall.SIGSTOP)
	second := start(t, on(s, "run", "k", "--", "echo", "second")...)
	require.Equal(t, 0, second.status(), &second.stderr)
	r.signal(syscall.SIGCONT)
	require.Equal(t, 123, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "got terminated")
}

// TestTheCommandDiesWithRun: it must not go on without a lock, and unseen.
func TestTheCommandDiesWithRun(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := saying(t, s, "-grace", "400ms")
	pids := children(t, r.cmd.Process.Pid)
	require.Len(t, pids, 1)
	began := time.Now()
	second := start(t, on(s, "run", "-grace", "400ms", "k", "--", "echo", "second")...)
	waiting(t, s, "k", 1)
	r.signal(syscall.SIGKILL)
	gone(t, pids)
	require.Equal(t, 0, second.status(), &second.stderr)
	require.Less(t, time.Since(began), 9*time.Second, "not after a whole lease")
}
