package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
		require.Zero(t, gatesOf(c))
	})
}

// Of the gates that nobody uses the last is kept, and is as good as new.
func TestTheLastGateIsKeptForWhoComesAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		c := newClient(t, wire)
		m := c.Mutex("k")
		kept := func() (gates []*gate) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, g := range c.gates {
				gates = append(gates, g)
			}
			return gates
		}
		ctx := lock(t, m)
		first := leaseOf(t, ctx).gate
		unlock(t, m, ctx)
		require.Equal(t, []*gate{first}, kept())

		// What went wrong before is not told of a later wait.
		wire.always("acquire", loseRequest)
		cut, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		_, err := m.LockContext(cut)
		var wait *WaitError
		require.ErrorAs(t, err, &wait)
		require.Error(t, wait.Server)
		wire.always("acquire", nil)
		time.Sleep(time.Minute)
		require.Zero(t, gatesOf(c))
		p := b.peer("p", "k")
		e, held := p.hold("1")
		cut, cancel = context.WithCancel(t.Context())
		open := make(chan struct{})
		wire.on("acquire", holdRequest(open))
		got := lockAsync(cut, c.Mutex("k"))
		cancel()
		require.ErrorAs(t, (<-got).err, &wait)
		require.NoError(t, wait.Server)
		close(open)
		synctest.Wait()

		// Nobody is there: what comes for it is answered as if it was not.
		require.Zero(t, gatesOf(c))
		stray := p.entry("stray")
		stray.Client = c.id
		p.acquire(stray)
		p.release(e, held)
		synctest.Wait()
		require.Empty(t, p.holder())
		require.Zero(t, gatesOf(c))

		ctx = lock(t, m)
		require.Same(t, first, leaseOf(t, ctx).gate)
		n := c.Mutex("other")
		other := lock(t, n)
		unlock(t, m, ctx)
		require.Len(t, kept(), 2)
		unlock(t, n, other)
		require.Len(t, kept(), 1)
		require.NotSame(t, first, kept()[0])
	})
}
