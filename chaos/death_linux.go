package chaos

import "syscall"

// dieWithParent asks the kernel to kill a worker when the thread that started it ends.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
