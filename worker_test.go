package valkeysync

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Workers as processes of their own, which can be killed and stopped. A worker is this test binary, run once
// more: it does what it reads line by line, and says what comes of it.

// workerEnv has the address of the server for a worker.
const workerEnv = "VALKEYSYNC_TEST_WORKER"

func init() {
	if addr := os.Getenv(workerEnv); addr != "" {
		if err := work(addr, os.Getenv(workerEnv+"_LEASE"), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// work does what is asked, until there is nothing more to read:
//
//	lock key       → locked key token     later, when it has it
//	look key       → alive key, or dead key cause
//	unlock key     → unlocked key, or lost key cause
//	write key      → wrote key, or refused key    to the fenced store, without a look at the context
//	queue n key    → queued n key         with n Clients of their own, which all wait
//	count n m key  → counted key          n goroutines of m rounds each increment the counter
//	spin           → spinning             keeps the processor busy from now on
func work(addr, lease string, in io.Reader, out io.Writer) error {
	d, err := time.ParseDuration(lease)
	if err != nil {
		return err
	}
	conn, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	defer conn.Close()
	open := func() (*Client, error) {
		return New(conn, WithLease(d), WithCrashDetection(0), WithLogger(slog.New(slog.DiscardHandler)))
	}
	c, err := open()
	if err != nil {
		return err
	}
	defer c.Close()
	var mu sync.Mutex
	held := map[string]context.Context{}
	mutexes := map[string]*Mutex{}
	of := func(key string) (*Mutex, context.Context) {
		mu.Lock()
		defer mu.Unlock()
		if mutexes[key] == nil {
			mutexes[key] = c.Mutex(key)
		}
		return mutexes[key], held[key]
	}
	say := func(words ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(out, words...)
	}
	say("ready")
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		words := strings.Split(lines.Text(), " ")
		key := words[len(words)-1]
		m, ctx := of(key)
		switch words[0] {
		case "lock":
			go func() {
				ctx, err := m.LockContext(context.Background())
				if err != nil {
					say("failed", key, err)
					return
				}
				mu.Lock()
				held[key] = ctx
				mu.Unlock()
				l, _ := FromContext(ctx)
				say("locked", key, l.Token())
			}()
		case "look":
			if err := ctx.Err(); err == nil {
				say("alive", key)
			} else {
				say("dead", key, lossIn(context.Cause(ctx)))
			}
		case "unlock":
			switch err := m.UnlockContext(ctx); {
			case err == nil:
				say("unlocked", key)
			default:
				say("lost", key, lossIn(err))
			}
		case "write":
			l, _ := FromContext(ctx)
			if err := fencedWrite(conn, key, l.Token(), "by an old holder"); err != nil {
				say("refused", key)
			} else {
				say("wrote", key)
			}
		case "queue":
			n, _ := strconv.Atoi(words[1])
			for range n {
				c, err := open()
				if err != nil {
					return err
				}
				go c.Mutex(key).Lock()
			}
			say("queued", n, key)
		case "count":
			n, _ := strconv.Atoi(words[1])
			rounds, _ := strconv.Atoi(words[2])
			if err := count(conn, c, key, n, rounds); err != nil {
				return err
			}
			say("counted", key)
		case "spin":
			for range 4 {
				go func() {
					for { //nolint:staticcheck // SA5002: it is to keep the processor busy
					}
				}()
			}
			say("spinning", key)
		}
	}
	return nil
}

func lossIn(err error) Cause {
	var lost *LostError
	if errors.As(err, &lost) {
		return lost.Cause
	}
	return Cause(fmt.Sprintf("%q", err))
}

// fencedStore refuses whoever comes with a lower token than it has seen.
var fencedStore = valkey.NewLuaScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or '0')
if tonumber(ARGV[1]) < seen then
  return redis.error_reply('STALE token ' .. ARGV[1] .. ' after ' .. string.format('%.0f', seen))
end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'value', ARGV[2])
return 'OK'`)

func fencedWrite(conn valkey.Client, key string, token int64, value string) error {
	return fencedStore.Exec(context.Background(), conn, []string{"store of " + key}, []string{fmt.Sprint(token), value}).Error()
}

// count increments a counter in two requests, which only the lock keeps together.
func count(conn valkey.Client, c *Client, key string, goroutines, rounds int) error {
	m := c.Mutex(key)
	errs := make(chan error, goroutines)
	for range goroutines {
		go func() {
			for range rounds {
				err := m.Do(context.Background(), func(ctx context.Context) error {
					n, err := conn.Do(ctx, conn.B().Hget().Key("store of "+key).Field("value").Build()).AsInt64()
					if err != nil && !valkey.IsValkeyNil(err) {
						return err
					}
					l, _ := FromContext(ctx)
					return fencedWrite(conn, key, l.Token(), fmt.Sprint(n+1))
				})
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var all error
	for range goroutines {
		all = errors.Join(all, <-errs)
	}
	return all
}

// worker is such a process, as the test sees it.
type worker struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	done  chan struct{}
}

func startWorker(t testing.TB, s *testserver.Server, lease time.Duration, env ...string) *worker {
	t.Helper()
	w := &worker{t: t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000), done: make(chan struct{})}
	w.cmd.Env = append(append(os.Environ(), workerEnv+"="+s.Addr(), workerEnv+"_LEASE="+lease.String()), env...)
	w.cmd.Stderr = os.Stderr
	in, err := w.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.cmd.Start())
	w.in = in
	go func() {
		defer close(w.done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			w.lines <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		w.signal(syscall.SIGCONT)
		w.kill()
	})
	w.expect("ready")
	return w
}

func (w *worker) tell(words ...any) {
	w.t.Helper()
	_, err := fmt.Fprintln(w.in, words...)
	require.NoError(w.t, err)
}

// expect waits for the line that begins with these words, which must be the next, and returns the last word.
func (w *worker) expect(words ...any) string {
	w.t.Helper()
	want := strings.TrimSpace(fmt.Sprintln(words...))
	select {
	case line := <-w.lines:
		require.True(w.t, strings.HasPrefix(line, want), "the worker says %q, want %q", line, want)
		return line[strings.LastIndexByte(line, ' ')+1:]
	case <-w.done:
		w.t.Fatalf("the worker has ended, want %q", want)
	case <-time.After(2 * soon):
		w.t.Fatalf("the worker does not say %q", want)
	}
	return ""
}

// token is expect of a token.
func (w *worker) token(key string) int64 {
	w.t.Helper()
	n, err := strconv.ParseInt(w.expect("locked", key), 10, 64)
	require.NoError(w.t, err)
	return n
}

func (w *worker) signal(sig syscall.Signal) {
	_ = w.cmd.Process.Signal(sig)
	if sig == syscall.SIGSTOP {
		w.stopped()
	}
}

// stopped waits until every thread has stopped: the signal alone leaves them a moment in which to go on.
func (w *worker) stopped() {
	eventually(w.t, soon, "the worker has stopped", func() bool {
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", w.cmd.Process.Pid))
		if err != nil || len(stats) == 0 {
			return false
		}
		for _, name := range stats {
			b, err := os.ReadFile(name)
			if err != nil || !strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')')+1:]), " T") {
				return false
			}
		}
		return true
	})
}

// kill ends the process, and returns when it is gone.
func (w *worker) kill() {
	w.signal(syscall.SIGKILL)
	<-w.done
	_ = w.cmd.Wait()
}
