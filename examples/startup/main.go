// Startup has many replicas that start at the same time migrate their database once: one does it, the others wait,
// find it done, and start.
//
//	go run ./startup                                            # three replicas, a server and a database inside
//	go run ./startup -url redis://127.0.0.1:6379 -db app.db     # one replica
//
// What keeps a migration from being made twice is the database: its number is written in the transaction that
// makes it, so either both are there or neither, and a second one fails on the primary key. What the lock adds:
//
//   - The others wait, instead of failing or working on the half of it, however long it takes.
//   - Databases whose DDL is not transactional (MySQL), and migrations that move data for an hour, have one at a
//     time, and one that ends if its lease is lost.
//   - If the one that migrates dies, the next in line goes on from the last number that was written.
//
// A replica that starts later, when all is done, reads one number and asks nobody.
package main

import (
	"context"
	"database/sql"
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

// migrations are in order, the first is number 1. Those that were released are never changed.
var migrations = []string{
	`CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL)`,
	`INSERT INTO users (name) VALUES ('Anna'), ('Ben')`,
	`ALTER TABLE users ADD COLUMN email TEXT`,
}

// migrate brings the database to the newest version, or waits until another replica has.
func migrate(ctx context.Context, mu *valkeysync.Mutex, db *sql.DB, slowly time.Duration) error {
	if done, err := version(ctx, db); err != nil || done >= len(migrations) {
		return err
	}
	return mu.Do(ctx, func(ctx context.Context) error {
		if _, err := db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)`); err != nil {
			return err
		}
		done, err := version(ctx, db) // again: those before us in the line may have done it
		if err != nil {
			return err
		}
		for done < len(migrations) {
			if err := apply(ctx, db, done+1, slowly); err != nil {
				return fmt.Errorf("migration %d: %w", done+1, err)
			}
			done++
			fmt.Println("made", done)
		}
		return nil
	})
}

// version is the number of the last migration that was made, 0 before the first. It only reads.
func version(ctx context.Context, db *sql.DB) (n int, err error) {
	var tables int // sqlite_master is information_schema.tables elsewhere
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master WHERE name = 'migrations'`).Scan(&tables)
	if err != nil || tables == 0 {
		return 0, err
	}
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) FROM migrations`).Scan(&n)
	return n, err
}

// apply makes one migration, whole or not at all: when ctx ends the transaction is rolled back.
func apply(ctx context.Context, db *sql.DB, number int, slowly time.Duration) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // of no effect after Commit
	// The number first: whoever is late fails here, and has changed nothing.
	if _, err := tx.ExecContext(ctx, `INSERT INTO migrations (number) VALUES (?)`, number); err != nil {
		return err
	}
	fmt.Println("makes", number)
	if _, err := tx.ExecContext(ctx, migrations[number-1]); err != nil {
		return err
	}
	select {
	case <-time.After(slowly): // there is much data
	case <-ctx.Done():
	}
	return tx.Commit() // it fails where ctx has ended
}

func main() {
	url := flag.String("url", "", "the `server`, as redis://127.0.0.1:6379; without it one inside, and three replicas")
	file := flag.String("db", "app.db", "the `file` of the database")
	slowly := flag.Duration("slowly", time.Second, "how long a migration takes at least")
	limit := flag.Duration("limit", time.Minute, "for how long to wait and to migrate before giving up")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if *url == "" {
		err = playground.RunWithFile(ctx, 3, "-db")
	} else {
		err = replica(ctx, *url, *file, *slowly, *limit)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func replica(ctx context.Context, url, file string, slowly, limit time.Duration) error {
	// SQLite lets one write at a time; the others wait.
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	if err != nil {
		return err
	}
	defer db.Close()
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

	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := migrate(limited, locks.Mutex("migrations:app"), db, slowly); err != nil {
		return err // it does not start: who waits in vain is told who holds the lock
	}
	done, err := version(ctx, db)
	if err != nil {
		return err
	}
	fmt.Println("starts with version", done)
	return nil // and here it would serve, until ctx ends
}
