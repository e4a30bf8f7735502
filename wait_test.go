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

// unsteady is a server that cuts connections for half of a request's time limit, and then is silent.
func unsteady() relay {
	start := time.Now()
	return func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
		if time.Since(start) < requestLimit/2 {
			return valkey.NewErrorResult(errWire)
		}
		return swallow(ctx, run)
	}
}

func TestWithoutAnAnswerTryLockAndUnlockBlockForTwoSecondsAtMost(t *testing.T) {
	for name, bend := range map[string]func() relay{
		"silent":   func() relay { return swallow },
		"cut":      func() relay { return loseRequest },
		"unsteady": unsteady,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				wire := b.tap()
				m := newClient(t, wire).Mutex("orders")
				start := time.Now()
				wire.always("acquire", bend())
				require.False(t, m.TryLock())
				require.LessOrEqual(t, time.Since(start), requestLimit)
				wire.always("acquire", nil)

				m.Lock()
				start = time.Now()
				wire.always("release", bend())
				m.Unlock()
				require.LessOrEqual(t, time.Since(start), requestLimit)

				parent, cancel := context.WithCancel(t.Context())
				ctx, err := m.LockContext(parent) // what was not confirmed lapses with its lease, at the latest
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(start), defaultLease+time.Second)
				cancel()
				start = time.Now()
				wire.always("release", bend())
				require.Error(t, m.UnlockContext(ctx))
				require.LessOrEqual(t, time.Since(start), requestLimit)
				wire.always("release", nil)
				require.NoError(t, m.UnlockContext(ctx), "it waits for what goes on in the background")
				require.False(t, b.Exists("orders"))
			})
		})
	}
}

func TestLockReturnsWithTheGrantWhateverReplyIsMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		wire.on("acquire", swallowReply)
		start := time.Now()
		got := make(chan time.Duration, 1)
		go func() {
			m.Lock()
			got <- time.Since(start)
		}()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		p.release(e, held)
		require.Equal(t, 100*time.Millisecond, <-got)
		m.Unlock()
	})
}

// late is a context whose end is not told by Done: as one that ends in the moment in which the lock is got.
type late struct {
	context.Context
	ended atomic.Bool
}

func (c *late) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

func (c *late) Done() <-chan struct{} { return make(chan struct{}) }

func TestTheEndOfTheContextComesBeforeTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		m := b.client().Mutex("orders")
		ctx := &late{Context: t.Context()}
		got := lockAsync(ctx, m)
		ctx.ended.Store(true)
		p.release(e, held)
		require.ErrorIs(t, (<-got).err, context.Canceled)
		synctest.Wait()
		require.False(t, b.Exists("orders"), "it was given back")
	})
}
