//go:build !unix

package cli

import (
	"os"
	"syscall"
)

var passedOn = []os.Signal{os.Interrupt}

func number(os.Signal) int { return 2 }

func exitStatus(s *os.ProcessState) int { return s.ExitCode() }

func attributes(bool) *syscall.SysProcAttr { return nil }

// pass: the console sends Ctrl-C to the command as well.
func (c *child) pass(os.Signal) {}

func (c *child) terminate() { c.kill() }

func (c *child) kill() { _ = c.process.Kill() }
