package cli

import (
	"os"
	"os/exec"
	"time"
)

// pipeLimit is how long the output of a command that has ended is still read, where it is no file.
const pipeLimit = time.Second

// child is the command that runs under the lock.
type child struct {
	process *os.Process
	apart   bool          // it has a process group of its own
	ended   chan struct{} // closed when it has ended and is waited for
}

// startChild starts the command; in a process group of its own, unless a terminal is in front of us.
func startChild(cmd *exec.Cmd) (*child, error) {
	c := &child{apart: !inFront(), ended: make(chan struct{})}
	cmd.SysProcAttr = attributes(c.apart)
	cmd.WaitDelay = pipeLimit
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c.process = cmd.Process
	go func() {
		defer close(c.ended)
		_ = cmd.Wait() // how it ended is in its ProcessState
	}()
	return c, nil
}
