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

func TestAfterAGapEverybodyLooksAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		c := newClient(t, wire, WithLease(time.Hour))
		other := b.client(WithLease(time.Hour))
		for i := range 3 {
			c.Mutex(fmt.Sprint("held", i)).Lock()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var waits []<-chan locked
		for i := range 5 {
			key := fmt.Sprint("waits", i)
			other.Mutex(key).Lock()
			waits = append(waits, lockAsync(ctx, c.Mutex(key)), lockAsync(ctx, c.Mutex(key)))
		}
		time.Sleep(time.Minute)
		checks, renewals := wire.count("check"), wire.count("renew")
		for round := 1; round <= 3; round++ {
			wire.cutEar()
			time.Sleep(time.Second)
			require.Equal(t, checks+round*(5+1), wire.count("check"), "each attempt, and the probe of the new connection")
			require.Equal(t, renewals+round*3, wire.count("renew"), "each hold")
			require.EqualValues(t, round, c.Stats().Reconnects)
			require.EqualValues(t, 5*round, c.Stats().WokenByGap)
		}
		cancel()
		for _, got := range waits {
			<-got
		}
	})
}

func TestAConnectionThatHearsNothingIsRebuilt(t *testing.T) {
	t.Run("of a holder, which renews", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			c := newClient(t, wire, WithLease(9*time.Second))
			c.Mutex("orders").Lock()
			wire.keepBack(anyMessage)
			time.Sleep(3*time.Second + echoLimit - time.Millisecond)
			require.Zero(t, c.Stats().Reconnects)
			wire.keepBack(nil)
			time.Sleep(2 * time.Millisecond)
			require.EqualValues(t, 1, c.Stats().Reconnects)
			time.Sleep(time.Hour)
			require.EqualValues(t, 1, c.Stats().Reconnects, "the new one hears")
		})
	})
	t.Run("of a waiter, which looks", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			p := b.peer("p", "orders")
			p.hold("1")
			require.NoError(t, b.Set("orders", "another program's"))
			wire := b.tap()
			c := newClient(t, wire)
			ctx, cancel := context.WithCancel(t.Context())
			got := lockAsync(ctx, c.Mutex("orders"))
			time.Sleep(time.Second)
			wire.keepBack(anyMessage)
			time.Sleep(2 * defaultLease)
			wire.keepBack(nil)
			require.NotZero(t, c.Stats().Reconnects)
			time.Sleep(2 * defaultLease)
			after := c.Stats().Reconnects
			time.Sleep(time.Hour)
			require.Equal(t, after, c.Stats().Reconnects)
			cancel()
			<-got
		})
	})
	t.Run("but not one that hears late", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			c := newClient(t, wire, WithLease(9*time.Second))
			c.Mutex("orders").Lock()
			wire.keepBack(anyMessage)
			for range 600 {
				time.Sleep(echoLimit / 2)
				wire.deliver()
			}
			require.Zero(t, c.Stats().Reconnects)
		})
	})
}

func TestTwoWatchesOfAChannelAreOneSubscription(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		heard := make(chan int, 10)
		first := c.hub.watch("news", func(string) { heard <- 1 })
		<-first.confirmed()
		second := c.hub.watch("news", func(string) { heard <- 2 })
		<-second.confirmed()
		require.Equal(t, 1, b.Publish("news", "x"))
		synctest.Wait()
		require.Len(t, heard, 2)
		first.stop()
		first.stop() // twice is fine
		require.Equal(t, 1, b.Publish("news", "y"))
		synctest.Wait()
		require.Len(t, heard, 3)
		second.stop()
		third := c.hub.watch("news", func(string) { heard <- 3 })
		<-third.confirmed()
		require.Equal(t, 1, b.Publish("news", "z"), "watched again before it was given up")
		synctest.Wait()
		require.Len(t, heard, 4)
		third.stop()
		b.Publish("news", "nobody")
		synctest.Wait()
		require.Len(t, heard, 4)
	})
}

func TestMessagesThatAreNotOursDoNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		wire := b.tap()
		c := newClient(t, wire)
		m := c.Mutex("orders")
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		before := p.standing()
		mine := protocol.ParseHolder(before.Value)
		asked := wire.total()
		for _, text := range []string{
			"", " ", "grant", "grant m x", "grant m x 1 1 1 0", "what m x 1 1 1 0 orders", "grant m x 1 -1 1 0 orders",
			"grant m x 99999999999999999999 1 1 0 orders", "grant m x 1 1 99999999999 0 orders", "\x00\xff", "échø m x 1 1 1 0 orders",
			"waits m unknown 0 1 0 0 orders", "lost m unknown 0 1 0 0 orders", "lost m unknown 0 1 0 0 elsewhere",
			"grant m " + mine.Attempt + " 1 1 1 0 orders",        // it has it already
			"front m " + mine.Attempt + " 1 1 1 0 orders",        // and does not wait
			"lost w " + mine.Attempt + " 1 1 1 0 orders",         // another kind
			"lost m " + mine.Attempt + " 1 1 1 0 orders ",        // another key
			"echo m " + mine.Attempt + " 1 1 1 0 orders\r\nmore", // and more
		} {
			b.Publish(protocol.ChannelFor(c.id), text)
			synctest.Wait()
			require.NoError(t, ctx.Err(), "%q", text)
			require.Equal(t, asked, wire.total(), "%q", text)
		}
		// A true one makes it look, and no more.
		b.Publish(protocol.ChannelFor(c.id), "lost m "+mine.Attempt+" 0 1 0 0 orders")
		synctest.Wait()
		require.NoError(t, ctx.Err())
		require.Equal(t, asked+1, wire.total())
		// A grant for an attempt that is none of ours has the server asked to forget it, and that finds nothing.
		b.Publish(protocol.ChannelFor(c.id), "grant m unknown 1 1 1 0 orders")
		synctest.Wait()
		require.Equal(t, asked+2, wire.total())
		require.Equal(t, before.Value, p.standing().Value)
		m.Unlock()
	})
}
