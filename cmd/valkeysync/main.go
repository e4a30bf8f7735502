// Command valkeysync shows valkeysync at work: `valkeysync demo`.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/valkeysync/valkeysync/internal/demo"
)

const usage = `valkeysync is Go's sync across processes, held in Valkey or Redis.

Usage: valkeysync <command>

  demo       processes that share one counter under one lock, and what it costs
  version    the version of this program
  help       this text; help demo: the flags of demo
`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit status: 0, or what demo says, or 2 for wrong usage.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return 2
	}
	switch command, rest := args[0], args[1:]; command {
	case "demo":
		return demo.Run(rest, stdout, stderr)
	case demo.WorkerCommand:
		return demo.Worker(os.Stdin, stdout, stderr)
	case "version", "-version", "--version":
		fmt.Fprintln(stdout, version())
	case "help", "-h", "-help", "--help":
		if len(rest) > 0 && rest[0] == "demo" {
			return demo.Run([]string{"-h"}, stdout, stderr)
		}
		fmt.Fprint(stdout, usage)
	default:
		fmt.Fprintf(stderr, "valkeysync: unknown command %q; `valkeysync help` lists them\n", command)
		return 2
	}
	return 0
}

// version is the module's, as the build has recorded it, and what it was built with.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "valkeysync (no build information)"
	}
	v := info.Main.Version
	if v == "" {
		v = "(devel)"
	}
	return fmt.Sprintf("valkeysync %s, %s", v, info.GoVersion)
}
