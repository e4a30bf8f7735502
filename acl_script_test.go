package valkeysync

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// without is the README's rule without one right.
func without(t *testing.T, right string) []string {
	t.Helper()
	rule := aclRule(t)
	i := slices.Index(rule, right)
	require.Positive(t, i, "the rule has no %s", right)
	return slices.Delete(rule, i, i+1)
}

// TestARightThatOnlyAScriptNeedsIsMissed: servers say it otherwise than for a command of the client's own.
// Waiting is no use all the same.
func TestARightThatOnlyAScriptNeedsIsMissed(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		rule := without(t, "+zadd")
		a, err := restricted(t, s, rule)
		require.NoError(t, err)
		b, err := restricted(t, s, rule)
		require.NoError(t, err)
		mu := a.Mutex("orders")
		held, err := mu.LockContext(context.Background())
		require.NoError(t, err, "a free lock needs no ZADD")

		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err = b.Mutex("orders").LockContext(ctx)
		var reply *valkey.ValkeyError
		require.ErrorAs(t, err, &reply)
		require.NoError(t, ctx.Err(), "at once")
		within(t, 30*time.Second, "Lock", func() {
			require.Panics(t, func() { b.Mutex("orders").Lock() })
		})
		require.NoError(t, mu.UnlockContext(held))
	})
}
