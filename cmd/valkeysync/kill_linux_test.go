package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// children are the processes whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var found []int
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended meanwhile
		}
		// "pid (name) state parent …": the name may hold anything, also brackets.
		line := string(b)
		fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
		if fields[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			require.NoError(t, err)
			found = append(found, child)
		}
	}
	return found
}

// alive is false also for a process that has ended and that nobody has waited for.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	line := string(b)
	return !strings.HasPrefix(line[strings.LastIndexByte(line, ')')+1:], " Z")
}

func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		require.Eventually(t, func() bool { return !alive(pid) }, 30*time.Second, time.Millisecond)
	}
}

func TestCtrlCEndsTheDemoInOrder(t *testing.T) {
	t.Parallel()
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("to all processes=%v", whole), func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, testserver.Valkey)
			r := start(t, "demo", "-url", "valkey://"+s.Addr(), "-duration", "10m")
			r.until(progress)
			workers := children(t, r.cmd.Process.Pid)
			require.Len(t, workers, 4)
			target := r.cmd.Process.Pid
			if whole {
				target = -target // what a terminal does
			}
			require.NoError(t, syscall.Kill(target, syscall.SIGINT))
			require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
			gone(t, workers)
			require.Empty(t, r.stderr.String())
			require.Contains(t, r.stdout.String(), "interrupted")
			require.Equal(t, r.row("acquisitions"), r.row("counter at the end"), "the table is there, and what was begun was ended")
			require.Regexp(t, `(?m)^server commands for each of them$`, r.stdout.String(), "every worker has ended in order")
			require.Zero(t, keys(t, s))
		})
	}
}

func TestDemoGoesOnWhenAWorkerIsKilled(t *testing.T) {
	t.Parallel()
	r := start(t, "demo", "-duration", "6s") // longer than what the killed one holds stays taken
	r.until(progress)
	victim := children(t, r.cmd.Process.Pid)[0]
	require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
	r.until(fmt.Sprintf(`^worker [1-4] \(pid %d\) is gone: signal: killed`, victim))
	done := r.stdout.String()
	require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Zero(t, r.row("lost updates"))
	require.Contains(t, r.stdout.String(), "of the workers that were not killed")

	var counts []string
	for line := range strings.Lines(r.stdout.String()[len(done):]) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasSuffix(f[2], "/s") {
			counts = append(counts, f[1])
		}
	}
	require.NotEmpty(t, counts)
	require.NotEqual(t, counts[0], counts[len(counts)-1], "the others go on")
}

func TestDemoEndsWhenNoWorkerIsLeft(t *testing.T) {
	t.Parallel()
	r := start(t, "demo", "-duration", "10m", "-workers", "2")
	r.until(progress)
	for _, pid := range children(t, r.cmd.Process.Pid) {
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Contains(t, r.stdout.String(), "nobody is left")
	require.Zero(t, r.row("lost updates"))
}

func TestWorkersEndByThemselvesWhenTheDemoIsKilled(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Redis)
	r := start(t, "demo", "-url", "redis://"+s.Addr(), "-duration", "10m")
	r.until(progress)
	workers := children(t, r.cmd.Process.Pid)
	require.Len(t, workers, 4)
	require.NoError(t, r.cmd.Process.Kill())
	gone(t, workers)
	require.Eventually(t, func() bool { return keys(t, s) == 0 }, 10*time.Second, 10*time.Millisecond, "and take their keys with them")
}
