package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// dieWithParent asks the kernel to kill the process when the thread that
// started it ends; see startProcess.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns when SIGSTOP has reached every thread of the process:
// kill(2) returns earlier, and a thread on another core may still finish a
// command.
func awaitStopped(pid int, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 10*time.Millisecond) {
		stopped, err := allStopped(pid)
		if err != nil || stopped {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d did not stop within %v", pid, limit)
		}
		time.Sleep(pause)
	}
}

func allStopped(pid int) (bool, error) {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false, err
	}
	if len(stats) == 0 {
		return false, fmt.Errorf("process %d is gone", pid)
	}
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			return false, err
		}
		// "pid (name) state …": the name may hold anything, also brackets.
		line := string(b)
		rest := strings.TrimSpace(line[strings.LastIndexByte(line, ')')+1:])
		if !strings.HasPrefix(rest, "T") {
			return false, nil
		}
	}
	return true, nil
}
