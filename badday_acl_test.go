package valkeysync

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A user's rights are narrowed while locks are held and waited for.

// requireReply requires the server's own error in the chain, beginning with the word.
func requireReply(t testing.TB, err error, word string) {
	t.Helper()
	require.True(t, protocol.Says(err, word), "%q: %v", word, err)
}

func TestRightsToRunScriptsAreTakenAway(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := newClient(t, as(t, s, "u", enough...), WithLease(2*time.Second))
		kept, short, foreign := c.Mutex("kept"), c.Mutex("short", WithLease(600*time.Millisecond)), c.Mutex("foreign")
		keptCtx, shortCtx := lock(t, kept), lock(t, short)
		command(t, s, "SET", "foreign", "another")
		waits := take(context.Background(), foreign)
		watched(t, s, "foreign", 1)

		grantRights(t, s, "u", append(enough, "-evalsha", "-eval")...)
		command(t, s, "DEL", "foreign")
		requireReply(t, waits.failed(t, soon), "NOPERM")
		_, err := c.Mutex("free").TryLockContext(context.Background())
		requireReply(t, err, "NOPERM")
		_, err = c.Mutex("free").LockContext(context.Background())
		requireReply(t, err, "NOPERM")
		require.Panics(t, func() { c.Mutex("free").TryLock() })
		require.Panics(t, func() { c.Mutex("free").Lock() })
		lost := ends(t, shortCtx, soon)
		require.Equal(t, CauseUnreachable, lost.Cause)
		requireReply(t, lost, "NOPERM")

		// Given back in time: what was held is held.
		grantRights(t, s, "u", enough...)
		l, _ := FromContext(keptCtx)
		before := l.Until()
		eventually(t, soon, "renewed", func() bool { return l.Until().After(before) })
		require.NoError(t, keptCtx.Err())

		// An unlock that is refused is told, and the lock lapses with its lease.
		grantRights(t, s, "u", append(enough, "-evalsha", "-eval")...)
		requireReply(t, kept.UnlockContext(keptCtx), "NOPERM")
		grantRights(t, s, "u", enough...)
		unlock(t, kept, lock(t, kept))
		unlock(t, short, lock(t, short))
		unlock(t, foreign, lock(t, foreign))
		for _, key := range []string{"kept", "short", "foreign", "free"} {
			nothingLeft(t, s, key)
		}
	})
}

// Who gives up its wait while it has no rights takes its place out of the queue when they are back.
func TestALeaveThatIsRefusedIsRepeated(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c, other := newClient(t, as(t, s, "u", enough...)), on(t, s)
		m := other.Mutex("orders")
		held := lock(t, m)
		ctx, cancel := context.WithCancel(context.Background())
		waits := take(ctx, c.Mutex("orders"))
		queued(t, s, other, "orders", 1)
		grantRights(t, s, "u", append(enough, "-evalsha", "-eval")...)
		before := refusals(t, s)
		cancel()
		require.ErrorIs(t, waits.failed(t, soon), context.Canceled)
		eventually(t, soon, "the leave was refused", func() bool { return refusals(t, s) > before })
		queued(t, s, other, "orders", 1)
		grantRights(t, s, "u", enough...)
		queued(t, s, other, "orders", 0)
		unlock(t, m, held)
		nothingLeft(t, s, "orders")
	})
}

// refusals is how many commands the server has refused to run.
func refusals(t testing.TB, s *testserver.Server) int64 {
	t.Helper()
	m := command(t, s, "INFO", "commandstats")
	text, err := m.ToString()
	require.NoError(t, err)
	_, stats, _ := strings.Cut(text, "cmdstat_evalsha:")
	stats, _, _ = strings.Cut(stats, "\r\n")
	_, n, _ := strings.Cut(stats, "rejected_calls=")
	n, _, _ = strings.Cut(n, ",")
	count, err := strconv.ParseInt(n, 10, 64)
	require.NoError(t, err, stats)
	return count
}

func TestRightsToChannelsAreTakenAway(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c, other := newClient(t, as(t, s, "u", enough...), WithLease(2*time.Second)), on(t, s)
		held, taken := c.Mutex("held"), other.Mutex("taken")
		heldCtx, takenCtx := lock(t, held), lock(t, taken)
		mine := c.Mutex("taken")
		waits := take(context.Background(), mine)
		queued(t, s, other, "taken", 1)
		command(t, s, "SET", "foreign", "another")

		// The server ends the connection, and does not let us subscribe anew.
		grantRights(t, s, "u", append(enough, "resetchannels")...)
		eventually(t, soon, "cut off", func() bool { return !c.hub.hears() })
		requireReply(t, take(context.Background(), c.Mutex("foreign")).failed(t, soon), "NOPERM")
		// What needs no message works, and who waits already goes by its timers.
		free := c.Mutex("free")
		unlock(t, free, lock(t, free))
		l, _ := FromContext(heldCtx)
		before := l.Until()
		eventually(t, soon, "renewed", func() bool { return l.Until().After(before) })
		unlock(t, held, heldCtx)
		unlock(t, taken, takenCtx)
		unlock(t, mine, waits.got(t, soon))

		takenCtx = lock(t, taken)
		grantRights(t, s, "u", enough...)
		eventually(t, soon, "hears again", func() bool { return subscribers(t, s, "valkeysync:"+c.id) == 1 })
		eventually(t, soon, "knows it", c.hub.hears)
		waits = take(context.Background(), mine)
		queued(t, s, other, "taken", 1)
		unlock(t, taken, takenCtx)
		unlock(t, mine, waits.got(t, soon))
		nothingLeft(t, s, "taken")
	})
}
