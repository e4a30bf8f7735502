package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asProgram in the environment makes this test binary the program that it tests: the program starts
// itself again for its workers, so they are the same.
const asProgram = "VALKEYSYNC_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asCommand {
		command(os.Args[2:])
		return
	}
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// asCommand as the first argument makes this test binary a command to run under a lock.
const asCommand = "test-command"

// runLimit is when a run counts as hung.
const runLimit = time.Minute

// running is the program, started as a person starts it, with its output in pipes.
type running struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan error
}

type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	heard chan struct{} // capacity 1: more has come
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case o.heard <- struct{}{}:
	default:
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	return startWith(t, func(*exec.Cmd) {}, args...)
}

// startWith is start with something of it changed.
func startWith(t *testing.T, change func(*exec.Cmd), args ...string) *running {
	t.Helper()
	r := &running{t: t, cmd: exec.Command(os.Args[0], args...), ended: make(chan error, 1)}
	r.stdout.heard, r.stderr.heard = make(chan struct{}, 1), make(chan struct{}, 1)
	// The race detector has a program wait for a second before it ends.
	r.cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=10 "+os.Getenv("GORACE"))
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	ownGroup(r.cmd)
	change(r.cmd)
	require.NoError(t, r.cmd.Start())
	t.Cleanup(func() { _ = r.cmd.Process.Kill() }) // of no effect on one that has ended
	go func() { r.ended <- r.cmd.Wait() }()
	return r
}

// status waits for the end of the program and of all its workers (they share its pipes).
func (r *running) status() int {
	r.t.Helper()
	select {
	case <-r.ended:
		return r.cmd.ProcessState.ExitCode()
	case <-time.After(runLimit):
		r.t.Fatalf("still running after %v:\n%s%s", runLimit, &r.stdout, &r.stderr)
		return -1
	}
}

// until waits for a line of the output that matches.
func (r *running) until(pattern string) {
	r.t.Helper()
	re := regexp.MustCompile(`(?m)` + pattern)
	limit := time.After(runLimit)
	for !re.MatchString(r.stdout.String()) {
		select {
		case <-r.stdout.heard:
		case <-limit:
			r.t.Fatalf("no %q within %v:\n%s%s", pattern, runLimit, &r.stdout, &r.stderr)
		}
	}
}

// progress is a line that is shown while the demo runs.
const progress = `^ +[0-9.]+s +[0-9,]+ +[0-9,]+/s  `

// row is the number in a row of the table.
func (r *running) row(name string) int {
	r.t.Helper()
	m := regexp.MustCompile(`(?m)^` + name + ` +([0-9,]+)`).FindStringSubmatch(r.stdout.String())
	require.NotNil(r.t, m, "no row %q in:\n%s%s", name, &r.stdout, &r.stderr)
	return number(r.t, m[1])
}

// number reads one as the demo shows it: 12,345.
func number(t testing.TB, shown string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.ReplaceAll(shown, ",", ""))
	require.NoError(t, err)
	return n
}

func TestHelpAndVersion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		status int
		out    string // in standard output
		err    string // in standard error
	}{
		{[]string{"help"}, 0, "demo", ""},
		{[]string{"--help"}, 0, "demo", ""},
		{[]string{"help", "demo"}, 0, "-no-lock", ""},
		{[]string{"demo", "-h"}, 0, "Exit status", ""},
		{[]string{"version"}, 0, "valkeysync (devel), go1.", ""},
		{nil, 2, "", "Usage"},
		{[]string{"lock"}, 2, "", `unknown command "lock"`},
		{[]string{"help", "run"}, 0, "124  the lock could not be had in time", ""},
		{[]string{"run", "k", "true"}, 125, "", "run k -- true"},
		{[]string{"demo-worker"}, 2, "", "a part of `valkeysync demo`"},
		{[]string{"demo", "-workers", "0"}, 2, "", "give a whole number from 1 to 64"},
		{[]string{"demo", "-url", "valkey://me:hidden@127.0.0.1:1"}, 2, "", "valkey://me:xxxxx@127.0.0.1:1"},
	} {
		r := start(t, c.args...)
		require.Equal(t, c.status, r.status(), c.args)
		if c.out == "" {
			require.Empty(t, r.stdout.String(), c.args)
			require.Contains(t, r.stderr.String(), c.err, c.args)
		} else {
			require.Empty(t, r.stderr.String(), c.args)
			require.Contains(t, r.stdout.String(), c.out, c.args)
		}
		require.NotContains(t, r.stderr.String(), "hidden")
	}
}

// TestGoRun builds the program as README.md has people do it.
func TestGoRun(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "run", "./cmd/valkeysync", "version")
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "valkeysync ")
}
