//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// isTerminal reports whether a person may sit at the other end.
func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// inFront reports whether we have a terminal that sends us what is typed there: Ctrl-C goes to our whole
// process group.
func inFront() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// size is how much text the terminal takes.
func size(end any) (rows, columns int) {
	if f, ok := end.(*os.File); ok {
		if ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ); err == nil && ws.Row > 2 && ws.Col > 10 {
			return int(ws.Row), int(ws.Col)
		}
	}
	return usualRows, usualColumns
}
