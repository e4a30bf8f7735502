package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCloseDoesNotWaitForTimers: there is nothing to wait for but the server's answers, which take no time
// in a bubble; neither for the next beat nor for a renewal.
func TestCloseDoesNotWaitForTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		c, other := b.client(WithCrashDetection(time.Hour)), b.client(WithCrashDetection(time.Hour))
		given, kept := c.Mutex("given back"), c.Mutex("kept")
		require.NoError(t, given.Do(t.Context(), func(context.Context) error { return nil }))
		kept.Lock()
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
		require.True(t, other.Mutex("kept").TryLock())
		require.NoError(t, other.Close())
		require.Zero(t, time.Since(start))
	})
}
