package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/dial"
	"github.com/valkeysync/valkeysync/internal/words"
)

const benchUsage = `Usage: valkeysync bench [-duration D]

Measures on your own server, from here: a round trip, to compare with; a lock that nobody else wants; and the
hand-over of one that another waits for, from the unlock in one Client to the lock in the other. It uses keys of
its own and leaves nothing behind.

Flags:
  -duration D    how long each of the three is measured, such as 1s (default 2s)
` + serverUsage + `
Exit status: 0; 2 wrong usage, or the server cannot be used.
`

// stand is one run of bench.
type stand struct {
	key   string // without the prefix
	d     time.Duration
	count *dial.Commands
	a, b  *valkeysync.Client
}

func benchCommand(w World, args []string) int {
	f := flagSet("bench")
	s := serverFlags(w, f)
	b := &stand{key: "valkeysync:probe:" + uuid.NewString(), d: 2 * time.Second, count: dial.NewCommands()}
	durationVar(f, &b.d, "duration")
	err := parseNone(f, args)
	if err == nil && (b.d < 10*time.Millisecond || b.d > time.Hour) {
		err = errors.New("-duration: give 10ms to 1h")
	}
	if err != nil {
		return w.wrongArgs("bench", benchUsage, err, cannotRun)
	}
	if err := b.run(w, s); err != nil {
		return w.fail("bench", ofKey(err), cannotRun)
	}
	return fine
}

func (b *stand) run(w World, s *server) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	locks, client, end, err := s.both(w, b.count)
	if err != nil {
		return err
	}
	defer end()
	other, _, endOther, err := s.both(w, b.count)
	if err != nil {
		return err
	}
	defer endOther()
	b.a, b.b = locks, other
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		_ = client.Do(ctx, client.B().Del().Key("{"+s.prefix+b.key+"}:fence").Build()).Error()
	}()

	fmt.Fprintf(w.Out, "%s, %v each\n\n%-28s %10s %10s %10s %12s\n", dial.Shown(s.url), b.d, "", "p50", "p99", "times", "commands ¹")
	trip, err := b.measure(ctx, func(ctx context.Context) (time.Duration, error) {
		began := time.Now()
		err := client.Do(ctx, client.B().Ping().Build()).Error()
		return time.Since(began), err
	})
	if err != nil {
		return err
	}
	trip.print(w, "round trip (PING)", 0)

	before := total(b.count)
	alone, err := b.measure(ctx, b.alone)
	if err != nil {
		return err
	}
	alone.print(w, "lock and unlock, alone", float64(total(b.count)-before)/float64(len(alone)))

	before = total(b.count)
	over, err := b.handOvers(ctx, 2*trip.at(50)+time.Millisecond)
	if err != nil {
		return err
	}
	over.print(w, "hand-over to another", float64(total(b.count)-before)/float64(len(over)))
	fmt.Fprint(w.Out, "\nA hand-over is half a round trip to the server, half of one back to the other, and a script in between.\n"+
		"¹ for each acquisition, with the unlock and all that goes on in the background\n")
	return nil
}

// alone is one acquisition that nobody disputes.
func (b *stand) alone(ctx context.Context) (time.Duration, error) {
	mu := b.a.Mutex(b.key)
	began := time.Now()
	held, err := mu.LockContext(ctx)
	if err != nil {
		return 0, err
	}
	err = mu.UnlockContext(held)
	return time.Since(began), err
}

// handOvers has two Clients take turns: each waits while the other holds, for as long as it takes the other
// to be in the queue.
func (b *stand) handOvers(ctx context.Context, hold time.Duration) (samples, error) {
	ctx, stop := context.WithTimeout(ctx, b.d+callLimit)
	defer stop()
	end := time.Now().Add(b.d)
	unlocked := make(chan time.Time, 1) // by the other, just now
	results := make(chan error, 2)
	var took samples // written by whoever holds
	for _, c := range []*valkeysync.Client{b.a, b.b} {
		go func() {
			mu := c.Mutex(b.key)
			for time.Now().Before(end) {
				held, err := mu.LockContext(ctx)
				if err != nil {
					results <- err
					return
				}
				select {
				case at := <-unlocked:
					took = append(took, time.Since(at))
				default: // the first
				}
				time.Sleep(hold)
				select {
				case unlocked <- time.Now():
				default:
				}
				if err := mu.UnlockContext(held); err != nil {
					results <- err
					return
				}
			}
			results <- nil
		}()
	}
	err := errors.Join(<-results, <-results)
	if err == nil && len(took) == 0 {
		err = errors.New("no hand-over in that time: give a longer -duration")
	}
	slices.Sort(took)
	return took, err
}

// measure repeats f until the time is over.
func (b *stand) measure(ctx context.Context, f func(context.Context) (time.Duration, error)) (samples, error) {
	var took samples
	for end := time.Now().Add(b.d); time.Now().Before(end); {
		d, err := f(ctx)
		if err != nil {
			return nil, err
		}
		took = append(took, d)
	}
	slices.Sort(took)
	return took, nil
}

// samples are sorted.
type samples []time.Duration

func (s samples) at(percent int) time.Duration { return s[min(len(s)-1, len(s)*percent/100)] }

func (s samples) print(w World, name string, commands float64) {
	cost := "-"
	if commands > 0 {
		cost = fmt.Sprintf("%.2f", commands)
	}
	fmt.Fprintf(w.Out, "%-28s %10s %10s %10d %12s\n", name, words.Short(s.at(50)), words.Short(s.at(99)), len(s), cost)
}

func total(c *dial.Commands) int64 {
	var n int64
	for _, each := range c.Counts() {
		n += each
	}
	return n
}
