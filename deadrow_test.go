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

// A fleet dies while its processes hold and wait. What comes up in its place waits behind all of them, and must not
// wait by its place: nobody but itself is left who could look.
func TestWhoJoinsBehindARowOfDeadIsServedByTheGraceNotByItsPlace(t *testing.T) {
	for how, opts := range map[string][]Option{
		"crash detection":    {WithLease(time.Minute), WithCrashDetection(defaultGrace)},
		"no crash detection": {WithLease(defaultGrace), WithCrashDetection(0)},
	} {
		t.Run(how, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				var wires []*line
				for range 9 {
					c, _, wire := b.lined(opts...)
					wires = append(wires, wire)
					go func() { _, _ = c.Mutex("k").LockContext(t.Context()) }()
					time.Sleep(time.Second)
				}
				for _, w := range wires {
					w.cut(true, false)
				}
				time.Sleep(time.Second)
				began := time.Now()
				living := b.client(opts...).Mutex("k")
				first, second := lockAsync(t.Context(), living), lockAsync(t.Context(), b.client(opts...).Mutex("k"))
				l := <-first
				require.NoError(t, l.err)
				// It has looked once it was heard for two graces, and then the dead holder's lease is cut.
				require.LessOrEqual(t, l.at.Sub(began), 3*defaultGrace+defaultGrace/2)
				require.NoError(t, living.UnlockContext(l.ctx))
				now(t, second)
			})
		})
	}
}
