package valkeysync_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// First steps, on a real server: A locks; B is told who has it and cannot unlock it; a person looks; A
// unlocks and B gets it; A dies and B gets it all the same.
func Example_firstSteps() {
	ctx := context.Background()
	server, stop := realServer()
	defer stop()
	a, killA := process(server, "A")
	b, endB := process(server, "B")
	defer endB()
	status := func() {
		s, err := b.Status(ctx, "orders")
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print("status: ", s.State)
		for _, h := range s.Holders {
			fmt.Printf(", by %s", h.Name)
			if h.Remaining > time.Second { // of a lease of 3 s, which is renewed each second
				fmt.Print(", more than a second left")
			}
		}
		fmt.Println()
	}

	status()
	mine, theirs := a.Mutex("orders"), b.Mutex("orders")
	held, err := mine.LockContext(ctx)
	fmt.Println("A locks:", err)
	status()

	_, err = theirs.TryLockContext(ctx)
	var wait *valkeysync.WaitError
	fmt.Println("B tries:", errors.Is(err, valkeysync.ErrLocked), errors.As(err, &wait))
	fmt.Println("held by", wait.Holder, "for more than a second:", wait.Remaining > time.Second)
	fmt.Println("B unlocks:", theirs.UnlockContext(ctx))

	got := make(chan context.Context)
	lock := func() {
		ctx, err := theirs.LockContext(ctx)
		if err != nil {
			log.Fatal(err)
		}
		got <- ctx
	}
	go lock()
	fmt.Println("A unlocks:", mine.UnlockContext(held))
	held = <-got
	fmt.Println("B has it")
	fmt.Println("B unlocks:", theirs.UnlockContext(held))

	if _, err = mine.LockContext(ctx); err != nil {
		log.Fatal(err)
	}
	go lock()
	killA()
	held = <-got
	fmt.Println("A died, B has it")
	fmt.Println("B unlocks:", theirs.UnlockContext(held))

	// Somebody's plain SET, without PX: it will not go away by itself.
	if _, err := server.Do("SET", "orders", "backup.sh"); err != nil {
		log.Fatal(err)
	}
	status()
	fmt.Println("force:", b.ForceUnlock(ctx, "orders"))
	status()

	// Output:
	// status: free
	// A locks: <nil>
	// status: held, by A, more than a second left
	// B tries: true true
	// held by A for more than a second: true
	// B unlocks: valkeysync: not locked: unlock once for each lock, with the handle that locked, and with the context that it gave for that
	// A unlocks: <nil>
	// B has it
	// B unlocks: <nil>
	// A died, B has it
	// B unlocks: <nil>
	// status: no expiry, by backup.sh
	// force: <nil>
	// status: free
}

// realServer starts a valkey-server.
func realServer() (server *testserver.Server, stop func()) {
	dir, err := os.MkdirTemp("", "valkeysync-example-")
	if err != nil {
		log.Fatal(err)
	}
	server, err = testserver.Launch(testserver.Valkey, dir, "--notify-keyspace-events", "Kgxe")
	if err != nil {
		log.Fatal(err)
	}
	return server, func() {
		server.Close()
		if err := os.RemoveAll(dir); err != nil {
			log.Fatal(err)
		}
	}
}

// process is what a process of that name has. Its end is a sudden one: its connections are gone, and
// whatever it held it neither unlocks nor renews.
func process(server *testserver.Server, name string) (c *valkeysync.Client, end func()) {
	conn, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Addr()}, DisableCache: true})
	if err != nil {
		log.Fatal(err)
	}
	c, err = valkeysync.New(conn,
		valkeysync.WithName(name), valkeysync.WithLease(3*time.Second), valkeysync.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	return c, func() {
		conn.Close()
		_ = c.Close() // returns nil
	}
}
