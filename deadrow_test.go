package valkeysync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine that dies takes the holder along and whoever waited there. Those who wait elsewhere must not
// wait a lease for each of them.
func TestWaiterBehindARowOfDeadIsServedByTheGraceNotTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		opts := []Option{WithLease(time.Minute), WithCrashDetection(defaultGrace)}
		holder, _, wire := b.lined(opts...)
		holder.Mutex("k").Lock()
		wires := []*line{wire}
		for range 3 {
			waiter, _, wire := b.lined(opts...)
			wires = append(wires, wire)
			go func() { _, _ = waiter.Mutex("k").LockContext(t.Context()) }()
			time.Sleep(5 * time.Second)
		}
		living := b.client(opts...).Mutex("k")
		got := make(chan time.Time, 1)
		go func() { living.Lock(); got <- time.Now() }()
		time.Sleep(10 * time.Second)
		for _, w := range wires {
			w.cut(true, false)
		}
		died := time.Now()
		// At place 4 it looks every 4²/2 graces, and then the dead holder's lease is cut.
		require.LessOrEqual(t, (<-got).Sub(died), 9*defaultGrace+600*time.Millisecond)
		living.Unlock()
	})
}
