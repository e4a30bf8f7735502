//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// command says which signals it gets, until TERM, and ends with 3. With "deaf" it only says that.
func command(args []string) {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals)
	os.Stdout.WriteString("ready\n")
	for sig := range signals {
		switch sig {
		case syscall.SIGURG, syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGWINCH: // Go's runtime's own, and everyday ones
			continue
		}
		os.Stdout.WriteString("got " + sig.String() + "\n")
		if sig == syscall.SIGTERM && len(args) == 0 {
			os.Exit(3)
		}
	}
}
