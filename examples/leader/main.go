// Leader elects one leader among many replicas, and has it hand over.
//
//	go run ./leader                                 # three replicas on a server inside; Ctrl-C ends them
//	go run ./leader -url redis://127.0.0.1:6379     # one replica; start several, stop and kill them
//
// The leader keeps a lock for as long as it leads, and the others wait for it in line:
//
//   - SIGTERM: the leader stops its work, unlocks, and the next leads one message later.
//   - The leader's process dies: the next leads within 2.5 s (crash detection), its host: within the lease.
//   - The leader is cut off or stopped: its context ends before another can lead, and so does its work.
//
// The term is the fencing token: it rises from leader to leader. Give it to whatever the leader writes to, so that
// what an old leader had under way is refused (see ../fencing).
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

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/examples/internal/playground"
)

// pause is how long a replica that could not stand for election waits before it does again.
const pause = time.Second

// campaign waits to be elected and leads, over and over, until ctx ends. lead has to return when its context ends,
// and not much later: that is when somebody else may lead. If it returns before, that is a resignation, and the
// replica goes to the end of the line.
func campaign(ctx context.Context, mu *valkeysync.Mutex, lead func(ctx context.Context, term int64) error) {
	for ctx.Err() == nil {
		held, err := mu.LockContext(ctx)
		if err != nil {
			if ctx.Err() == nil { // what the server refuses; what may pass, LockContext has waited out
				log.Print(err)
				sleep(ctx, pause)
			}
			continue
		}
		lease, _ := valkeysync.FromContext(held)
		fmt.Println("leads", lease.Token())
		err = lead(held, lease.Token())
		fmt.Println("led", lease.Token(), err)
		// Unlocking is what hands over: it has to be tried though ctx has ended.
		if err := mu.UnlockContext(context.WithoutCancel(held)); err != nil && !errors.Is(err, valkeysync.ErrLeaseLost) {
			log.Print(err) // it goes on in the background, and at the worst the lease runs out
		}
	}
}

// work is what only one may do at a time. It returns why it had to end.
func work(ctx context.Context, term int64, every time.Duration) error {
	beat := time.NewTicker(every)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx) // a *valkeysync.LostError, or that we were told to stop
		case <-beat.C:
			if ctx.Err() == nil { // a process that was stopped finds both cases true when it goes on
				fmt.Println("works", term)
			}
		}
	}
}

func main() {
	url := flag.String("url", "", "the `server`, as redis://127.0.0.1:6379; without it one inside, and three replicas")
	lease := flag.Duration("lease", 10*time.Second, "for how long a leader that is cut off or stopped is waited for")
	every := flag.Duration("every", time.Second, "how often the leader works")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *url == "" {
		err = playground.Run(ctx, 3)
	} else {
		err = replica(ctx, *url, *lease, *every)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func replica(ctx context.Context, url string, lease, every time.Duration) error {
	client, err := playground.Dial(url)
	if err != nil {
		return err
	}
	defer client.Close()
	locks, err := valkeysync.New(client, valkeysync.WithLease(lease))
	if err != nil {
		return err
	}
	defer locks.Close()

	fmt.Println("stands for election")
	campaign(ctx, locks.Mutex("leader:mailer"), func(ctx context.Context, term int64) error {
		return work(ctx, term, every)
	})
	fmt.Println("leaves")
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
