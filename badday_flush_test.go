package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Somebody empties the server, or its cache of scripts.

func TestScriptsAreFlushed(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		p := newPair(t, s, "orders", WithLease(time.Second))
		l, _ := FromContext(p.held)
		for range 3 { // before a renewal, a hand-over, an acquisition …
			command(t, s, "SCRIPT", "FLUSH")
			before := l.Until()
			eventually(t, soon, "renewed", func() bool { return l.Until().After(before) })
		}
		command(t, s, "SCRIPT", "FLUSH")
		p.stillHeld()
	})
}

// FLUSHALL makes no events. The holder learns of it by its next renewal, the waiters by their timers, each of
// as many leases as its place: they make a new queue, and all are served.
func TestEverythingIsFlushed(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease, waiters = 600 * time.Millisecond, 8
		holder := on(t, s, WithLease(lease)).Mutex("orders")
		held := lock(t, holder)
		var ms []*Mutex
		var waits []*taking
		for i := range waiters {
			m := on(t, s, WithLease(lease)).Mutex("orders")
			ms = append(ms, m)
			waits = append(waits, take(context.Background(), m))
			queued(t, s, holder.c, "orders", i+1)
		}
		flushed := time.Now()
		command(t, s, "FLUSHALL")
		require.Contains(t, []Cause{CauseDeleted, CauseTaken}, ends(t, held, soon).Cause)
		highest := tokenOf(t, held)
		done := make(chan int, waiters)
		for i, k := range waits {
			go func() {
				<-k.done
				done <- i
			}()
		}
		for range waiters {
			select {
			case i := <-done:
				got := waits[i].got(t, soon)
				require.Greater(t, tokenOf(t, got), highest)
				highest = tokenOf(t, got)
				unlock(t, ms[i], got)
			case <-time.After(soon):
				t.Fatal("somebody was forgotten")
			}
		}
		require.Less(t, time.Since(flushed), waiters*lease+soon)
		var lost *LostError
		require.ErrorAs(t, holder.UnlockContext(held), &lost)
		nothingLeft(t, s, "orders")
	})
}

// Tokens rise also where the server forgets them all the time.
func TestTokensRiseOverFlushes(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		m := on(t, s).Mutex("orders")
		last := int64(0)
		for range 50 {
			held := lock(t, m)
			require.Greater(t, tokenOf(t, held), last)
			last = tokenOf(t, held)
			unlock(t, m, held)
			command(t, s, "FLUSHALL")
		}
	})
}
