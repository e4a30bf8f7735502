package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The valkey.Client should be closed after the Client. Who closes it before is told so, by everything.
func TestTheConnectionIsClosedUnderTheClient(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		conn := s.Client(t)
		c, err := New(conn, WithLogger(testLogger(t)), WithLease(time.Second))
		require.NoError(t, err)
		other := on(t, s)
		m, taken := c.Mutex("held"), other.Mutex("taken")
		held, takenCtx := lock(t, m), lock(t, taken)
		waits := take(context.Background(), c.Mutex("taken"))
		queued(t, s, other, "taken", 1)

		conn.Close()

		requireClosed := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, ErrClosed)
			require.ErrorIs(t, err, valkey.ErrClosing, "which of the two it was")
			require.ErrorContains(t, err, "valkey.Client")
		}
		requireClosed(waits.failed(t, soon))
		requireClosed(take(context.Background(), c.Mutex("free")).failed(t, soon))
		ctx, cancel := context.WithCancel(context.Background())
		requireClosed(take(ctx, c.Mutex("free")).failed(t, soon))
		cancel()
		_, err = c.Mutex("free").TryLockContext(context.Background())
		requireClosed(err)
		within(t, soon, "Lock", func() { require.Panics(t, func() { c.Mutex("free").Lock() }) })
		within(t, soon, "unlock", func() { err = m.UnlockContext(held) })
		requireClosed(err)
		_, err = c.Status(context.Background(), "held")
		requireClosed(err)
		requireClosed(c.ForceUnlock(context.Background(), "held"))
		within(t, soon, "Close", func() { require.NoError(t, c.Close()) })

		// What it had on the server lapses, and nobody waits for it longer.
		next := other.Mutex("held")
		unlock(t, next, lock(t, next))
		unlock(t, taken, takenCtx)
		nothingLeft(t, s, "held")
		nothingLeft(t, s, "taken")
	})
}
