//go:build unix && !linux

package cli

import "syscall"

func attributes(apart bool) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: apart} }
