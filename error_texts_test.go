package valkeysync

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// requirePrefixOnce: the text begins with the module's name, and has it nowhere else; of joined errors each line.
func requirePrefixOnce(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	for line := range strings.Lines(err.Error()) {
		require.True(t, strings.HasPrefix(line, "valkeysync: "), "%s", line)
		require.Equal(t, 1, strings.Count(line, "valkeysync: "), "%s", line)
	}
}

func TestEveryErrorsTextBeginsWithTheModulesName(t *testing.T) {
	server := &ServerError{Server: 1, Name: "b:6379", Err: ErrLocked}
	majority := &QuorumError{Key: "k", Servers: 3, Needed: 2, Have: 1, Errs: []*ServerError{server, {Err: errGone}}}
	all := map[string]error{
		"ErrClosed": ErrClosed, "ErrDeadlock": ErrDeadlock, "ErrInvalidKey": ErrInvalidKey, "ErrInvalidOption": ErrInvalidOption,
		"ErrInvalidWeight": ErrInvalidWeight, "ErrLeaseLost": ErrLeaseLost, "ErrLocked": ErrLocked, "ErrMismatch": ErrMismatch,
		"ErrNoNotifications": ErrNoNotifications, "ErrNotLocked": ErrNotLocked, "ErrNotReplicated": ErrNotReplicated, "ErrTooLarge": ErrTooLarge,
		"ServerError": server,
		"QuorumError": majority,
		"LostError":   &LostError{Key: "k", Cause: CauseUnreachable, Err: majority},
		"WaitError":   &WaitError{Key: "k", Holder: "h", Err: ErrLocked, Server: &LostError{Key: "k", Err: io.EOF}},
	}
	for _, err := range all {
		requirePrefixOnce(t, err)
	}
	api, err := os.ReadFile("docs/api.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(api)) {
		what := strings.Fields(line)
		if len(what) > 2 && what[0] == "valkeysync," && (what[1] == "var" || what[1] == "type" && strings.HasSuffix(what[2], "Error")) {
			require.Contains(t, all, what[2])
		}
	}
	requirePrefixOnce(t, errOtherSize)
}

func TestWhatCallsReturnHasTheModulesNameOnceAndARemedy(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		ctx := t.Context()
		b.HSet("hash", "a", "b")
		b.HSet("{held}:queue", "a", "b")
		var mine, theirs = c.Mutex("mine"), b.client().Mutex("theirs")
		require.True(t, mine.TryLock())
		require.True(t, theirs.TryLock())
		require.True(t, c.Semaphore("s", 3).TryAcquire(1))
		held, err := mine.c.Mutex("carried").LockContext(ctx)
		require.NoError(t, err)
		locked := func(_ context.Context, err error) error { return err }
		wrongType := func(key string) string { return `"` + key + `", or a helper of it ` }
		closed := b.client()
		require.NoError(t, closed.Close())
		gone := b.dial(nil)
		gone.Close()
		stopped, stop := context.WithCancelCause(ctx)
		stop(ErrLocked)
		for name, row := range map[string]struct {
			err  error
			says string
		}{
			"unlocked twice":       {c.Mutex("k").UnlockContext(ctx), "unlock once"},
			"released too much":    {c.Semaphore("k", 1).ReleaseContext(ctx, 1), "unlock once"},
			"UnlockAll of nothing": {c.UnlockAll(ctx), "unlock once"},
			"another kind":         {locked(c.RWMutex("mine").LockContext(ctx)), `"mine" is in use by a Mutex, this is a RWMutex: use another key`},
			"another size":         {c.Semaphore("s", 4).Acquire(ctx, 1), `in use with another size: "s" is in use by a Semaphore of size 3, this is a Semaphore of size 4: give the same size everywhere, or have Semaphore.Resize`},
			"Resize of a mutex":    {c.Semaphore("mine", 4).Resize(ctx), "use another key"},
			"another type":         {locked(c.Mutex("hash").LockContext(ctx)), wrongType("hash")},
			"a try of that":        {locked(c.Mutex("hash").TryLockContext(ctx)), wrongType("hash")},
			"a helper of another":  {locked(c.Mutex("held").LockContext(ctx)), `such as "{held}:queue", is another program's: use another key (WithPrefix), or delete that one`},
			"status of that":       {func() error { _, err := c.Status(ctx, "hash"); return err }(), wrongType("hash")},
			"LockAll of that":      {locked(c.LockAll(ctx, "a", "hash")), wrongType("hash")},
			"LockAll of nothing":   {locked(c.LockAll(ctx)), "name what is locked"},
			"LockAll of a bad key": {locked(c.LockAll(ctx, "a", "")), "name what is locked"},
			"a bad key and option": {c.Mutex("", WithLease(-1)).UnlockContext(ctx), "give "},
			"a bad weight":         {c.Semaphore("k", 1).Acquire(ctx, 0), "acquire at least 1"},
			"too large":            {c.Semaphore("k", 1).Acquire(ctx, 2), "2 of 1"},
			"carried":              {locked(c.Mutex("carried").LockContext(held)), "unlock that first"},
			"taken":                {locked(c.Mutex("theirs").TryLockContext(ctx)), ": locked"},
			"ended":                {locked(c.Mutex("theirs").LockContext(stopped)), "canceled: locked"},
			"not notified": {func() (err error) {
				for _, err = range c.Watch(ctx, "k") {
					break
				}
				return err
			}(), "set notify-keyspace-events"},
			"closed":                          {locked(closed.Mutex("k").LockContext(ctx)), "closed"},
			"New":                             {func() error { _, err := New(gone, WithLogger(quiet)); return err }(), "valkeysync: New: "},
			"New's":                           {func() error { _, err := New(gone, nil, WithLease(-1)); return err }(), "a nil Option"},
			"NewQuorum":                       {func() error { _, err := NewQuorum(c, c); return err }(), "give three or five"},
			"NewQuorum's":                     {func() error { _, err := NewQuorum(c, nil); return err }(), "Client 1 is nil"},
			"NewQuorum of one that is closed": {func() error { _, err := NewQuorum(closed, c, c); return err }(), "NewQuorum: "},
		} {
			t.Log(name, "→", row.err)
			requirePrefixOnce(t, row.err)
			require.ErrorContains(t, row.err, row.says, name)
		}
	})
}

func TestWhatAQuorumReturnsHasTheModulesNameOnce(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		m := b.party().Mutex("orders")
		other := b.party().Mutex("orders")
		held, err := other.LockContext(t.Context())
		require.NoError(t, err)
		_, err = m.TryLockContext(t.Context())
		requirePrefixOnce(t, err)
		require.ErrorIs(t, err, ErrLocked)
		require.NoError(t, other.UnlockContext(held))
		for _, s := range b.servers {
			s.HSet("orders", "a", "hash")
		}
		_, err = m.LockContext(t.Context())
		requirePrefixOnce(t, err)
		require.ErrorContains(t, err, "use another key")
		requirePrefixOnce(t, m.UnlockContext(t.Context()))
	})
}
