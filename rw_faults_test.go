package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Readers and permits watch the key that their own renewals write.
func TestSharedHoldsDoNotWakeThemselves(t *testing.T) {
	eachServer(t, []string{"--notify-keyspace-events", "KEA"}, func(t *testing.T, s *testserver.Server) {
		const lease = 3 * time.Second
		ctx := context.Background()
		var readers, permits []context.Context
		for range 3 {
			c := newClient(t, s.Client(t), WithLease(lease))
			r, err := c.RWMutex("rw").RLockContext(ctx)
			require.NoError(t, err)
			p, err := c.Semaphore("sem", 9).AcquireContext(ctx, 2)
			require.NoError(t, err)
			readers, permits = append(readers, r), append(permits, p)
		}
		s.ResetStats()
		<-time.After(2 * lease)
		// 6 holds, each renewed about every third of its lease.
		require.Less(t, s.Calls()["evalsha"], int64(6*(2*3+3)))
		for i := range readers {
			require.NoError(t, readers[i].Err())
			require.NoError(t, permits[i].Err())
		}
	})
}

// A server that is out of memory refuses new holds and keeps those there are.
func TestSharedHoldsOutliveAServerWithoutMemory(t *testing.T) {
	eachServer(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease = 2 * time.Second
		ctx := context.Background()
		c := newClient(t, s.Client(t), WithLease(lease))
		rw, other, sem := c.RWMutex("rw"), c.RWMutex("other"), c.Semaphore("sem", 5)
		r, err := rw.RLockContext(ctx)
		require.NoError(t, err)
		w, err := other.LockContext(ctx)
		require.NoError(t, err)
		p, err := sem.AcquireContext(ctx, 5)
		require.NoError(t, err)

		_, err = s.Do("CONFIG", "SET", "maxmemory", "1")
		require.NoError(t, err)
		_, err = c.Semaphore("more", 1).TryAcquireContext(ctx, 1)
		require.ErrorContains(t, err, "OOM")
		_, err = c.RWMutex("more still").TryRLockContext(ctx)
		require.ErrorContains(t, err, "OOM")

		<-time.After(2 * lease)
		require.NoError(t, r.Err(), "a reader is renewed")
		require.NoError(t, p.Err(), "a permit is renewed")
		require.NoError(t, sem.ReleaseContext(ctx, 2), "a part is released")
		w, err = other.Downgrade(w)
		require.NoError(t, err, "a writer becomes a reader")

		require.NoError(t, rw.RUnlockContext(r))
		require.NoError(t, other.RUnlockContext(w))
		require.NoError(t, sem.ReleaseContext(p, 3))
		for _, key := range []string{"rw", "other", "sem", "more"} {
			st, err := c.Status(ctx, key)
			require.NoError(t, err)
			require.Equal(t, StateFree, st.State, key)
			require.Empty(t, st.Holders)
		}
	})
}
