package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// terminal is what a person types on and looks at.
type terminal struct {
	*running
	keyboard *os.File
}

// asShell as the first argument of onTerminal has a shell run what follows.
const asShell = "a shell"

// onTerminal starts the program as a shell would: in front of a terminal of its own.
func onTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(filepath.Join("/dev/pts", strconv.Itoa(n)), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 60}))

	r := startWith(t, func(c *exec.Cmd) {
		c.Env = append(c.Env, "TERM=xterm")
		if args[0] == asShell {
			c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c"}, args[1:]...)
		}
		c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	}, args...)
	go func() { _, _ = io.Copy(&unixLines{&r.stdout}, master) }()
	return &terminal{r, master}
}

// unixLines takes the carriage return out that a terminal puts before a line's end.
type unixLines struct{ to io.Writer }

func (u *unixLines) Write(b []byte) (int, error) {
	_, err := u.to.Write(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")))
	return len(b), err
}

func (t *terminal) types(s string) {
	t.t.Helper()
	_, err := t.keyboard.WriteString(s)
	require.NoError(t.t, err)
}

func TestCtrlCReachesTheCommandOfRunOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := onTerminal(t, on(s, "run", "k", "--", os.Args[0], asCommand)...)
	r.until("^ready")
	r.types("\x03")
	r.until("got interrupt$")
	r.signal(syscall.SIGUSR1) // which run passes on behind a Ctrl-C that it had passed on
	r.until("got user defined signal 1$")
	require.Equal(t, 1, strings.Count(r.stdout.String(), "got interrupt"), &r.stdout)
	r.types("\x1c") // Ctrl-\
	r.until("got quit$")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 3, r.status(), &r.stdout)
	require.Equal(t, 1, strings.Count(r.stdout.String(), "got quit"), &r.stdout)
}

// TestCtrlZStopsRunAndItsCommand, as any job of a shell; and who stops for longer than the lease has lost the lock.
func TestCtrlZStopsRunAndItsCommand(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	args := on(s, "run", "-lease", "300ms", "k", "--", "sh", "-c", "echo ready; read line; echo heard $line")
	r := onTerminal(t, append([]string{asShell, `set -m; "$@"; echo back in the shell; read line; fg; echo status $?`, "sh", os.Args[0]}, args...)...)
	r.until("^ready$")
	r.types("\x1a")
	r.until("back in the shell$") // behind the terminal's own ^Z
	second := start(t, on(s, "run", "k", "--", "echo", "second")...)
	require.Equal(t, 0, second.status(), &second.stderr)
	r.types("\n")
	r.until("^status 123$")
	require.Equal(t, 0, r.status(), &r.stdout)
	require.NotContains(t, r.stdout.String(), "heard")
}

func TestTheCommandOfRunHasTheTerminal(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	r := onTerminal(t, on(s, "run", "k", "--", "sh", "-c", "test -t 0 && read line </dev/tty && echo heard $line")...)
	waitHeld(t, s)
	r.types("this\n")
	r.until("^heard this$")
	require.Equal(t, 0, r.status(), &r.stdout)
}

// waitHeld waits until somebody holds k.
func waitHeld(t *testing.T, s *testserver.Server) {
	t.Helper()
	require.Eventually(t, func() bool {
		m, err := s.Do("EXISTS", "k")
		require.NoError(t, err)
		n, err := m.ToInt64()
		return err == nil && n == 1
	}, runLimit, 5e6)
}

func TestUnlockAsksFirst(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	_, err := s.Do("SET", "k", "whoever")
	require.NoError(t, err)
	for _, c := range []struct {
		answer string
		status int
		left   int64
	}{{"\n", 1, 1}, {"n\n", 1, 1}, {"y\n", 0, 0}} {
		r := onTerminal(t, on(s, "unlock", "-force", "k")...)
		r.until(`\[y/N\] $`)
		require.Contains(t, r.stdout.String(), "whoever")
		r.types(c.answer)
		require.Equal(t, c.status, r.status(), &r.stdout)
		require.Equal(t, c.left, keys(t, s), c.answer)
	}
}

func TestWatchWritesItsViewOver(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, "--notify-keyspace-events", "Kgxe")
	mu := client(t, s).Mutex("k")
	r := onTerminal(t, on(s, "watch", "k")...)
	r.until(`^state    free$`)
	held, err := mu.LockContext(context.Background())
	require.NoError(t, err)
	r.until("^\x1b\\[[0-9]+A\r\x1b\\[J[0-9:.]+\nkey      k\nstate    held\nholder   the test, ")
	require.NoError(t, mu.UnlockContext(held))
	r.until("^\x1b\\[[0-9]+A\r\x1b\\[J[0-9:.]+\nkey      k\nstate    free$")
	r.types("\x03")
	require.Equal(t, 0, r.status(), &r.stdout)
}
