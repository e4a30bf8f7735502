// Package playground is what the examples have around them so that each can be tried with nothing installed:
// a server inside the program, and several processes of it. A program of yours needs nothing of this.
package playground

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/valkey-io/valkey-go"
)

// leave is how long a replica has to end once it is told to.
const leave = 10 * time.Second

// Dial connects to the one server that the URL names (redis://127.0.0.1:6379).
func Dial(url string) (valkey.Client, error) {
	option, err := valkey.ParseURL(url)
	if err != nil {
		return nil, err
	}
	option.ConnWriteTimeout = 2 * time.Second // a server that falls silent is noticed well before a lease ends
	option.DisableCache = true                // the server of Run has no client-side caching …
	option.ForceSingleClient = true           // … and is no cluster: leave both out for yours
	return valkey.NewClient(option)
}

// Run starts a server inside this process, and this program n times on it: with the same arguments, and -url and
// args behind them. What they print it prints, with the number of the replica before each line. It returns when
// all have ended, which they are told to when ctx ends, and the error of the first that failed.
func Run(ctx context.Context, n int, args ...string) error {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return fmt.Errorf("start the server inside: %w; name one with -url", err)
	}
	defer server.Close()
	url := "redis://" + server.Addr()
	args = append([]string{"-url", url}, args...)
	fmt.Printf("%d replicas; start another with %s\n", n, strings.Join(args, " "))

	exe, err := os.Executable()
	if err != nil {
		return err
	}
	var printing sync.Mutex
	failed := make(chan error, n)
	for i := range n {
		cmd := exec.CommandContext(ctx, exe, slices.Concat(os.Args[1:], args)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = leave
		go func() {
			out, in := io.Pipe()
			cmd.Stdout, cmd.Stderr = in, in
			printed := make(chan struct{})
			go func() {
				defer close(printed)
				for lines := bufio.NewScanner(out); lines.Scan(); {
					printing.Lock()
					fmt.Printf("[%d] %s\n", i+1, lines.Text())
					printing.Unlock()
				}
			}()
			err := cmd.Run()
			in.Close()
			<-printed
			failed <- err
		}()
	}
	var first error
	for range n {
		if err := <-failed; err != nil && first == nil && ctx.Err() == nil {
			first = err
		}
	}
	return first
}

// RunWithFile is Run with a file that ends with it: its path is what follows the flag in the replicas' arguments.
func RunWithFile(ctx context.Context, n int, flag string) error {
	dir, err := os.MkdirTemp("", "playground-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return Run(ctx, n, flag, filepath.Join(dir, "file"))
}
