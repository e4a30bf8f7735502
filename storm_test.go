package valkeysync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Many who wait. The leases are of a minute, so that a wake-up that got lost would show.

func TestStormOnManyLocks(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const clients, locks = 10, 50
		var wg sync.WaitGroup
		var inside [locks]atomic.Int32
		var longest atomic.Int64
		for range clients {
			c := on(t, s, WithLease(time.Minute))
			for i := range locks {
				m := c.Mutex(fmt.Sprint("lock ", i))
				wg.Go(func() {
					start := time.Now()
					ctx, err := m.LockContext(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					if inside[i].Add(1) != 1 {
						t.Error("two holders")
					}
					for wait := int64(time.Since(start)); ; {
						if seen := longest.Load(); wait <= seen || longest.CompareAndSwap(seen, wait) {
							break
						}
					}
					<-time.After(rand.N(5 * time.Millisecond))
					inside[i].Add(-1)
					if err := m.UnlockContext(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}
		within(t, 2*soon, "all have had their turn", wg.Wait)
		t.Log("longest wait", time.Duration(longest.Load()))
		for i := range locks {
			nothingLeft(t, s, fmt.Sprint("lock ", i))
		}
	})
}

// Hundreds on one lock: each Client's first turn comes in the order of the queue, and all are through soon.
// Not parallel: it needs both cores.
func TestHundredsOnOneLock(t *testing.T) {
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const clients, goroutines = 100, 5
		first := on(t, s, WithLease(time.Minute))
		m := first.Mutex("orders")
		held := lock(t, m)
		var wg sync.WaitGroup
		var mu sync.Mutex
		var order []string
		inside := 0
		for range clients {
			c := on(t, s, WithLease(time.Minute))
			m := c.Mutex("orders")
			for range goroutines {
				wg.Go(func() {
					ctx, err := m.LockContext(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					order = append(order, c.id)
					inside++
					if inside != 1 {
						t.Error("two holders")
					}
					mu.Unlock()
					mu.Lock()
					inside--
					mu.Unlock()
					if err := m.UnlockContext(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}
		queued(t, s, first, "orders", clients)
		st, err := first.Status(context.Background(), "orders")
		require.NoError(t, err)
		var want []string
		for _, w := range st.Queue {
			want = append(want, w.Client)
		}
		unlock(t, m, held)
		within(t, 2*soon, "all have had their turn", wg.Wait)
		require.Equal(t, want, order[:clients], "first come, first served")
		require.Len(t, order, clients*goroutines)
		nothingLeft(t, s, "orders")
	})
}

// manyLocks is how many locks are waited for by ten goroutines each; fewer with the race detector.
var manyLocks = 2000

// There is no pool of subscriptions that could run out, and no request waits for another lock's: twenty
// thousand goroutines of one process wait for two thousand locks, while another lock is renewed in time.
// Not parallel: it needs both cores.
func TestTwentyThousandWaiters(t *testing.T) {
	s := testserver.Start(t, testserver.Valkey, notifying...)
	const each, lease = 10, 6 * time.Second
	locks := manyLocks
	c := on(t, s, WithLease(time.Minute))
	keep := c.Mutex("kept", WithLease(lease))
	kept := lock(t, keep)
	l, _ := FromContext(kept)
	least := lease
	watching, watcher := make(chan struct{}), make(chan struct{})
	go func() { // the hold's certain time never comes near its end
		defer close(watcher)
		for {
			select {
			case <-watching:
				return
			case <-time.After(5 * time.Millisecond):
				least = min(least, time.Until(l.Until()))
			}
		}
	}()
	admin := s.Client(t)
	all := func(each string) {
		t.Helper()
		script := fmt.Sprintf("for i = 0, %d do %s end return 1", locks-1, each)
		require.NoError(t, admin.Do(context.Background(), admin.B().Eval().Script(script).Numkeys(0).Build()).Error())
	}
	all("redis.call('SET', 'lock ' .. i, 'foreign')")
	var wg sync.WaitGroup
	var turns atomic.Int64
	for i := range locks {
		m := c.Mutex(fmt.Sprint("lock ", i))
		for range each {
			wg.Go(func() {
				ctx, err := m.LockContext(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				turns.Add(1)
				if err := m.UnlockContext(ctx); err != nil {
					t.Error(err)
				}
			})
		}
	}
	eventually(t, 4*soon, "all wait", func() bool { return c.Stats().Waits == uint64(locks) })
	all("redis.call('DEL', 'lock ' .. i)")
	within(t, 4*soon, "all have had their turn", wg.Wait)
	require.EqualValues(t, locks*each, turns.Load())
	close(watching)
	<-watcher
	require.Greater(t, least, lease/4, "renewals were held up")
	require.NoError(t, kept.Err())
	unlock(t, keep, kept)
	keys := must(ptr(command(t, s, "DBSIZE")).AsInt64())
	require.EqualValues(t, locks+1, keys, "the fences alone")
}
