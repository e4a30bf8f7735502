package valkeysync

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A server that is out of memory.

func memoryFull(t testing.TB, s *testserver.Server, full bool) {
	t.Helper()
	limit := "0"
	if full {
		limit = "1"
	}
	command(t, s, "CONFIG", "SET", "maxmemory", limit)
}

// With noeviction, new acquisitions are refused, and whoever has or waits for a lock goes on.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	onBoth(t, append([]string{"--maxmemory-policy", "noeviction"}, notifying...), func(t *testing.T, s *testserver.Server) {
		c, other, third := on(t, s, WithLease(time.Second)), on(t, s, WithLease(time.Second)), on(t, s)
		kept, given, again, left := c.Mutex("kept"), c.Mutex("given"), c.Mutex("again"), c.Mutex("left")
		owned := c.Mutex("owned", WithOwner("o"))
		owned.Lock()
		keptCtx, givenCtx, againCtx, leftCtx := lock(t, kept), lock(t, given), lock(t, again), lock(t, left)
		waits := take(context.Background(), other.Mutex("given"))
		givenTo := other.Mutex("again")
		waitsAgain := take(context.Background(), givenTo)
		localAgain := take(context.Background(), again)
		giveUp, cancel := context.WithCancel(context.Background())
		leaves := take(giveUp, other.Mutex("left"))
		for _, key := range []string{"given", "again", "left"} {
			queued(t, s, c, key, 1)
		}
		eventually(t, soon, "a goroutine waits here", func() bool { return waitingHere(again) == 1 })

		memoryFull(t, s, true)

		// Refused, and nothing half-written.
		_, err := c.Mutex("free").LockContext(context.Background())
		requireReply(t, err, "OOM")
		_, err = c.Mutex("free").TryLockContext(context.Background())
		requireReply(t, err, "OOM")
		require.False(t, c.Mutex("free").TryLock())
		_, err = third.Mutex("kept").LockContext(context.Background()) // would have to queue
		requireReply(t, err, "OOM")
		nothingLeft(t, s, "free")
		require.False(t, exists(t, s, "{free}:fence"))
		_, err = other.Mutex("owned", WithOwner("o")).LockContext(context.Background()) // would come in beside c
		requireReply(t, err, "OOM")
		queued(t, s, c, "kept", 0)
		_, err = New(s.Client(t), WithLogger(testLogger(t)))
		requireReply(t, err, "OOM")
		// Lock waits it out.
		patient := c.Mutex("patient")
		locked := make(chan struct{})
		go func() {
			defer close(locked)
			patient.Lock()
		}()

		// Renewal, hand-over, a release that queues again, leaving.
		l, _ := FromContext(keptCtx)
		before := l.Until()
		eventually(t, soon, "renewed twice", func() bool { return l.Until().After(before.Add(400 * time.Millisecond)) })
		unlock(t, given, givenCtx)
		waits.got(t, soon)
		unlock(t, again, againCtx)
		unlock(t, givenTo, waitsAgain.got(t, soon))
		unlock(t, again, localAgain.got(t, soon))
		cancel()
		require.ErrorIs(t, leaves.failed(t, soon), context.Canceled)
		queued(t, s, c, "left", 0)
		unlock(t, left, leftCtx)
		unlock(t, kept, keptCtx)
		owned.Unlock()
		select {
		case <-locked:
			t.Fatal("locked without memory")
		default:
		}

		memoryFull(t, s, false)
		within(t, soon, "Lock", func() { <-locked })
		patient.Unlock()
		for _, key := range []string{"kept", "again", "left", "patient"} {
			nothingLeft(t, s, key)
		}
	})
}

// A lock that is evicted is lost to its holder, who is told within a round trip, and goes to who waits.
func TestEvictionFreesALock(t *testing.T) {
	t.Parallel()
	onBoth(t, append([]string{"--maxmemory-policy", "volatile-ttl"}, notifying...), func(t *testing.T, s *testserver.Server) {
		holder, waiter := on(t, s, WithLease(time.Minute)), on(t, s)
		m := holder.Mutex("orders")
		held := lock(t, m)
		next := waiter.Mutex("orders")
		waits := take(context.Background(), next)
		watched(t, s, "orders", 2) // the holder, which is old enough by then, and the waiter
		first := tokenOf(t, held)

		// The key that ends first goes first: the lock's. The next one frees enough, so the queue stays.
		command(t, s, "SET", "filler", strings.Repeat("x", 1<<20), "EX", "300")
		used, err := strconv.Atoi(field(t, s, "memory", "used_memory"))
		require.NoError(t, err)
		start := time.Now()
		command(t, s, "CONFIG", "SET", "maxmemory", strconv.Itoa(used-300_000))
		require.Contains(t, []Cause{CauseDeleted, CauseTaken}, ends(t, held, soon).Cause, "gone, and perhaps the waiter's already")
		got := waits.got(t, soon)
		require.Less(t, time.Since(start), 20*time.Second, "long before the lease would have ended")
		require.Positive(t, waiter.Stats().WokenByEvent)
		require.Greater(t, tokenOf(t, got), first)
		unlock(t, next, got)
	})
}

func field(t testing.TB, s *testserver.Server, section, name string) string {
	t.Helper()
	info, err := ptr(command(t, s, "INFO", section)).ToString()
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), name+":"); ok {
			return v
		}
	}
	t.Fatalf("no %s in INFO %s", name, section)
	return ""
}
