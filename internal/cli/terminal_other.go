//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package cli

import "os"

func isTerminal(end any) bool {
	f, ok := end.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func inFront() bool { return false }

func size(any) (rows, columns int) { return usualRows, usualColumns }
