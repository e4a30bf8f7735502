package valkeysync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// No key of readers or permits stays for ever: while they are held, waited for and after their use every
// key that is there has an expiry.
func TestEveryKeyOfSharedHoldsHasAnEnd(t *testing.T) {
	eachServer(t, notifying, func(t *testing.T, s *testserver.Server) {
		a, b := newClient(t, s.Client(t)), newClient(t, s.Client(t))
		expire := func() (n int) {
			reply, err := s.Do("KEYS", "*")
			require.NoError(t, err)
			keys, err := reply.AsStrSlice()
			require.NoError(t, err)
			for _, key := range keys {
				left, err := s.Do("PTTL", key)
				require.NoError(t, err)
				ms, err := left.ToInt64()
				require.NoError(t, err)
				require.NotEqual(t, int64(-1), ms, "%q has no expiry", key)
			}
			return len(keys)
		}
		rw, sem := a.RWMutex("rw"), a.Semaphore("sem", 2)
		rw.RLock()
		require.NoError(t, sem.Acquire(t.Context(), 2))
		write := async(func() error { b.RWMutex("rw").Lock(); return nil })
		permit := async(func() error { return b.Semaphore("sem", 2).Acquire(t.Context(), 1) })
		queued(t, s, a, "rw", 1)
		queued(t, s, a, "sem", 1)
		require.Equal(t, 8, expire())
		rw.RUnlock()
		sem.Release(2)
		require.NoError(t, <-write)
		require.NoError(t, <-permit)
		expire()
		require.NoError(t, b.Close())
		require.Equal(t, 2, expire(), "the last numbers, for a while")
	})
}
