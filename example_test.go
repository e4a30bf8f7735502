package valkeysync_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

// start starts a server inside the example, and makes a Client on it for each name: what follows works
// the same where every one of them is in a process of its own.
func start(names ...string) (clients []*valkeysync.Client, stop func()) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	stops := []func(){server.Close}
	for _, name := range names {
		conn, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{server.Addr()}, DisableCache: true, ForceSingleClient: true,
		})
		if err != nil {
			log.Fatal(err)
		}
		c, err := valkeysync.New(conn, valkeysync.WithName(name), valkeysync.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			log.Fatal(err)
		}
		clients = append(clients, c)
		stops = append(stops, conn.Close, func() { _ = c.Close() }) // Close returns nil
	}
	return clients, func() {
		for _, stop := range slices.Backward(stops) {
			stop()
		}
	}
}

// A Mutex is used as a sync.Mutex is.
func ExampleMutex() {
	clients, stop := start("host-a", "host-b")
	defer stop()

	counter := 0
	var all sync.WaitGroup
	for _, c := range clients { // two processes …
		mu := c.Mutex("counter")
		for range 5 { // … of five goroutines
			all.Go(func() {
				mu.Lock()
				defer mu.Unlock()
				counter++
			})
		}
	}
	all.Wait()
	fmt.Println(counter)
	// Output: 10
}

// The context that a lock gives ends when the lease is lost: here because an operator took the lock away.
func ExampleMutex_LockContext() {
	clients, stop := start("host-a", "operator")
	defer stop()
	mu, operator := clients[0].Mutex("orders"), clients[1]

	ctx, err := mu.LockContext(context.Background())
	if err != nil {
		log.Fatal(err) // who has it, and for how long
	}
	if err := operator.ForceUnlock(context.Background(), "orders"); err != nil {
		log.Fatal(err)
	}
	<-ctx.Done() // work that is given ctx stops by itself
	fmt.Println(context.Cause(ctx))

	err = mu.UnlockContext(ctx)
	fmt.Println(errors.Is(err, valkeysync.ErrLeaseLost))
	// Output:
	// valkeysync: lease of "orders" lost: deleted
	// true
}

// Who does not want to wait is told who has the lock.
func ExampleMutex_TryLockContext() {
	clients, stop := start("host-a", "host-b")
	defer stop()
	a, b := clients[0].Mutex("nightly-report"), clients[1].Mutex("nightly-report")

	ctx, err := a.TryLockContext(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer a.UnlockContext(ctx)

	_, err = b.TryLockContext(context.Background())
	var busy *valkeysync.WaitError
	if errors.As(err, &busy) && errors.Is(err, valkeysync.ErrLocked) {
		fmt.Println("the report is being made by", busy.Holder)
	}
	// Output: the report is being made by host-a
}

// Do unlocks whatever happens, and tells whether the lease was lost on the way.
func ExampleMutex_Do() {
	clients, stop := start("host-a")
	defer stop()
	mu := clients[0].Mutex("orders")

	err := mu.Do(context.Background(), func(ctx context.Context) error {
		return errors.New("out of paper")
	})
	fmt.Println(err)
	fmt.Println(mu.TryLock())
	mu.Unlock()
	// Output:
	// out of paper
	// true
}

// store is what a lock protects. It refuses a fencing token that is lower than one it has seen.
type store struct {
	mu    sync.Mutex
	token int64
	value string
}

func (s *store) put(token int64, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		return errors.New("refused: a later holder has written already")
	}
	s.token, s.value = token, value
	return nil
}

// A holder that was stopped in the middle of something, and does not know yet that the lock is another's
// by now, is kept out by its fencing token.
func ExampleFromContext() {
	clients, stop := start("host-a", "host-b")
	defer stop()
	var s store

	stale, err := clients[0].Mutex("orders").LockContext(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	old, _ := valkeysync.FromContext(stale)
	if err := clients[1].ForceUnlock(context.Background(), "orders"); err != nil { // or its lease ran out
		log.Fatal(err)
	}
	err = clients[1].Mutex("orders").Do(context.Background(), func(ctx context.Context) error {
		lease, _ := valkeysync.FromContext(ctx)
		return s.put(lease.Token(), "by host-b")
	})
	fmt.Println(err, s.value)

	fmt.Println(s.put(old.Token(), "by host-a"))
	// Output:
	// <nil> by host-b
	// refused: a later holder has written already
}

// Many processes read a configuration, and now and then one of them writes it anew: nobody reads half of it.
func ExampleRWMutex() {
	clients, stop := start("host-a", "host-b")
	defer stop()
	config := map[string]string{"color": "red", "size": "small"} // in a place that all of them can reach

	reload := clients[0].RWMutex("config")
	reload.Lock()
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			rw := clients[1].RWMutex("config")
			rw.RLock() // waits for the writer, and not for other readers
			defer rw.RUnlock()
			fmt.Println(config["color"], config["size"])
		})
	}
	config["color"] = "blue"
	config["size"] = "large"
	reload.Unlock()
	readers.Wait()
	// Output:
	// blue large
	// blue large
	// blue large
}

// An API takes three calls at a time, of all processes together.
func ExampleSemaphore() {
	clients, stop := start("host-a", "host-b")
	defer stop()
	var mu sync.Mutex
	calls, now, most := 0, 0, 0
	call := func(change int) {
		mu.Lock()
		defer mu.Unlock()
		now += change
		most = max(most, now)
		calls += max(change, 0)
	}

	var all sync.WaitGroup
	for _, c := range clients {
		api := c.Semaphore("api", 3)
		for range 5 {
			all.Go(func() {
				err := api.Do(context.Background(), 1, func(ctx context.Context) error {
					call(+1)
					defer call(-1)
					select {
					case <-time.After(time.Millisecond): // the API works
						return nil
					case <-ctx.Done(): // our permit is gone
						return context.Cause(ctx)
					}
				})
				if err != nil {
					log.Fatal(err)
				}
			})
		}
	}
	all.Wait()
	fmt.Println(calls, "calls; more than three at once:", most > 3)
	// Output: 10 calls; more than three at once: false
}

// A function that locks is called by another that holds the lock already: the context says so.
func ExampleWithReentrancy() {
	clients, stop := start("host-a")
	defer stop()
	account := clients[0].Mutex("account:7", valkeysync.WithReentrancy())
	deposit := func(ctx context.Context, amount int) error {
		return account.Do(ctx, func(context.Context) error {
			fmt.Println("deposit", amount)
			return nil
		})
	}
	err := account.Do(context.Background(), func(ctx context.Context) error {
		if err := deposit(ctx, 10); err != nil {
			return err
		}
		return deposit(ctx, 20)
	})
	fmt.Println(err)
	// Output:
	// deposit 10
	// deposit 20
	// <nil>
}

// A transfer needs both accounts, and nobody who needs the same two in the other order waits for ever.
func ExampleClient_LockAll() {
	clients, stop := start("host-a", "host-b")
	defer stop()
	balance := map[string]int{"anna": 100, "ben": 100}
	transfer := func(locks *valkeysync.Client, from, to string, amount int) error {
		ctx, err := locks.LockAll(context.Background(), "account:"+from, "account:"+to)
		if err != nil {
			return err
		}
		defer locks.UnlockAll(ctx)
		balance[from] -= amount
		balance[to] += amount
		return ctx.Err()
	}
	var both sync.WaitGroup
	both.Go(func() { fmt.Println(transfer(clients[0], "anna", "ben", 30)) })
	both.Go(func() { fmt.Println(transfer(clients[1], "ben", "anna", 10)) })
	both.Wait()
	fmt.Println(balance)
	// Output:
	// <nil>
	// <nil>
	// map[anna:80 ben:120]
}

// A lock on a majority of independent servers goes on when one of them is lost.
func ExampleNewQuorum() {
	var servers []*valkeysync.Client
	var stops []func()
	for range 3 {
		clients, stop := start("host-a")
		servers = append(servers, clients[0])
		stops = append(stops, stop)
	}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	quorum, err := valkeysync.NewQuorum(servers...)
	if err != nil {
		log.Fatal(err)
	}
	defer quorum.Close()

	mu := quorum.Mutex("orders")
	ctx, err := mu.LockContext(context.Background())
	if err != nil {
		log.Fatal(err) // what each of the servers says
	}
	stops[2]() // one server is lost, and here its Client too
	stops = stops[:2]
	fmt.Println("still mine:", ctx.Err() == nil)
	fmt.Println(mu.UnlockContext(ctx))
	// Output:
	// still mine: true
	// <nil>
}
