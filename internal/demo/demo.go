// Package demo is what `valkeysync demo` does: several processes increment one counter that cannot be
// incremented at once (read, add, write), under one Mutex, and all that was lost is counted.
//
//	demo.go       the parent: from the flags to the exit status
//	flags.go      what may be asked for
//	server.go     the server, and the demo's keys there
//	process.go    the parent's side of a worker
//	worker.go     a worker: the process that increments
//	wire.go       what the two say to each other
//	tally.go      what was incremented, and what was lost
//	histogram.go  p50 and p99 in constant memory
//	screen.go     progress, on a terminal or in a file
//	report.go     the table at the end
package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

// WorkerCommand is the hidden subcommand under which the program starts itself as a worker.
const WorkerCommand = "demo-worker"

// The exit statuses.
const (
	fine      = 0
	lossy     = 1 // updates were lost
	cannotRun = 2
)

const (
	// readyLimit is how long the workers may take to begin, endLimit to end.
	readyLimit = 30 * time.Second
	endLimit   = 10 * time.Second
)

// Run runs the demo and returns the exit status.
func Run(args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return fine
	}
	if err != nil {
		fmt.Fprintf(stderr, "valkeysync demo: %v\n`valkeysync help demo` lists the flags.\n", err)
		return cannotRun
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // who asks twice does not want the table
	status, err := run(ctx, s, newScreen(stdout))
	if err != nil {
		fmt.Fprintf(stderr, "valkeysync demo: %v\n", err)
		return cannotRun
	}
	return status
}

// show is one run of the demo.
type show struct {
	settings settings
	screen   *screen
	place    *place
	client   valkey.Client      // the parent's own
	locks    *valkeysync.Client // the same, to look at the lock; nil without one
	tally    *tally
	workers  []*process
}

func run(ctx context.Context, s settings, sc *screen) (status int, err error) {
	p, err := newPlace(s.url)
	if err != nil {
		return cannotRun, err
	}
	defer p.close()
	d := &show{settings: s, screen: sc, place: p, tally: newTally(s.workers)}
	if d.client, err = p.client(nil); err != nil {
		if s.url != "" {
			err = fmt.Errorf("%w\nIs a server there? Without -url the demo has one inside", err)
		}
		return cannotRun, err
	}
	defer d.client.Close()
	if !s.noLock {
		log := slog.New(slog.NewTextHandler(&lineWriter{line: sc.note}, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime}))
		if d.locks, err = valkeysync.New(d.client, valkeysync.WithName("demo"), valkeysync.WithLogger(log)); err != nil {
			return cannotRun, err
		}
		defer d.locks.Close()
	}
	// Not with ctx: who interrupts us still wants the counter read and the keys deleted.
	whole := context.WithoutCancel(ctx)
	if err := p.reset(whole, d.client); err != nil {
		return cannotRun, err
	}
	defer func() {
		if tidy := p.tidy(whole, d.client); tidy != nil && err == nil {
			sc.note(tidy.Error())
		}
	}()
	defer d.end() // whatever happens, no worker outlives us
	if err := d.start(ctx); err != nil {
		return cannotRun, err
	}
	began := time.Now()
	d.watch(ctx, began)
	lasted := time.Since(began)
	d.end()

	counter, err := p.read(whole, d.client)
	if err != nil {
		return cannotRun, err
	}
	r := &report{settings: s, lasted: lasted, counter: counter, lost: d.tally.lost(counter), tally: d.tally, workers: d.workers}
	sc.print(r.String())
	return d.verdict(r)
}

// start starts the workers, and lets them go together.
func (d *show) start(ctx context.Context) error {
	s := d.settings
	d.screen.print(fmt.Sprintf("One counter, incremented for %v by %s of %s.\n%s\nServer: %s\n\n",
		s.duration, plural(s.workers, "process", "processes"), plural(s.goroutines, "goroutine", "goroutines"), d.explain(), d.place))
	for i := range s.workers {
		j := job{Place: *d.place, Worker: i + 1, Goroutines: s.goroutines, NoLock: s.noLock}
		p, err := startWorker(j, d.tally, d.screen.note)
		if p != nil {
			d.workers = append(d.workers, p)
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", j.name(), err)
		}
	}
	limit := time.After(readyLimit)
	for _, p := range d.workers {
		select {
		case err := <-p.ready:
			if err != nil {
				return fmt.Errorf("%s could not start: %w", workerName(p.worker), err)
			}
		case <-limit:
			return fmt.Errorf("%s was not ready within %v: try fewer -workers", workerName(p.worker), readyLimit)
		case <-ctx.Done():
			return errors.New("interrupted before it began")
		}
	}
	for _, p := range d.workers {
		_ = p.say(wordGo)
	}
	return nil
}

func (d *show) explain() string {
	if d.settings.noLock {
		return "They read it, add one and write it back, WITHOUT a lock: where two read the\nsame number, both write the next one, and an update is lost."
	}
	return "They read it, add one and write it back, under one Mutex."
}

// watch shows how things go, until the time is over, somebody interrupts, or no worker is left.
func (d *show) watch(ctx context.Context, began time.Time) {
	end := time.NewTimer(d.settings.duration)
	defer end.Stop()
	tick := time.NewTicker(d.screen.every())
	defer tick.Stop()
	gone := make(chan *process, len(d.workers))
	for _, p := range d.workers {
		go func() {
			<-p.ended
			gone <- p
		}()
	}
	left := len(d.workers)
	var before int64
	at := began
	for {
		select {
		case <-end.C:
			return
		case <-ctx.Done():
			d.screen.note("interrupted: the workers end what they have begun")
			return
		case p := <-gone:
			left--
			d.screen.note(d.obituary(p, left))
			if left == 0 {
				return
			}
		case <-tick.C:
			total, twice := d.tally.soFar()
			now := time.Now()
			rate := float64(total-before) / now.Sub(at).Seconds()
			before, at = total, now
			d.screen.progress(fmt.Sprintf("%6.1fs %12s %9s/s  %s", now.Sub(began).Seconds(), grouped(total), grouped(int64(rate)), d.standing(ctx, twice)))
		}
	}
}

// obituary tells of a worker that ended by itself, or was killed.
func (d *show) obituary(p *process, left int) string {
	s := fmt.Sprintf("%s (pid %d) is gone: %v", workerName(p.worker), p.cmd.Process.Pid, p.cmd.ProcessState)
	switch {
	case left == 0:
		s += "; nobody is left"
	case d.locks != nil:
		s += "; what it held is free in 2.5s"
	}
	return s
}

// standing is who holds and who waits; without a lock what was lost so far.
func (d *show) standing(ctx context.Context, twice int64) string {
	if d.locks == nil {
		return grouped(twice) + " lost"
	}
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	st, err := d.locks.Status(ctx, d.place.lock())
	if err != nil {
		return "(the server does not say who holds)"
	}
	return who(st)
}

// end ends all workers, and returns when they have. It may be called twice.
func (d *show) end() {
	for _, p := range d.workers {
		p.stop()
	}
	limit := time.Now().Add(endLimit)
	for _, p := range d.workers {
		p.await(time.Until(limit))
	}
}

// verdict says in a line what the table shows.
func (d *show) verdict(r *report) (status int, err error) {
	total, _ := d.tally.soFar()
	switch {
	case r.lost > 0 && d.settings.noLock:
		d.screen.print(fmt.Sprintf("\n%s of %s updates were lost, as they are without a lock. Leave -no-lock out to see none lost.\n", grouped(r.lost), grouped(total)))
		return lossy, nil
	case r.lost > 0:
		d.screen.print(fmt.Sprintf("\n%s of %s updates were LOST.\n", grouped(r.lost), grouped(total)))
		return lossy, nil
	case total == 0:
		return cannotRun, errors.New("nothing was incremented: the lines above say why")
	case d.settings.noLock:
		d.screen.print("\nNo update was lost: nobody was in anybody's way. Give more -workers or -goroutines.\n")
	default:
		d.screen.print("\nNo update was lost.\n")
	}
	return fine, nil
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
