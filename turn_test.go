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

func TestTurnStaysInTheProcessWhileNobodyElseWaits(t *testing.T) {
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := newClient(t, s.Client(t), WithTurn(defaultTurn))
		mu, sem := c.Mutex("k"), c.Semaphore("sem", 2)
		s.ResetStats()
		n := 0
		var last int64
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 50 {
					ctx, err := mu.LockContext(t.Context())
					require.NoError(t, err)
					l, _ := FromContext(ctx)
					require.Greater(t, l.Token(), last, "every acquisition has a token of its own")
					last = l.Token()
					n++
					require.NoError(t, mu.UnlockContext(ctx))

					require.NoError(t, sem.Acquire(t.Context(), 1))
					sem.Release(1)
				}
			})
		}
		wg.Wait()
		require.Equal(t, 3200, n)
		calls := s.Calls()["evalsha"] + s.Calls()["eval"]
		require.Less(t, calls, int64(700), "6400 acquisitions")
		t.Logf("%d commands for 6400 acquisitions, %+v", calls, c.Stats())
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
