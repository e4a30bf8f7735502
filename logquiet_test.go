package valkeysync

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// unanswered is a client whose subscriber connections after the first get no answer.
type unanswered struct {
	valkey.Client
	opened atomic.Int32
}

func (c *unanswered) Dedicate() (valkey.DedicatedClient, func()) {
	d, cancel := c.Client.Dedicate()
	if c.opened.Add(1) > 1 {
		return mute{d}, cancel
	}
	return d, cancel
}

type mute struct{ valkey.DedicatedClient }

func (mute) Do(ctx context.Context, _ valkey.Completed) valkey.ValkeyResult { return swallow(ctx, nil) }

// TestCloseWhileAConnectionIsReplacedIsNoLoss: a program that ends has nothing to warn of.
func TestCloseWhileAConnectionIsReplacedIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		b := newBubble(t)
		wire := &unanswered{Client: b.dial(nil)}
		c := newClient(t, wire, WithLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		other := b.client().Mutex("orders")
		other.Lock()
		got := lockAsync(t.Context(), c.Mutex("orders"))
		time.Sleep(time.Second)
		other.Unlock()
		require.NoError(t, (<-got).err)
		time.Sleep(staleTime + requestLimit/2)
		require.EqualValues(t, 2, wire.opened.Load(), "nobody watches the key any more: another connection replaces the one that does")
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Empty(t, out.String())
		require.Zero(t, c.Stats().Reconnects)
	})
}

// TestWhatIsNotRepeatedIsNotLogged: the caller has the error; "repeating it" would not be so.
func TestWhatIsNotRepeatedIsNotLogged(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var out bytes.Buffer
		wire := b.tap()
		c := newClient(t, wire, WithLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelWarn}))))
		_, err := b.Lpush("orders", "a list")
		require.NoError(t, err)
		_, err = c.Mutex("orders").LockContext(t.Context())
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Panics(t, func() { c.Mutex("orders").Lock() })
		require.Empty(t, out.String())

		b.Del("orders")
		wire.on("acquire", loseRequest)
		c.Mutex("orders").Lock()
		require.Contains(t, out.String(), "event=request_failed", "what is repeated is, whatever was refused before")
	})
}
