package cli

import "syscall"

// attributes has the kernel kill the command when the thread that started it ends: with us, however that
// comes about.
func attributes(apart bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: apart, Pdeathsig: syscall.SIGKILL}
}
