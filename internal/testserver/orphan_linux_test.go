package testserver_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

const orphanEnv = "VALKEYSYNC_TEST_ORPHAN_DIR"

// TestServerDiesWithItsParent lets this test binary run once more, as the
// parent of a server, and kills that parent as hard as can be.
func TestServerDiesWithItsParent(t *testing.T) {
	if dir := os.Getenv(orphanEnv); dir != "" {
		runOrphanParent(dir)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerDiesWithItsParent$")
	cmd.Env = append(os.Environ(), orphanEnv+"="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0), "alive as long as its parent")

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	require.Eventually(t, func() bool { return !alive(pid) }, 10*time.Second, time.Millisecond)
}

// runOrphanParent starts a server, ends as many threads as it can (a server
// tied to one of them would die now), and waits for its own end.
func runOrphanParent(dir string) {
	s, err := testserver.Launch(testserver.Valkey, dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range 50 {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		}()
		<-ended
	}
	if _, err := s.Do("PING"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.Pid())
	select {}
}

// alive is false also for a process that has ended but was not waited for:
// whoever inherits an orphan may take its time, or not do it at all.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	stat := string(b)
	return !strings.HasPrefix(stat[strings.LastIndexByte(stat, ')')+1:], " Z")
}
