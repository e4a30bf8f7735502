//go:build !linux

package proxy

import "time"

// preciseSleep is as good as Go's timers are here.
func preciseSleep(d time.Duration) { time.Sleep(d) }
