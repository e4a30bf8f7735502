// Fencing keeps a holder that was stopped in the middle of something out of the database.
//
//	go run ./fencing                                               # three replicas, a server and a database inside
//	go run ./fencing -url redis://127.0.0.1:6379 -db accounts.db   # one replica
//
// No lock with a lease can stop a process from sending what it was about to send when it was paused (a swapped-out
// machine, a debugger, a request that sits in a buffer). The database can: it keeps the highest fencing token with
// the row, and refuses whoever comes with an older one. Two statements do it:
//
//   - claim reads the row and leaves the token in it. From then on no older holder can write, also while the
//     new one still thinks about what it has read.
//   - write writes only if the token in the row is still its own.
//
// Here the database is SQLite, used by several processes. With PostgreSQL it is the same SQL, but for its
// placeholders (tried with PostgreSQL 15):
//
//	CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, token bigint NOT NULL DEFAULT 0);
//	UPDATE accounts SET token = $1 WHERE id = $2 AND token <= $1 RETURNING balance;
//	UPDATE accounts SET balance = $1 WHERE id = $2 AND token = $3;
//
// READ COMMITTED, its default, is enough: an UPDATE that has waited for a row looks at the condition again.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "modernc.org/sqlite"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/examples/internal/playground"
)

// errFenced: a later holder has claimed the account.
var errFenced = errors.New("refused: a later holder has claimed the account")

const schema = `
	CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, token INTEGER NOT NULL DEFAULT 0);
	INSERT INTO accounts (id, balance) VALUES (1, 0) ON CONFLICT DO NOTHING`

// claim returns the balance and keeps older holders from writing.
func claim(ctx context.Context, db *sql.DB, account, token int64) (balance int64, err error) {
	err = db.QueryRowContext(ctx,
		`UPDATE accounts SET token = ?1 WHERE id = ?2 AND token <= ?1 RETURNING balance`, token, account).Scan(&balance)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, errFenced
	}
	return balance, err
}

// write sets the balance of an account that was claimed with this token.
func write(ctx context.Context, db *sql.DB, account, token, balance int64) error {
	r, err := db.ExecContext(ctx,
		`UPDATE accounts SET balance = ?1 WHERE id = ?2 AND token = ?3`, balance, account, token)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return errFenced
}

// deposit adds 1 to the balance. Between reading and writing it thinks for a while. If late is set, its write does
// not look at the context any more: it stands for one that has left already when the lease is lost.
func deposit(ctx context.Context, mu *valkeysync.Mutex, db *sql.DB, account int64, think time.Duration, late bool) error {
	return mu.Do(ctx, func(ctx context.Context) error {
		lease, _ := valkeysync.FromContext(ctx)
		balance, err := claim(ctx, db, account, lease.Token())
		if err != nil {
			return err
		}
		fmt.Println("read", balance)
		time.Sleep(think)
		if late {
			ctx = context.WithoutCancel(ctx)
		}
		if err := write(ctx, db, account, lease.Token(), balance+1); err != nil {
			return err
		}
		fmt.Println("wrote", balance+1)
		return nil
	})
}

func main() {
	url := flag.String("url", "", "the `server`, as redis://127.0.0.1:6379; without it one inside, and three replicas")
	file := flag.String("db", "accounts.db", "the `file` of the database")
	times := flag.Int("n", 5, "how many deposits to make")
	lease := flag.Duration("lease", 10*time.Second, "the lease")
	think := flag.Duration("think", 100*time.Millisecond, "how long to think between reading and writing")
	late := flag.Bool("late", false, "write though the lease is lost, as a write does that has left already")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *url == "" {
		err = playground.RunWithFile(ctx, 3, "-db")
	} else {
		err = replica(ctx, *url, *file, *times, *lease, *think, *late)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func replica(ctx context.Context, url, file string, times int, lease, think time.Duration, late bool) error {
	// SQLite lets one write at a time; the others wait.
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
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

	mu := locks.Mutex("account:1")
	for range times {
		if err := deposit(ctx, mu, db, 1, think, late); err != nil {
			fmt.Println("failed:", err) // and is not repeated: the next deposit reads anew
		}
	}
	return nil
}
