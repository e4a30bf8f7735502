package valkeysynctest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/valkeysynctest"
)

// A test of code that takes a *valkeysync.Client.
func Example() {
	_ = func(t *testing.T) { // func TestReport(t *testing.T) {
		locks := valkeysynctest.New(t).Client()
		mu := locks.Mutex("report")
		mu.Lock()
		defer mu.Unlock()
	}
}

// What does the program do when another has the lock?
func ExampleServer_Client() {
	_ = func(t *testing.T) { // func TestReportRunsElsewhere(t *testing.T) {
		server := valkeysynctest.New(t, valkeysync.WithPrefix("app:"))
		ours, theirs := server.Client(), server.Client()
		theirs.Mutex("report").Lock()
		if ours.Mutex("report").TryLock() {
			t.Error("both have it")
		}
	}
}

// Does the work stop when the lock is lost?
func ExampleServer_Lose() {
	_ = func(t *testing.T) { // func TestReportStops(t *testing.T) {
		server := valkeysynctest.New(t)
		mu := server.Client().Mutex("report")
		err := mu.Do(t.Context(), func(ctx context.Context) error {
			server.Lose("report")
			<-ctx.Done()
			return nil
		})
		if !errors.Is(err, valkeysync.ErrLeaseLost) {
			t.Error(err)
		}
	}
}

// Another takes over when a process dies. Inside a bubble the seconds until then pass at once.
func ExampleServer_Kill() {
	_ = func(t *testing.T) { // func TestTakeOver(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := valkeysynctest.New(t)
			first, second := server.Client(), server.Client()
			first.Mutex("leader").Lock()
			time.Sleep(time.Minute)
			server.Kill(first)
			second.Mutex("leader").Lock() // 2.5 s later at the most
		})
	}
}

// A short outage costs nothing; one that is longer than the grace costs the lease.
func ExampleServer_Cut() {
	_ = func(t *testing.T) { // func TestOutage(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := valkeysynctest.New(t)
			ctx, err := server.Client().Mutex("report").LockContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			server.Cut()
			time.Sleep(500 * time.Millisecond)
			server.Mend()
			time.Sleep(time.Minute)
			if ctx.Err() != nil {
				t.Error(context.Cause(ctx))
			}
		})
	}
}
