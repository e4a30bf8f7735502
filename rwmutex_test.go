package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What is said of one reader is not said of those who share the process's hold.
func TestReadersOfOneProcessAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBubble(t).client()
		rw := c.RWMutex("config")
		first, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		second, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		gone, _ := FromContext(first)
		stays, _ := FromContext(second)

		require.NoError(t, rw.RUnlockContext(first))
		require.ErrorIs(t, first.Err(), context.Canceled)
		require.False(t, gone.Valid())
		require.True(t, gone.Until().IsZero())
		require.ErrorIs(t, rw.RUnlockContext(first), ErrNotLocked)
		require.NoError(t, second.Err())
		require.True(t, stays.Valid())

		// first carries nothing any more that a writer would wait for.
		ctx, stop := context.WithTimeout(context.WithoutCancel(first), time.Second)
		defer stop()
		_, err = rw.LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = rw.LockContext(second)
		require.ErrorIs(t, err, ErrDeadlock)
		require.NoError(t, rw.RUnlockContext(second))
	})
}

// Nobody need be told when a lock is lost that nobody holds any more.
func TestLingeringReadLockMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		rw := b.client(WithLinger(time.Second), WithOnLost(func(string, error) { t.Error("told") })).RWMutex("config")
		rw.RLock()
		rw.RUnlock()
		b.Del("{config}:shared")
		b.Del("config")
		time.Sleep(time.Minute)
		rw.Lock()
		rw.Unlock()
	})
}
