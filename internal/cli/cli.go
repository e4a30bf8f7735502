// Package cli is the command line of cmd/valkeysync, one file for each command:
//
//	cli.go         the list of commands, and help
//	flags.go       what all commands read of their arguments
//	server.go      the server that they speak to
//	run.go         run: from the flags to the exit status
//	child*.go      run: the command that runs under the lock, and its signals
//	status.go      status, and how a lock is shown
//	watch.go       watch
//	ls.go          ls
//	ui.go          ui; the page itself is internal/page
//	unlock.go      unlock
//	doctor.go      doctor; checks.go its checks
//	bench.go       bench
//	terminal*.go   whether a person sits there
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/valkeysync/valkeysync/internal/demo"
)

// World is all that a command sees of the world around it.
type World struct {
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
}

// The exit statuses of all commands but run.
const (
	fine      = 0
	negative  = 1 // what was asked for is not so: see each command
	cannotRun = 2 // wrong usage, or the server cannot be used
)

// command is one of the program's commands.
type command struct {
	name  string
	short string // for the list
	usage string // for its help
	run   func(w World, args []string) int
}

func commands() []command {
	return []command{
		{"run", "run a command while holding a lock, as flock(1) does, over machines", runUsage, runCommand},
		{"status", "who holds a lock, and who waits for it", statusUsage, statusCommand},
		{"watch", "the same, as it changes", watchUsage, watchCommand},
		{"ls", "all locks whose keys begin so", lsUsage, lsCommand},
		{"ui", "the same of all locks, as it changes, on a page for a browser", uiUsage, uiCommand},
		{"unlock", "take a lock from whoever has it", unlockUsage, unlockCommand},
		{"doctor", "can this server be used, and what would make it better", doctorUsage, doctorCommand},
		{"bench", "what a lock costs on your own server", benchUsage, benchCommand},
		{"demo", "processes that share one counter under one lock, and what it costs", "", demoCommand},
		{"version", "the version of this program", "Usage: valkeysync version\n", versionCommand},
	}
}

// Run runs the command that args name and returns the exit status.
func Run(w World, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(w.Err, usage())
		return cannotRun
	}
	name, rest := args[0], args[1:]
	switch name {
	case demo.WorkerCommand:
		return demo.Worker(w.In, w.Out, w.Err)
	case "help", "-h", "-help", "--help":
		return help(w, rest)
	case "-version", "--version":
		name = "version"
	}
	for _, c := range commands() {
		if c.name == name {
			return c.run(w, rest)
		}
	}
	fmt.Fprintf(w.Err, "valkeysync: unknown command %q; `valkeysync help` lists them\n", name)
	return cannotRun
}

func help(w World, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(w.Out, usage())
		return fine
	}
	for _, c := range commands() {
		switch {
		case c.name != args[0]:
		case c.usage == "":
			return c.run(w, []string{"-h"})
		default:
			fmt.Fprint(w.Out, c.usage)
			return fine
		}
	}
	fmt.Fprintf(w.Err, "valkeysync: unknown command %q; `valkeysync help` lists them\n", args[0])
	return cannotRun
}

func usage() string {
	var b strings.Builder
	b.WriteString("valkeysync is Go's sync across processes, held in Valkey or Redis.\n\nUsage: valkeysync COMMAND …\n\n")
	for _, c := range commands() {
		fmt.Fprintf(&b, "  %-9s  %s\n", c.name, c.short)
	}
	b.WriteString("  help       this text; help COMMAND: all about one of them\n" + serverUsage)
	return b.String()
}

func demoCommand(w World, args []string) int { return demo.Run(args, w.Out, w.Err) }

func versionCommand(w World, _ []string) int {
	fmt.Fprintln(w.Out, version())
	return fine
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

// fail tells why a command ends with that status.
func (w World) fail(name string, err error, status int) int {
	text := strings.TrimPrefix(err.Error(), "valkeysync: ")
	var wrong usageError
	if errors.As(err, &wrong) {
		text += fmt.Sprintf("\n`valkeysync help %s` has all of it.", name)
	}
	fmt.Fprintf(w.Err, "valkeysync %s: %s\n", name, text)
	return status
}

// wrongArgs is the end of a command whose arguments are help, or wrong.
func (w World) wrongArgs(name, usage string, err error, status int) int {
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(w.Out, usage)
		return fine
	}
	return w.fail(name, usageError{err}, status)
}

// logger writes what no error can tell, for people.
func (w World) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(w.Err, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
}
