package valkeysync

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// causeOf is why a lock's context ended; "" while it lives.
func causeOf(ctx context.Context) Cause {
	if lost, ok := context.Cause(ctx).(*LostError); ok {
		return lost.Cause
	}
	return ""
}

func TestAHoldPastItsMaximumIsToldThatItWasTaken(t *testing.T) {
	// It is not renewed any more, but it is certain until its lease ends, which may be long.
	t.Run("force", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client()
			ctx, err := c.Mutex("orders", WithLease(time.Minute), WithMaxHold(time.Second)).LockContext(t.Context())
			require.NoError(t, err)
			end := leaseOf(t, ctx).Until()
			time.Sleep(30 * time.Second)
			require.Equal(t, end, leaseOf(t, ctx).Until(), "not renewed")
			require.NoError(t, c.ForceUnlock(t.Context(), "orders"))
			synctest.Wait()
			require.Equal(t, CauseDeleted, causeOf(ctx))
		})
	})
	t.Run("a look prolongs nothing", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			start := time.Now()
			ctx, err := newClient(t, wire).Mutex("orders", WithLease(time.Minute), WithMaxHold(time.Second)).LockContext(t.Context())
			require.NoError(t, err)
			for range 11 {
				time.Sleep(5 * time.Second)
				wire.cutEar() // everybody looks
				synctest.Wait()
			}
			require.NoError(t, ctx.Err())
			require.GreaterOrEqual(t, wire.count("renew"), 10)
			require.LessOrEqual(t, b.TTL("orders"), 5*time.Second+50*time.Millisecond)
			<-ctx.Done()
			require.Equal(t, CauseMaxHold, causeOf(ctx))
			require.Equal(t, time.Minute-drift(time.Minute), time.Since(start))
		})
	})
}

func TestOneRenewalAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithLease(9*time.Second))
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		var running, most atomic.Int32
		wire.always("renew", func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return run()
		})
		time.Sleep(2500 * time.Millisecond)
		wire.cutEar() // the hold is looked at; while that runs, the ordinary renewal falls due
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, most.Load())
		require.NoError(t, ctx.Err())
		m.Unlock()
	})
}

func TestALateGrantDoesNotMakeAReleaseALoss(t *testing.T) {
	// The waiter has learnt of its hold by a check, and unlocks. The message that told of the grant, which
	// nobody waits for any more, comes while the release is on its way.
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithOnLost(func(string, error) { t.Error("lost") }))
		got := lockAsync(t.Context(), m)
		wire.keepBack(isGrant)
		p.release(e, held)
		synctest.Wait()
		wire.cutEar() // the waiter checks
		time.Sleep(time.Second)
		ctx := now(t, got)
		open := make(chan struct{})
		wire.on("release", holdRequest(open))
		done := make(chan error, 1)
		go func() { done <- m.UnlockContext(ctx) }()
		synctest.Wait()
		require.Equal(t, 1, wire.deliver())
		synctest.Wait()
		close(open)
		require.NoError(t, <-done)
		require.Zero(t, wire.count("leave"))
	})
}

func TestMaxHoldIsOfWhoeverHolds(t *testing.T) {
	limited, free := WithMaxHold(1500*time.Millisecond), WithMaxHold(0)
	lease := WithLease(3 * time.Second)
	t.Run("not of who queued", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			p := b.peer("p", "orders")
			e, held := p.hold("1")
			c := b.client(lease)
			ctx, cancel := context.WithCancel(t.Context())
			gaveUp := lockAsync(ctx, c.Mutex("orders", free))
			got := lockAsync(t.Context(), c.Mutex("orders", limited))
			cancel() // the second goroutine takes the place of the first
			require.ErrorIs(t, (<-gaveUp).err, context.Canceled)
			p.release(e, held)
			held2 := now(t, got)
			time.Sleep(10 * time.Second)
			require.Equal(t, CauseMaxHold, causeOf(held2))
		})
	})
	t.Run("not of who had the turn before", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client(lease, WithTurn(defaultTurn))
			first := c.Mutex("orders", limited)
			first.Lock()
			got := lockAsync(t.Context(), c.Mutex("orders", free))
			time.Sleep(2500 * time.Millisecond) // not renewed any more
			first.Unlock()
			ctx := now(t, got)
			time.Sleep(time.Minute)
			require.NoError(t, ctx.Err(), "renewed again")
		})
	})
	t.Run("not of the time that it lingered", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			m := b.client(lease, limited, WithLinger(time.Second)).Mutex("orders")
			for range 100 {
				ctx, err := m.LockContext(t.Context())
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, m.UnlockContext(ctx))
			}
		})
	})
}

func TestAHoldWhoseExpiryWasTakenAwayIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		wire.on("acquire", func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
			run()
			require.NoError(t, wire.Client.Do(t.Context(), wire.B().Persist().Key("orders").Build()).Error())
			return valkey.NewErrorResult(errCut) // the repeated request hears of it
		})
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err())
		require.Positive(t, b.TTL("orders"))
		m.Unlock()
	})
}
