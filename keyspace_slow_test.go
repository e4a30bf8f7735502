//go:build slow

package valkeysync

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Every key has an end, while it is used and after.
func TestEveryKeyHasAnEnd(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease = 2 * time.Second
		c, other := on(t, s, WithLease(lease)), on(t, s, WithLease(lease))
		m, n := c.Mutex("orders"), other.Mutex("orders")
		requireEnds := func(keys int) {
			t.Helper()
			all := must(ptr(command(t, s, "KEYS", "*")).AsStrSlice())
			require.Len(t, all, keys, "%q", all)
			for _, key := range all {
				left := time.Duration(must(ptr(command(t, s, "PTTL", key)).AsInt64())) * time.Millisecond
				require.Positive(t, left, key)
				require.LessOrEqual(t, left, time.Hour, key)
				if key == "orders" {
					require.LessOrEqual(t, left, lease)
				}
			}
		}
		held := lock(t, m)
		requireEnds(2) // lock and fence
		ctx, cancel := context.WithCancel(context.Background())
		waits := take(ctx, n)
		queued(t, s, c, "orders", 1)
		requireEnds(3)
		cancel()
		require.True(t, errors.Is(waits.failed(t, soon), ErrLocked))
		queued(t, s, c, "orders", 0)
		unlock(t, m, held)
		requireEnds(1)
	})
}
