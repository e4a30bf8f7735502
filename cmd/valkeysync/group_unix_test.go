//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// ownGroup gives a program a process group of its own, as a shell does.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
