package proxy

import (
	"syscall"
	"time"
)

// preciseSleep sleeps on a thread of its own, which the kernel wakes within
// some 50 µs, and may return early.
func preciseSleep(d time.Duration) {
	ts := syscall.NsecToTimespec(d.Nanoseconds())
	// EINTR is the only error that can happen, and waking early is allowed.
	_ = syscall.Nanosleep(&ts, nil)
}
