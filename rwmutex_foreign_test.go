package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Others on the same key: the plain recipe, and people.

// plain takes the key as any other program would: SET NX PX.
func (b *bubble) plain(lease time.Duration) (ok bool) {
	v := b.dial(nil)
	defer v.Close()
	err := v.Do(b.t.Context(), v.B().Set().Key("config").Value("another program").Nx().Px(lease).Build()).Error()
	return err == nil
}

func TestReadersAndPlainHoldersExcludeEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const lease = 3 * time.Second
		rw, other := b.client(WithLease(lease)).RWMutex("config"), b.client(WithLease(time.Minute)).RWMutex("config")
		rw.RLock()
		require.False(t, b.plain(time.Second))
		other.RLock()
		time.Sleep(10 * lease)
		require.False(t, b.plain(time.Second), "as long as one reads")
		rw.RUnlock()
		require.False(t, b.plain(time.Second))
		other.RUnlock()
		require.True(t, b.plain(time.Minute))

		require.False(t, rw.TryRLock())
		require.False(t, rw.TryLock())
		_, err := rw.TryRLockContext(t.Context())
		var wait *WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, ErrLocked)
		require.Contains(t, wait.Holder, "another program")
		order := make(chan string, 3)
		rlock(t, rw, order, "reader")
		wlock(t, rw, order, "writer")
		rlock(t, other, order, "reader")
		time.Sleep(50 * time.Second)
		require.Empty(t, drained(order))
		time.Sleep(11 * time.Second)
		require.Contains(t, drained(order), "reader", "its lease is over")
	})
}

// The marker that stands for the readers can be deleted by hand. Nobody of ours takes that for the end of
// the readers, and the next renewal sets it again.
func TestDeletedMarkerOfReadersComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const lease = 3 * time.Second
		rw, other := b.client(WithLease(lease)).RWMutex("config"), b.client().RWMutex("config")
		r, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		b.Del("config")
		require.False(t, other.TryLock())
		_, err = b.client().Mutex("config").TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrMismatch)
		b.Del("config")
		time.Sleep(lease)
		require.True(t, b.Exists("config"))
		require.False(t, b.plain(time.Second))
		require.NoError(t, r.Err())
		b.Del("config")
		require.NoError(t, rw.RUnlockContext(r))
		require.True(t, other.TryLock())
	})
}

func TestForeignSetOverTheMarkerEndsTheReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const lease = 3 * time.Second
		var readers []context.Context
		for range 2 {
			r, err := b.client(WithLease(lease)).RWMutex("config").RLockContext(t.Context())
			require.NoError(t, err)
			readers = append(readers, r)
		}
		require.NoError(t, b.Set("config", "an operator"))
		for _, r := range readers {
			<-r.Done()
			var lost *LostError
			require.ErrorAs(t, context.Cause(r), &lost)
			require.Equal(t, CauseTaken, lost.Cause)
		}
		synctest.Wait()
		got, err := b.Get("config")
		require.NoError(t, err)
		require.Equal(t, "an operator", got, "it is let alone")
		require.False(t, b.Exists("{config}:shared"))
		other := b.client().RWMutex("config")
		require.False(t, other.TryRLock())
		b.Del("config")
		require.True(t, other.TryLock())
	})
}

func TestForceUnlockOfReadersAndWriters(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		a, other := c.RWMutex("config"), b.client().RWMutex("config")
		person := b.client()
		var readers []context.Context
		for _, rw := range []*RWMutex{a, a, other} {
			r, err := rw.RLockContext(t.Context())
			require.NoError(t, err)
			readers = append(readers, r)
		}
		third, fourth := b.client().RWMutex("config"), b.client().RWMutex("config")
		order := make(chan string, 9)
		wlock(t, third, order, "writer")
		rlock(t, other, order, "reader")
		wlock(t, fourth, order, "second writer")
		rlock(t, a, order, "reader")

		start := time.Now()
		require.NoError(t, person.ForceUnlock(t.Context(), "config"))
		require.Equal(t, []string{"writer"}, drained(order))
		require.Zero(t, time.Since(start))
		for _, r := range readers {
			var lost *LostError
			require.ErrorAs(t, context.Cause(r), &lost, "told at once")
			require.Equal(t, CauseTaken, lost.Cause)
		}
		require.Equal(t, uint64(2), c.Stats().Lost[CauseTaken])

		require.NoError(t, person.ForceUnlock(t.Context(), "config"))
		require.Equal(t, []string{"reader", "reader"}, drained(order), "a writer has left: the readers are next, all of them")
		third.Unlock() // lost, and that is known
	})
}
