//go:build !linux

package chaos

import "syscall"

// dieWithParent does nothing where the kernel has no such thing: a worker ends when it finds its parent gone.
func dieWithParent() *syscall.SysProcAttr { return nil }
