//go:build unix

package cli

import (
	"os"
	"syscall"
)

// passedOn are the signals that go on to the command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2}

func number(sig os.Signal) int { return int(sig.(syscall.Signal)) }

// exitStatus is the status as a shell has it.
func exitStatus(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return exitSignal + int(ws.Signal())
	}
	return s.ExitCode()
}

// pass hands a signal on. A terminal sends Ctrl-C and Ctrl-\ to its whole group, and so to the command too.
func (c *child) pass(sig os.Signal) {
	typed := sig == syscall.SIGINT || sig == syscall.SIGQUIT
	if typed && !c.apart && inFront() {
		return
	}
	c.signal(sig.(syscall.Signal))
}

func (c *child) terminate() {
	c.signal(syscall.SIGTERM)
	c.signal(syscall.SIGCONT) // one that is stopped would not hear it
}

func (c *child) kill() { c.signal(syscall.SIGKILL) }

// signal reaches the command, and its whole group where it has one; one that has ended is none's business.
func (c *child) signal(sig syscall.Signal) {
	if c.apart {
		_ = syscall.Kill(-c.process.Pid, sig)
	} else {
		_ = c.process.Signal(sig)
	}
}
