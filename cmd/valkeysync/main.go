// Command valkeysync is valkeysync for shells and for people: run a command under a lock, look at locks, and
// at what a server can do. `valkeysync help` lists its commands.
package main

import (
	"os"

	"github.com/valkeysync/valkeysync/internal/cli"
)

func main() {
	os.Exit(cli.Run(cli.World{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv}, os.Args[1:]))
}
