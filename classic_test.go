package valkeysync

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The classic mistakes of locks on this kind of server, each shown to be impossible here. docs/guarantees.md
// lists them.

// SETNX without an expiry, and SETNX and EXPIRE as two steps: whoever looks at the lock key, at whatever moment,
// finds it gone or with an end; also where the holder's process is cut off in the middle of its request.
func TestALockNeverStandsWithoutAnExpiry(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		look := s.Client(t)
		over := make(chan struct{})
		var looks sync.WaitGroup
		seen := 0
		looks.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				for _, p := range primitives {
					left, err := look.Do(context.Background(), look.B().Pttl().Key("lock of "+p.name).Build()).AsInt64()
					if err != nil || left == -1 {
						t.Errorf("%s: PTTL %d %v", p.name, left, err)
						return
					}
					if left >= 0 {
						seen++
					}
				}
			}
		})
		var all sync.WaitGroup
		for _, p := range primitives {
			for i := range 3 {
				l := p.make(on(t, s), i, "lock of "+p.name)
				all.Go(func() {
					for range 100 {
						l.Lock()
						l.Unlock()
					}
				})
			}
		}
		within(t, 4*soon, "all are through", all.Wait)
		close(over)
		looks.Wait()
		require.Positive(t, seen, "it was looked at while it was held")
	})
}

// GET and DEL as two steps: whatever happens between the owner's last look and its unlock, the unlock is one
// command that compares and deletes.
func TestAnUnlockIsOneCommandThatCompares(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		c, other := newClient(t, tap), b.client()
		m, theirs := c.Mutex("orders"), other.Mutex("orders")
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		sent := tap.total()
		var next context.Context
		tap.on("release", before(func() { // at the last moment the lock becomes another's
			require.NoError(t, other.ForceUnlock(context.Background(), "orders"))
			next, err = theirs.TryLockContext(context.Background())
			require.NoError(t, err)
		}))
		require.ErrorIs(t, m.UnlockContext(held), ErrLeaseLost)
		require.Equal(t, 1, tap.count("release"))
		synctest.Wait()
		require.LessOrEqual(t, tap.total()-sent, 2, "the release, and the leave of what was lost")
		require.NoError(t, next.Err())
		require.False(t, b.client().Mutex("orders").TryLock(), "it is still the other's")
		require.NoError(t, theirs.UnlockContext(next))
	})
}

// An expired holder that deletes another's lock: every primitive, whose hold has lapsed on the server while the
// holder did not look, gives back nothing of the next holder's.
func TestAnExpiredHolderOpensNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		for _, p := range primitives {
			key := "expired " + p.name
			late, next := p.make(on(t, s), 0, key), p.make(on(t, s), 0, key)
			late.Lock()
			command(t, s, "DEL", key, fmt.Sprintf("{%s}:shared", key)) // as when its lease ran out
			within(t, soon, "the next has it", next.Lock)
			within(t, soon, "the late unlock", late.Unlock)
			st, err := on(t, s).Status(t.Context(), key)
			require.NoError(t, err)
			require.Len(t, st.Holders, 1, p.name)
			within(t, soon, "the next gives it back", next.Unlock)
			nothingLeft(t, s, key)
		}
	})
}
