package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// told is a holder under crash detection whose own requests get lost from now on, and a waiter: look has it check,
// which tells the holder that someone waits, and so that it is counted among the living.
func told(t *testing.T, b *bubble) (held context.Context, wire *tap, look func()) {
	t.Helper()
	wire = b.tap()
	c := newClient(t, wire, WithLease(30*time.Second), WithCrashDetection(defaultGrace))
	held = lock(t, c.Mutex("orders"))
	wire.always("renew", swallow)
	wire.always("beat", swallow)
	p := b.peer("p", "orders")
	waits := p.entry("waits")
	require.Equal(t, protocol.Queued, p.acquire(waits).Outcome)
	return held, wire, func() {
		p.reply(p.Check(t.Context(), &p.keys, waits, false, time.Hour))
	}
}

// alive is for how long the context lives on.
func alive(held context.Context) time.Duration {
	start := time.Now()
	<-held.Done()
	return time.Since(start)
}

func TestALookTellsTheHolderThatItLives(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		held, wire, look := told(t, b)
		before := wire.beats() // New tries whether it hears
		for range 15 {         // the first third of the lease: then it would be renewed
			time.Sleep(600 * time.Millisecond)
			look()
			require.NoError(t, held.Err())
		}
		require.Equal(t, before, wire.beats(), "it has no need to ask")
		lived := alive(held)
		require.Less(t, lived, defaultGrace)
		require.Greater(t, lived, defaultGrace-100*time.Millisecond)
		require.Greater(t, wire.beats(), before, "nobody looks any more")
	})
}

func TestALookIsAProofOfLifeOfItsOwnTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		held, wire, look := told(t, b)
		time.Sleep(500 * time.Millisecond)
		wire.keepBack(anyMessage)
		look()
		time.Sleep(time.Second) // the message is slow
		require.Equal(t, 1, wire.deliver())
		lived := alive(held)
		require.Less(t, lived, defaultGrace-time.Second)
		require.Greater(t, lived, defaultGrace-time.Second-100*time.Millisecond, "but it is one")
	})
}

func TestALookThatIsHeardOverAnOlderConnectionIsNoProofOfLife(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		held, wire, look := told(t, b)
		time.Sleep(time.Second)
		wire.keepBack(anyMessage)
		look()
		synctest.Wait()
		wire.cutEar()
		time.Sleep(500 * time.Millisecond) // it has a new one by now
		require.Equal(t, 1, wire.deliver())
		require.Less(t, alive(held), defaultGrace-1500*time.Millisecond, "a grace after the acquisition")
	})
}
