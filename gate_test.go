package valkeysync

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// What begins under a gate's mutex counts as a user of it before anything of it can end: a gate that has none is
// forgotten, and what stands at it then hears nothing any more.
func TestAGateCountsItsUsersBeforeTheyCanLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		m := c.Mutex("k")
		ctx := lock(t, m)
		g := leaseOf(t, ctx).gate
		users := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return g.users
		}
		before := users()

		g.mu.Lock()
		a := newAttempt(g, want{mode: protocol.Exclusive, weight: 1, opts: m.opts})
		g.attempts = append(g.attempts, a)
		seen := make(chan int, 1)
		g.later(func() { seen <- users() })
		g.unlock()
		require.Equal(t, before+1, <-seen)

		g.mu.Lock()
		a.finish()
		g.later(func() { seen <- users() })
		g.unlock()
		require.Equal(t, before, <-seen)
		unlock(t, m, ctx)
		require.Empty(t, c.gates)
	})
}
