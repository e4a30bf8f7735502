// Ratelimit keeps to an API's limit of calls in flight, over all replicas together.
//
//	go run ./ratelimit                              # three replicas, a server and an API inside
//	go run ./ratelimit -url redis://127.0.0.1:6379 -api http://127.0.0.1:8080
//
// Each call has a permit of a semaphore that all replicas share, and one deadline for the wait and the call:
//
//   - Whoever waits does so in line, and is told when there is a permit; nobody asks again and again.
//   - A lost lease (the server was away for too long) ends the call's context, and so the call, before its permit
//     can be given to another.
//   - A replica that dies gives its permits back some seconds later, before their leases are over, if the deadline lets
//     others wait for 4 s at least: that is how long they listen until they believe that it is dead.
//   - When the API is out of order the pause before the next try is made without a permit, so that those whose
//     calls might succeed have it.
//
// The semaphore limits how many calls are in flight, not how many there are in a second.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/examples/internal/playground"
)

// api is the client of an API that allows so many calls in flight.
type api struct {
	url     string
	permits *valkeysync.Semaphore
	limit   time.Duration // of one try: the wait for a permit, and the call
}

// errBusy: the API asks to be left alone for a while.
var errBusy = errors.New("the API is out of order")

// get makes one call.
func (a *api) get(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, a.limit)
	defer cancel()
	return a.permits.Do(ctx, 1, func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+path, nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err // Do adds it if the lease was lost
		}
		defer response.Body.Close()
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			return err
		}
		switch {
		case response.StatusCode == http.StatusServiceUnavailable:
			return errBusy
		case response.StatusCode != http.StatusOK:
			return fmt.Errorf("%s: %s", path, response.Status)
		}
		return nil
	})
}

// getPatiently is get for a call that may be repeated, until ctx ends.
func (a *api) getPatiently(ctx context.Context, path string) error {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := a.get(ctx, path)
		if err == nil || ctx.Err() != nil {
			return err
		}
		fmt.Println("again:", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func main() {
	url := flag.String("url", "", "the `server`, as redis://127.0.0.1:6379; without it one inside, and three replicas")
	target := flag.String("api", "http://127.0.0.1:8080", "the `URL` of the API")
	most := flag.Int64("most", 3, "how many calls the API allows in flight")
	calls := flag.Int("n", 20, "how many calls to make")
	limit := flag.Duration("limit", 5*time.Second, "how long one try may take, the wait included")
	lease := flag.Duration("lease", 10*time.Second, "the lease")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *url == "" {
		err = inside(ctx, *most)
	} else {
		err = replica(ctx, *url, *target, *most, *calls, *limit, *lease)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// inside runs three replicas on a server and an API that end with them.
func inside(ctx context.Context, most int64) error {
	var flying, seen atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := flying.Add(1)
		defer flying.Add(-1)
		seen.Store(max(seen.Load(), n))
		if n > most {
			http.Error(w, "too many calls", http.StatusTooManyRequests)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}))
	defer server.Close()
	err := playground.Run(ctx, 3, "-api", server.URL)
	fmt.Println("at most", seen.Load(), "calls in flight")
	return err
}

func replica(ctx context.Context, url, target string, most int64, calls int, limit, lease time.Duration) error {
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

	a := &api{url: target, permits: locks.Semaphore("api:orders", most), limit: limit}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(10) // more than there are permits
	for i := range calls {
		group.Go(func() error {
			path := fmt.Sprintf("/orders/%d", i)
			if err := a.getPatiently(ctx, path); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			fmt.Println("got", path)
			return nil
		})
	}
	return group.Wait()
}
