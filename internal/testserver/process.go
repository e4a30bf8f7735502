package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

// process is one run of a server binary.
type process struct {
	pid    int
	handle *os.Process
	exited chan struct{} // closed when the process has ended and is waited for
}

// startProcess starts the binary with its output appended to the file logTo.
//
// On Linux the kernel is asked to kill it together with its parent. What counts
// as the parent there is the *thread* that started the process, and Go ends
// threads when it likes: so one goroutine, locked to its thread, starts the
// process and stays on that thread until the process has ended.
func startProcess(binary string, args []string, logTo string) (*process, error) {
	log, err := os.OpenFile(logTo, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()

	started := make(chan error)
	p := &process{exited: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		defer log.Close()
		err := cmd.Start()
		if err == nil {
			p.pid, p.handle = cmd.Process.Pid, cmd.Process
		}
		started <- err
		if err == nil {
			// How it ended is of no interest: whoever waits for a server
			// that exited by itself is shown its log.
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	return p, nil
}

func (p *process) signal(sig syscall.Signal) error { return p.handle.Signal(sig) }

// kill ends the process, frozen or not, and waits until it is gone.
func (p *process) kill() {
	for _, sig := range []syscall.Signal{syscall.SIGCONT, syscall.SIGKILL} {
		if err := p.signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			panic(fmt.Sprintf("testserver: %v to process %d: %v", sig, p.pid, err))
		}
	}
	<-p.exited
}
