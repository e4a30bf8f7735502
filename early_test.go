package valkeysync

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// early has lock ask, and the reply that gives the lock come late; what happens on the server meanwhile is told to the
// Client, over another connection, before it knows that it holds.
func early(t *testing.T, wire *tap, lock func(), meanwhile func()) {
	t.Helper()
	wire.on("acquire", slow(0, 100*time.Millisecond))
	done := make(chan struct{})
	go func() {
		defer close(done)
		lock()
	}()
	time.Sleep(50 * time.Millisecond)
	meanwhile()
	synctest.Wait()
	<-done
}

func TestWhoWaitsBeforeTheHolderKnowsThatItHoldsIsNotForgotten(t *testing.T) {
	for name, lock := range map[string]func(m *Mutex){
		"lock": (*Mutex).Lock,
		"try":  func(m *Mutex) { m.TryLock() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				wire, p := b.tap(), b.peer("p", "orders")
				m := newClient(t, wire, WithLinger(time.Second)).Mutex("orders")
				waits := p.entry("waits")
				early(t, wire, func() { lock(m) }, func() {
					require.Equal(t, protocol.Queued, p.acquire(waits).Outcome)
				})
				m.Unlock()
				synctest.Wait()
				require.Equal(t, waits.Ref(), p.holder(), "at once, and not after the linger")
				p.leave(waits)
			})
		})
	}
}

func TestALockThatIsForcedBeforeTheHolderKnowsThatItHoldsIsLostAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m, other := newClient(t, wire).Mutex("orders"), b.client()
		early(t, wire, m.Lock, func() {
			require.NoError(t, other.ForceUnlock(t.Context(), "orders"))
		})
		synctest.Wait()
		require.EqualValues(t, 1, m.c.Stats().Lost[CauseDeleted])
		m.Unlock()
	})
}
