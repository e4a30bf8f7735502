package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/dial"
)

// work is one worker process.
type work struct {
	job     job
	parent  *sender
	counter valkey.Client
	mu      *valkeysync.Mutex // nil: without the lock

	failed, uncertain atomic.Int64
}

// Worker is the process that the demo starts again and again; it is not for people. It returns the exit
// status.
func Worker(in io.Reader, out, stderr io.Writer) int {
	// A terminal sends Ctrl-C to us as well as to the parent, which is the one to say when to end; and if
	// it is gone, there is still something to do when a write to it fails.
	signal.Ignore(os.Interrupt, syscall.SIGHUP, syscall.SIGPIPE)
	lines := bufio.NewReader(in)
	first, err := lines.ReadString('\n')
	var j job
	if err != nil || json.Unmarshal([]byte(first), &j) != nil || j.Worker < 1 {
		fmt.Fprintln(stderr, "valkeysync demo-worker is a part of `valkeysync demo`, which starts it by itself")
		return 2
	}
	w := &work{job: j, parent: &sender{out: out}}
	if err := w.run(lines, stderr); err != nil {
		_ = w.parent.say(wordFail, err.Error()) // a parent that is gone needs no answer
		return 2
	}
	return 0
}

// run does the job until the parent says stop, or is gone.
func (w *work) run(in *bufio.Reader, stderr io.Writer) error {
	ofLock, ofCounter := dial.NewCommands(), dial.NewCommands()
	var err error
	if w.counter, err = w.job.Place.client(ofCounter); err != nil {
		return err
	}
	defer w.counter.Close()
	var locks *valkeysync.Client
	if !w.job.NoLock {
		c, err := w.job.Place.client(ofLock)
		if err != nil {
			return err
		}
		defer c.Close()
		log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
		locks, err = valkeysync.New(c, valkeysync.WithName(w.job.name()), valkeysync.WithLogger(log))
		if err != nil {
			return err
		}
		defer locks.Close()
		w.mu = locks.Mutex(w.job.Place.lock())
	}
	lockBefore, counterBefore := ofLock.Counts(), ofCounter.Counts()
	_ = w.parent.say(wordReady, "")
	if hear(in) == wordGo {
		ctx, stop := context.WithCancel(context.Background())
		last := make(chan string, 1)
		go func() {
			last <- hear(in)
			stop()
		}()
		w.incrementAll(ctx)
		if <-last == wordStop {
			sum := summary{Failed: w.failed.Load(), Uncertain: w.uncertain.Load()}
			if locks != nil {
				for _, n := range locks.Stats().Lost {
					sum.Lost += n
				}
				_ = locks.Close() // what it still sends belongs to the count
			}
			sum.Lock, sum.Counter = minus(ofLock.Counts(), lockBefore), minus(ofCounter.Counts(), counterBefore)
			return w.parent.sum(sum)
		}
	}
	// The parent is gone and cannot tidy up; so each worker does, the last one for good.
	if locks != nil {
		_ = locks.Close()
	}
	return w.job.Place.tidy(context.Background(), w.counter)
}

// hear is the parent's next word; "" when it is gone.
func hear(in *bufio.Reader) string {
	line, err := in.ReadString('\n')
	if err != nil {
		return ""
	}
	return strings.TrimSpace(line)
}

func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

func minus(after, before map[string]int64) map[string]int64 {
	for name, n := range before {
		if after[name] -= n; after[name] == 0 {
			delete(after, name)
		}
	}
	return after
}

func (w *work) incrementAll(ctx context.Context) {
	var all sync.WaitGroup
	for range w.job.Goroutines {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := w.once(ctx); err != nil {
					select { // do not hammer a server that is not well
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
					}
				}
			}
		})
	}
	all.Wait()
}

// once is one increment, under the lock unless there is none.
func (w *work) once(ctx context.Context) error {
	if w.mu == nil {
		return w.increment(ctx, 0)
	}
	began := time.Now()
	held, err := w.mu.LockContext(ctx)
	if err != nil {
		return err
	}
	wait := time.Since(began)
	err = w.increment(held, wait)
	if end := w.mu.UnlockContext(held); end != nil && !errors.Is(end, valkeysync.ErrLeaseLost) {
		err = errors.Join(err, end)
	}
	return err
}

// increment reads the counter, adds one and writes it back: three steps, and whoever else does the same
// meanwhile loses an update, or makes us lose one.
func (w *work) increment(ctx context.Context, wait time.Duration) error {
	asked := context.WithoutCancel(ctx) // one that has begun is not to end without an answer
	n, err := w.job.Place.read(asked, w.counter)
	if err != nil {
		w.failed.Add(1)
		return err
	}
	if lease, ok := valkeysync.FromContext(ctx); ok && !lease.Valid() {
		return valkeysync.ErrLeaseLost // another may have the lock by now: hands off the counter
	}
	if err := w.job.Place.write(asked, w.counter, n+1); err != nil {
		w.uncertain.Add(1)
		return err
	}
	return w.parent.plus(n+1, wait)
}
