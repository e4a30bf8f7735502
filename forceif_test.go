package valkeysync

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A person looks at a lock, thinks, and takes it: from whom they saw, or not at all.
func TestForceUnlockIfTakesNothingFromAnother(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		ctx := context.Background()
		a, b, person := on(t, s, WithPrefix("app:")), on(t, s, WithPrefix("app:")), on(t, s, WithPrefix("app:"))
		look := func(key string) Status {
			st, err := person.Status(ctx, key)
			require.NoError(t, err)
			return st
		}
		force := func(seen Status) bool {
			taken, err := person.ForceUnlockIf(ctx, seen)
			require.NoError(t, err)
			return taken
		}

		free := look("orders")
		m, n := a.Mutex("orders"), b.Mutex("orders")
		held := lock(t, m)
		seen := look("orders")
		require.False(t, force(free), "nobody held it when it was looked at")
		require.False(t, force(Status{Key: "app:orders", Holders: seen.Holders}), "nobody has looked")
		waits := take(ctx, n)
		queued(t, s, a, "orders", 1)
		unlock(t, m, held)
		next := waits.got(t, soon)
		require.False(t, force(seen), "another process by now")
		require.NoError(t, next.Err())
		unlock(t, n, next)
		require.False(t, force(seen), "free by now")
		held = lock(t, m)
		require.False(t, force(seen), "the same process, in another hold")
		require.NoError(t, held.Err())
		waits = take(ctx, n)
		queued(t, s, a, "orders", 1)
		require.True(t, force(look("orders")))
		ends(t, held, soon)
		unlock(t, n, waits.got(t, soon))
		require.ErrorIs(t, m.UnlockContext(held), ErrLeaseLost)

		// Another program's value is all there is to go by, as much of it as Status tells.
		long := strings.Repeat("x", 2000)
		command(t, s, "SET", "app:legacy", long+"1")
		seen = look("legacy")
		command(t, s, "SET", "app:legacy", "y")
		require.False(t, force(seen))
		require.True(t, exists(t, s, "app:legacy"))
		command(t, s, "SET", "app:legacy", long+"2")
		require.True(t, force(seen), "it begins alike")
		require.False(t, exists(t, s, "app:legacy"))

		// Of readers and permits it is the kind that is compared: who joined since is taken from too.
		rw, other := a.RWMutex("config"), b.RWMutex("config")
		first, err := rw.RLockContext(ctx)
		require.NoError(t, err)
		seen = look("config")
		second, err := other.RLockContext(ctx)
		require.NoError(t, err)
		require.NoError(t, rw.RUnlockContext(first))
		require.True(t, force(seen))
		ends(t, second, soon)
		writer, err := rw.LockContext(ctx)
		require.NoError(t, err)
		require.False(t, force(seen), "a writer is another")
		require.NoError(t, writer.Err())
		require.NoError(t, rw.UnlockContext(writer))
		require.ErrorIs(t, other.RUnlockContext(second), ErrLeaseLost)

		_, err = person.ForceUnlockIf(ctx, Status{Holders: seen.Holders})
		require.ErrorIs(t, err, ErrInvalidKey)
		require.NoError(t, person.Close())
		_, err = person.ForceUnlockIf(ctx, seen)
		require.ErrorIs(t, err, ErrClosed)
	})
}
