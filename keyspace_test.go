package valkeysync

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// What a mutex has on the server: keys of any name, and none that stays.

func TestAnyKeyIsLockedWaitedForAndWatched(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c, other := on(t, s, WithLease(time.Minute)), on(t, s, WithLease(time.Minute))
		var cases []sub
		for _, key := range []string{
			"{", "{{", "a{b", "{tag}", "{tag}:rest", "pre{tag}post", "{a}{b}", "{a}}",
			"with space", "line\nbreak", "tab\t", "\x00\xff\xfe binary", "ünïcödé 🔒", "*", "[a-z]?", "\\", "'\"",
			"vs1", "valkeysync:x", "orders:queue", strings.Repeat("k", 1024),
		} {
			cases = append(cases, sub{fmt.Sprintf("%.20q", key), func(t *testing.T) {
				m, n := c.Mutex(key), other.Mutex(key)
				held := lock(t, m)
				require.True(t, exists(t, s, key), "the key is the lock's, as it stands")
				st, err := c.Status(context.Background(), key)
				require.NoError(t, err)
				require.Equal(t, StateHeld, st.State)
				waits := take(context.Background(), n)
				queued(t, s, c, key, 1)
				unlock(t, m, held)
				unlock(t, n, waits.got(t, soon))

				command(t, s, "SET", key, "foreign")
				waits = take(context.Background(), m)
				watches(t, m)
				start := time.Now()
				command(t, s, "DEL", key)
				unlock(t, m, waits.got(t, soon))
				require.Less(t, waits.at.Sub(start), aRoundTrip)
			}})
		}
		together(t, cases...)
		for _, key := range []string{"", " ", "\t\r\n", "}", "a}b", "{}", "}{", "{}}", "{}{tag}"} {
			_, err := c.Mutex(key).LockContext(context.Background())
			require.ErrorIs(t, err, ErrInvalidKey, "%q", key)
			require.ErrorContains(t, err, fmt.Sprintf("%q", key))
		}
	})
}

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
		eventually(t, soon, "it knows that it waits", func() bool { return other.Stats().Waits == 1 })
		requireEnds(3)
		cancel()
		require.ErrorIs(t, waits.failed(t, soon), ErrLocked)
		queued(t, s, c, "orders", 0)
		unlock(t, m, held)
		requireEnds(1)
	})
}

// A name that was used once costs its number for an hour; without it, tokens rise all the same.
func TestNamesUsedOnceDoNotPileUp(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := on(t, s)
		const names = 300
		tokens := map[string]int64{}
		for i := range names {
			key := fmt.Sprint("name ", i)
			m := c.Mutex(key)
			held := lock(t, m)
			tokens[key] = tokenOf(t, held)
			unlock(t, m, held)
		}
		require.EqualValues(t, names, must(ptr(command(t, s, "DBSIZE")).AsInt64()))
		// An hour passes.
		for key := range tokens {
			command(t, s, "PEXPIRE", "{"+key+"}:fence", "1")
		}
		eventually(t, soon, "all gone", func() bool {
			for key := range tokens {
				if exists(t, s, "{"+key+"}:fence") {
					return false
				}
			}
			return true
		})
		for key, token := range tokens {
			m := c.Mutex(key)
			held := lock(t, m)
			require.Greater(t, tokenOf(t, held), token)
			unlock(t, m, held)
			break
		}
		require.Zero(t, gatesOf(c), "nor here")
	})
}

// The plain recipe and we exclude each other.
func TestPlainRecipe(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		m := on(t, s).Mutex("orders")
		held := lock(t, m)
		_, err := s.Do("SET", "orders", "theirs", "NX", "PX", "30000")
		require.Error(t, err, "we exclude it")
		require.EqualValues(t, 0, must(ptr(command(t, s, "EVAL", compareAndDelete, "1", "orders", "theirs")).AsInt64()))
		require.NoError(t, held.Err())
		unlock(t, m, held)

		command(t, s, "SET", "orders", "theirs", "NX", "PX", "30000")
		_, err = m.TryLockContext(context.Background())
		var wait *WaitError
		require.ErrorAs(t, err, &wait)
		require.ErrorIs(t, err, ErrLocked, "it excludes us")
		require.Contains(t, wait.Holder, "theirs")
		require.InDelta(t, 30*time.Second, wait.Remaining, float64(soon))
		waits := take(context.Background(), m)
		watches(t, m)
		require.EqualValues(t, 1, must(ptr(command(t, s, "EVAL", compareAndDelete, "1", "orders", "theirs")).AsInt64()))
		unlock(t, m, waits.got(t, soon))
		nothingLeft(t, s, "orders")
	})
}
