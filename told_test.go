package valkeysync

import (
	"context"
	"fmt"
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
		for range 18 {         // the first third of the lease: then it would be renewed
			time.Sleep(defaultGrace / 4)
			look()
			require.NoError(t, held.Err())
		}
		require.Equal(t, before, wire.beats(), "it has no need to ask")
		lived := alive(held)
		require.Less(t, lived, defaultGrace)
		require.Greater(t, lived, defaultGrace-200*time.Millisecond, "1 % of the 9 s since its acquisition is left out")
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

// A connection is replaced because of the channels that nobody watches any more. It was closed a while ago, and a
// waiter had looked before the one that replaces it was subscribed: what that hears proves nothing of the time between.
func TestALookThatIsHeardOverTheNextConnectionIsNoProofOfLife(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const ahead = 100 * time.Millisecond
		q := b.peer("q", "orders")
		judged(t, b, staleTime-ahead, func(c *Client) {
			time.Sleep(2 * ahead)
			w := c.hub.watch("news", func(string) {})
			<-w.confirmed()
			w.stop()
		}, func(c *Client, way *silent) {
			way.mu.Lock()
			way.halfOpen = true // so it takes the Client its time to find out
			way.mu.Unlock()
			time.Sleep(ahead)
			synctest.Wait()
			require.EqualValues(t, 2, c.hub.opened.Load(), "the next connection was made")
			time.Sleep(500 * time.Millisecond)
			require.Equal(t, protocol.Queued, q.acquire(q.entry("also")).Outcome)
		})
	})
}

// Who hears on a replica hears all that is said on its primary, where a waiter that looks counts nobody.
func TestALookThatIsHeardByOneWhoIsNotCountedIsNoProofOfLife(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire, way := b.tap(), &silent{}
		wire.Client = b.dial(way.wrap)
		c := newClient(t, wire, WithLease(30*time.Second), WithCrashDetection(defaultGrace))
		held := lock(t, c.Mutex("orders"))
		p := b.peer("p", "orders")
		waits := p.entry("waits")
		require.Equal(t, protocol.Queued, p.acquire(waits).Outcome)
		look := func() time.Duration {
			return p.reply(p.Check(t.Context(), &p.keys, waits, false, time.Hour)).Remaining
		}
		time.Sleep(5 * time.Second)
		wire.always("renew", swallow)
		wire.always("beat", swallow)

		replica := b.NewSubscriber()
		replica.Psubscribe(protocol.ChannelFor(c.id)) // a pattern is not counted
		done := make(chan struct{})
		go func() {
			defer close(done)
			for m := range replica.Pmessages() {
				wire.say(m.Channel, m.Message)
			}
		}()
		t.Cleanup(func() { replica.Close(); <-done })
		way.end()
		synctest.Wait()
		require.Equal(t, defaultGrace, look(), "the lease is cut")
		cut := time.Now()
		for range 3 {
			time.Sleep(defaultGrace / 4)
			look()
		}
		<-held.Done()
		require.Less(t, time.Since(cut), defaultGrace, "what the server has left of the lease")
	})
}

// The server's clock runs faster than the Client's, as much as drift allows for; what was read of it is old, and the
// message is slow.
func TestALookIsNoLaterThanTwoClocksThatRunApart(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const since = 100 * time.Second
		wire := b.tap()
		c := newClient(t, wire, WithLease(time.Hour), WithCrashDetection(defaultGrace))
		held := lock(t, c.Mutex("orders"))
		said := time.Now()
		time.Sleep(since)
		wire.always("renew", swallow)
		wire.always("beat", swallow)
		looked := time.Now()
		time.Sleep(time.Second)
		l := leaseOf(t, held)
		server := said.Add(since + since/100).UnixMilli()
		wire.say(protocol.ChannelFor(c.id), fmt.Sprintf("waits m %s 0 %d 1 0 orders", l.hold.entry.Attempt, server))
		<-held.Done()
		require.Less(t, time.Since(looked), defaultGrace)
	})
}
