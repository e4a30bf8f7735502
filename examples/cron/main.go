// Cron runs a job at its times, on many replicas and yet once for each time.
//
//	go run ./cron                                   # three replicas on a server inside, a job every 5 s
//	go run ./cron -url redis://127.0.0.1:6379       # one replica; start it as often as you like
//
// A lock alone is not enough: it keeps two replicas from running the job at the same time, but a replica whose
// clock is half a second behind looks when the first is through, finds the lock free, and runs the job again.
// So the time of the last run, the mark, stands beside the lock, and is read and written under it:
//
//   - All wait for the lock, nobody only tries: if the one that has it dies, the next runs the job.
//   - Whoever gets it reads the mark, and leaves if that time is done.
//   - The mark only ever rises (ZADD GT), so a replica that was stopped for an hour cannot set it back.
//   - Wait and work together end at the next time. A lost lease ends the job's context.
//
// The foremost clock starts the job, the others find the mark. However far the clocks are apart, no time is done
// twice; those that are a whole period ahead have the others' times left out, so keep them by NTP.
//
// What is left: a replica that dies after the job and before the mark has the job run twice, for no server can
// know whether it was through. (Marking before the job would turn that into never.) Where the job writes to one
// database, keep the mark there and write it in the job's own transaction, as in ../startup: then it is exactly
// once. Otherwise make the job repeatable: it is given its time, so it can tell. The mark is as durable as the
// server is: one that forgets it may run the time that is due once more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/examples/internal/playground"
)

// cron is one job of one replica.
type cron struct {
	client valkey.Client
	mu     *valkeysync.Mutex
	mark   string // the key of the last time that is done: a sorted set with one member
	every  time.Duration
	now    func() time.Time
	job    func(ctx context.Context, due time.Time) error
}

var errDone = errors.New("another replica has done it")

// run runs the job at each multiple of every, until ctx ends.
func (c *cron) run(ctx context.Context) {
	for {
		due := c.now().Truncate(c.every).Add(c.every)
		select {
		case <-time.After(due.Sub(c.now())):
		case <-ctx.Done():
			return
		}
		switch err := c.once(ctx, due); {
		case err == nil || errors.Is(err, errDone):
		case ctx.Err() != nil:
			return
		default:
			log.Printf("%s: %v", due.Format(time.TimeOnly), err)
		}
	}
}

// once runs the job for the time that is due, unless that was done. It returns errDone if it was.
func (c *cron) once(ctx context.Context, due time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, c.every) // then the next time is due
	defer cancel()
	return c.mu.Do(ctx, func(ctx context.Context) error {
		last, err := c.client.Do(ctx, c.client.B().Zscore().Key(c.mark).Member("done").Build()).AsFloat64()
		if err != nil && !valkey.IsValkeyNil(err) {
			return err
		}
		if int64(last) >= due.UnixMilli() {
			return errDone
		}
		if err := c.job(ctx, due); err != nil {
			return err // no mark: the next in the queue tries
		}
		return c.client.Do(ctx, c.client.B().Zadd().Key(c.mark).Gt().
			ScoreMember().ScoreMember(float64(due.UnixMilli()), "done").Build()).Error()
	})
}

func main() {
	url := flag.String("url", "", "the `server`, as redis://127.0.0.1:6379; without it one inside, and three replicas")
	every := flag.Duration("every", 5*time.Second, "how often the job is due")
	work := flag.Duration("work", time.Second, "how long the job takes")
	skew := flag.Duration("skew", 0, "by how much this replica's clock is fast")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *url == "" {
		err = playground.Run(ctx, 3)
	} else {
		err = replica(ctx, *url, *every, *work, *skew)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func replica(ctx context.Context, url string, every, work, skew time.Duration) error {
	client, err := playground.Dial(url)
	if err != nil {
		return err
	}
	defer client.Close()
	locks, err := valkeysync.New(client)
	if err != nil {
		return err
	}
	defer locks.Close()

	c := cron{
		client: client,
		mu:     locks.Mutex("cron:report"),
		mark:   "cron:report:done",
		every:  every,
		now:    func() time.Time { return time.Now().Add(skew) },
		job: func(ctx context.Context, due time.Time) error {
			fmt.Println("begins", due.UTC().Format(time.RFC3339Nano))
			select {
			case <-time.After(work): // a real job gives ctx to all that it does
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			fmt.Println("done", due.UTC().Format(time.RFC3339Nano))
			return nil
		},
	}
	c.run(ctx)
	return nil
}
