package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What people are told of readers and permits.

func TestStatusOfReadersAndWhoWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		one, two, three := b.client(WithName("one"), WithLease(20*time.Second)), b.client(WithName("two")), b.client(WithName("three"))
		first, err := one.RWMutex("config").RLockContext(t.Context())
		require.NoError(t, err)
		_, err = one.RWMutex("config").RLockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		second, err := two.RWMutex("config").RLockContext(t.Context())
		require.NoError(t, err)
		order := make(chan string, 9)
		wlock(t, three.RWMutex("config"), order, "writer")
		rlock(t, two.RWMutex("config"), order, "reader")
		rlock(t, two.RWMutex("config"), order, "reader")
		time.Sleep(time.Second)

		st, err := three.Status(t.Context(), "config")
		require.NoError(t, err)
		require.Equal(t, StateShared, st.State)
		require.Len(t, st.Holders, 2, "one a process")
		byName := map[string]HolderStatus{}
		for _, h := range st.Holders {
			byName[h.Name] = h
		}
		require.Equal(t, HolderStatus{
			Name: "one", Client: one.id, Mode: "reader", Weight: 1, Token: leaseOf(t, first).Token(),
			Held: 2 * time.Second, Remaining: 18 * time.Second,
		}, byName["one"])
		require.Equal(t, HolderStatus{
			Name: "two", Client: two.id, Mode: "reader", Weight: 1, Token: leaseOf(t, second).Token(),
			Held: time.Second, Remaining: 9 * time.Second,
		}, byName["two"])
		require.Equal(t, []WaiterStatus{
			{Name: "three", Client: three.id, Mode: "exclusive", Weight: 1, Waited: time.Second},
			{Name: "two", Client: two.id, Mode: "reader", Weight: 1, Waited: time.Second},
		}, st.Queue)
		require.Equal(t, 2, st.Waiting)
		require.Zero(t, st.Size)
		require.GreaterOrEqual(t, st.Last<<10, leaseOf(t, second).Token()&^1023)

		// Who waits in vain is told of them.
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err = b.client().RWMutex("config").LockContext(ctx)
		var wait *WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, ErrLocked)
		require.Equal(t, 2, wait.Ahead)
		require.Contains(t, err.Error(), "held by shared holders for up to")
	})
}

func TestStatusOfPermits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		one, two := b.client(WithName("one")), b.client(WithName("two"))
		s := one.Semaphore("permits", 5)
		p, err := s.AcquireContext(t.Context(), 3)
		require.NoError(t, err)
		order := make(chan string, 9)
		acquire(t, two.Semaphore("permits", 5), 4, order, "large")
		st, err := two.Status(t.Context(), "permits")
		require.NoError(t, err)
		require.Equal(t, StateShared, st.State)
		require.EqualValues(t, 5, st.Size)
		require.Equal(t, []HolderStatus{{
			Name: "one", Client: one.id, Mode: "permit", Weight: 3, Token: leaseOf(t, p).Token(), Remaining: 10 * time.Second,
		}}, st.Holders)
		require.Equal(t, []WaiterStatus{{Name: "two", Client: two.id, Mode: "permit", Weight: 4}}, st.Queue)

		s.Release(1)
		st, err = two.Status(t.Context(), "permits")
		require.NoError(t, err)
		require.EqualValues(t, 2, st.Holders[0].Weight)
		require.NoError(t, two.Semaphore("permits", 8).Resize(t.Context()))
		st, err = two.Status(t.Context(), "permits")
		require.NoError(t, err)
		require.EqualValues(t, 8, st.Size, "the one in force")
		require.Empty(t, st.Queue)
		s.Release(2)
		st, err = two.Status(t.Context(), "permits")
		require.NoError(t, err)
		require.Equal(t, Status{Key: "permits", State: StateFree, Last: st.Last}, st)
	})
}

func TestStatsOfReadersAndPermits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c, other := b.client(WithLease(3*time.Second)), b.client()
		rw, s := c.RWMutex("config"), c.Semaphore("permits", 2)
		rw.RLock()
		rw.RLock() // shares the first one's hold
		require.True(t, s.TryAcquire(1))
		require.True(t, s.TryAcquire(1))
		require.False(t, s.TryAcquire(1))
		st := c.Stats()
		require.EqualValues(t, 4, st.Acquired)
		require.EqualValues(t, 3, st.ByReply)
		require.Zero(t, st.Waits)

		order := make(chan string, 9)
		w := other.RWMutex("config")
		wlock(t, w, order, "writer")
		rlock(t, rw, order, "reader")
		rlock(t, rw, order, "reader")
		time.Sleep(time.Minute)
		require.InDelta(t, 180, c.Stats().Renewals, 10, "3 holds, a renewal a second")
		rw.RUnlock()
		rw.RUnlock()
		require.Equal(t, []string{"writer"}, drained(order))
		require.EqualValues(t, 1, other.Stats().ByMessage)
		require.EqualValues(t, 1, other.Stats().Waits)
		w.Unlock()
		require.Equal(t, []string{"reader", "reader"}, drained(order))
		st = c.Stats()
		require.EqualValues(t, 6, st.Acquired)
		require.EqualValues(t, 1, st.ByMessage)
		require.EqualValues(t, 1, st.Waits, "one place for both")

		require.NoError(t, c.ForceUnlock(t.Context(), "permits"))
		synctest.Wait()
		require.EqualValues(t, 2, c.Stats().Lost[CauseTaken]+c.Stats().Lost[CauseDeleted])
	})
}
