//go:build !linux

package testserver

import (
	"syscall"
	"time"
)

// dieWithParent does nothing where the kernel has no such thing: a test binary
// that is killed leaves its servers running there.
func dieWithParent() *syscall.SysProcAttr { return nil }

// awaitStopped trusts the signal where there is no /proc to look at.
func awaitStopped(int, time.Duration) error { return nil }
