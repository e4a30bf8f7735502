package valkeysync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUnlockHandsOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		ma, mb := b.client().Mutex("orders"), b.client().Mutex("orders")
		ma.Lock()
		require.False(t, mb.TryLock())
		start := time.Now()
		got := make(chan time.Duration, 1)
		go func() {
			mb.Lock()
			got <- time.Since(start)
		}()
		time.Sleep(time.Minute)
		ma.Unlock()
		require.Equal(t, time.Minute, <-got)
		mb.Unlock()
	})
}
