package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// pin keeps processes to the last core, with all threads that they have; threads to come inherit it.
func pin(pids ...int) error {
	var core unix.CPUSet
	core.Set(runtime.NumCPU() - 1)
	for _, pid := range pids {
		for range 2 { // a thread may have been born during the first look
			tasks, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
			if err != nil {
				return err
			}
			for _, t := range tasks {
				tid, err := strconv.Atoi(t.Name())
				if err != nil {
					return err
				}
				if err := unix.SchedSetaffinity(tid, &core); err != nil && err != unix.ESRCH { // it may have ended
					return err
				}
			}
		}
	}
	return nil
}
