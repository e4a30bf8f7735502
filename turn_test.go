package valkeysync

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// All ask before the first unlocks, so how often the server is asked does not depend on how fast they are:
// once for as many acquisitions as one hold can tell apart.
func TestTurnStaysInTheProcessWhileNobodyElseWaits(t *testing.T) {
	const waiters = 3 * maxHanded
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := newClient(t, s.Client(t), WithTurn(defaultTurn), WithLease(time.Hour))
		standing := func() (n int) {
			c.each(nil, func(g *gate) {
				g.mu.Lock()
				defer g.unlock()
				n += len(g.waiters)
			})
			return n
		}
		sent := func() int64 { return s.Calls()["evalsha"] + s.Calls()["eval"] }
		holds := func() uint64 { return c.Stats().ByReply + c.Stats().ByMessage }
		mu, sem := c.Mutex("k"), c.Semaphore("sem", 2)
		mu.Lock() // the server knows the scripts from now on
		mu.Unlock()
		var all sync.WaitGroup

		s.ResetStats()
		before := holds()
		held := lock(t, mu)
		last, n := tokenOf(t, held), 1
		for range waiters {
			all.Go(func() {
				ctx, err := mu.LockContext(context.Background())
				require.NoError(t, err)
				l, _ := FromContext(ctx)
				require.Greater(t, l.Token(), last, "every acquisition has a token of its own")
				last = l.Token()
				n++
				require.NoError(t, mu.UnlockContext(ctx))
			})
		}
		eventually(t, time.Minute, "all wait for the mutex", func() bool { return standing() == waiters })
		unlock(t, mu, held)
		within(t, time.Minute, "everybody's turn", all.Wait)
		require.Equal(t, waiters+1, n)
		require.EqualValues(t, 4, holds()-before)
		require.EqualValues(t, waiters+1-4, c.Stats().HandedOver)
		require.EqualValues(t, 1+4, sent(), "an acquire, and for each hold its release, which asks for the next")

		// With permits it is open which of the two holds goes further, and one who waits has a place in the
		// server's queue: a place, its release, and a look or a farewell for each hold.
		s.ResetStats()
		before, handed := holds(), c.Stats().HandedOver
		for range 2 {
			require.NoError(t, sem.Acquire(context.Background(), 1))
		}
		for range waiters {
			all.Go(func() {
				require.NoError(t, sem.Acquire(context.Background(), 1))
				sem.Release(1)
			})
		}
		eventually(t, time.Minute, "all wait for a permit", func() bool { return standing() == waiters })
		sem.Release(1)
		sem.Release(1)
		within(t, time.Minute, "everybody's turn", all.Wait)
		nothingLeft(t, s, "sem")
		took := holds() - before
		require.GreaterOrEqual(t, took, uint64(4))
		require.LessOrEqual(t, took, uint64(8))
		require.EqualValues(t, waiters+2-took, c.Stats().HandedOver-handed)
		require.LessOrEqual(t, sent(), 4*int64(took)+4)
		t.Logf("%d commands, %d holds, %+v", sent(), took, c.Stats())
	})
}

func TestTurnEndsSoonAfterAnotherProcessWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		busy, other := b.client(WithTurn(5*time.Millisecond)), b.client()
		mu := busy.Mutex("k")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = mu.Do(ctx, func(context.Context) error {
						time.Sleep(time.Millisecond)
						return nil
					})
				}
			})
		}
		time.Sleep(time.Second)
		for range 20 {
			start := time.Now()
			require.NoError(t, other.Mutex("k").Do(t.Context(), func(context.Context) error { return nil }))
			require.LessOrEqual(t, time.Since(start), 7*time.Millisecond)
			time.Sleep(50 * time.Millisecond)
		}
		require.Positive(t, busy.Stats().HandedOver)
		cancel()
		wg.Wait()
	})
}

func TestTurnOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBubble(t).client(WithTurn(0))
		mu := c.Mutex("k")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 10 {
					mu.Lock()
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.Zero(t, c.Stats().HandedOver)
	})
}

func TestLingerNeedsNoServer(t *testing.T) {
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := newClient(t, s.Client(t), WithLinger(time.Second))
		mu := c.Mutex("k")
		mu.Lock()
		mu.Unlock()
		s.ResetStats()
		for range 1000 {
			mu.Lock()
			mu.Unlock()
		}
		require.Zero(t, s.Calls()["evalsha"])

		other := newClient(t, s.Client(t)).Mutex("k")
		start := time.Now()
		other.Lock()
		require.Less(t, time.Since(start), 500*time.Millisecond, "given up for who queues")
		other.Unlock()
	})
}

func TestLingerEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := b.client(WithLinger(time.Second))
		rw := c.RWMutex("rw")
		rw.RLock()
		rw.RUnlock()
		require.True(t, b.Exists("rw"))
		time.Sleep(999 * time.Millisecond)
		require.True(t, b.Exists("rw"))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.False(t, b.Exists("rw"))

		rw.RLock() // a reader's hold that lingers does not keep a writer of the same process out
		rw.RUnlock()
		start := time.Now()
		rw.Lock()
		require.Zero(t, time.Since(start))
		rw.Unlock()
	})
}

// It counts from the last unlock, with the linger of whoever that was.
func TestLingerCountsFromTheLastUnlock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client(WithLinger(time.Second))
		m, short := c.Mutex("k"), c.Mutex("k", WithLinger(100*time.Millisecond))
		for range 10 {
			m.Lock()
			time.Sleep(300 * time.Millisecond)
			m.Unlock()
			time.Sleep(700 * time.Millisecond)
			require.True(t, b.Exists("k"))
		}
		time.Sleep(299 * time.Millisecond)
		require.True(t, b.Exists("k"))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.False(t, b.Exists("k"))

		m.Lock()
		m.Unlock()
		short.Lock()
		short.Unlock()
		time.Sleep(101 * time.Millisecond)
		synctest.Wait()
		require.False(t, b.Exists("k"), "the shorter one")
	})
}

func TestLingeringHoldIsGivenBackByClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c := b.client(WithLinger(5 * time.Second))
		c.Mutex("k").Lock()
		m := c.Mutex("m")
		m.Lock()
		m.Unlock()
		require.NoError(t, c.Close())
		require.False(t, b.Exists("m"))
		require.False(t, b.Exists("k"))
	})
}
