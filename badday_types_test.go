package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Somebody's keys of another type lie where ours should.

func TestAnotherTypeUnderTheLockKey(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := on(t, s, WithLease(time.Second))
		m := c.Mutex("free")
		command(t, s, "LPUSH", "free", "a")
		_, err := m.LockContext(context.Background())
		requireReply(t, err, "WRONGTYPE")
		_, err = m.TryLockContext(context.Background())
		requireReply(t, err, "WRONGTYPE")
		require.Panics(t, func() { m.Lock() })
		require.Panics(t, func() { m.TryLock() })
		_, err = c.Status(context.Background(), "free")
		requireReply(t, err, "WRONGTYPE")
		command(t, s, "DEL", "free")
		unlock(t, m, lock(t, m))
		nothingLeft(t, s, "free")

		// Under a holder: it is taken from it, and it is told.
		m = c.Mutex("held")
		held := lock(t, m)
		command(t, s, "DEL", "held")
		command(t, s, "SADD", "held", "a")
		require.Equal(t, CauseTaken, ends(t, held, soon).Cause)
		var lost *LostError
		require.ErrorAs(t, m.UnlockContext(held), &lost)
		command(t, s, "DEL", "held")
		unlock(t, m, lock(t, m))

		// Under a waiter: it is told, and leaves nothing.
		command(t, s, "SET", "waited", "foreign")
		waits := take(context.Background(), c.Mutex("waited"))
		watched(t, s, "waited", 1)
		command(t, s, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('SADD', KEYS[1], 'a')", "1", "waited")
		requireReply(t, waits.failed(t, soon), "WRONGTYPE")
		command(t, s, "DEL", "waited")
		m = on(t, s).Mutex("waited")
		unlock(t, m, lock(t, m))
		nothingLeft(t, s, "waited")
	})
}

// The fence and the queue are needed where somebody waits; the mutex's holder needs neither to renew, and
// the set of shared holds is none of its business.
func TestAnotherTypeUnderAHelperKey(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for _, helper := range []string{"queue", "fence", "shared"} {
			cases = append(cases, sub{helper, func(t *testing.T) {
				c, other := on(t, s, WithLease(time.Second)), on(t, s, WithLease(time.Second))
				key := "with bad " + helper
				bad := "{" + key + "}:" + helper
				spoil := func() {
					command(t, s, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')", "1", bad)
				}
				m, n := c.Mutex(key), other.Mutex(key)
				if helper == "shared" {
					spoil()
					held := lock(t, m)
					waits := take(context.Background(), n)
					watched(t, s, key, 1) // it is in the queue
					unlock(t, m, held)
					unlock(t, n, waits.got(t, soon))
					command(t, s, "DEL", bad)
					nothingLeft(t, s, key)
					return
				}

				// Nothing is held.
				spoil()
				_, err := m.LockContext(context.Background())
				requireReply(t, err, "WRONGTYPE")
				require.False(t, exists(t, s, key), "nothing half-written")
				command(t, s, "DEL", bad)

				// It is held and waited for: the holder renews.
				held := lock(t, m)
				waits := take(context.Background(), n)
				queued(t, s, c, key, 1)
				spoil()
				l, _ := FromContext(held)
				before := l.Until()
				eventually(t, soon, "renewed twice", func() bool { return l.Until().After(before.Add(400 * time.Millisecond)) })
				require.NoError(t, held.Err())
				// The unlock says what is wrong, and the lock lapses with its lease.
				requireReply(t, m.UnlockContext(held), "WRONGTYPE")
				requireReply(t, waits.failed(t, soon), "WRONGTYPE")
				command(t, s, "DEL", bad)
				unlock(t, n, lock(t, n))
				nothingLeft(t, s, key)
			}})
		}
		together(t, cases...)
	})
}

// What somebody else wrote into the queue or among the shared holds stops nobody.
func TestMembersThatAreNotOurs(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for _, p := range primitives {
			cases = append(cases, sub{p.name, func(t *testing.T) {
				key := "spoiled " + p.name
				first, second := p.make(on(t, s), 0, key), p.make(on(t, s), 1, key)
				spoil := func() {
					command(t, s, "ZADD", "{"+key+"}:queue", "1", "not ours", "2", "", "1e16", "nor this")
					command(t, s, "ZADD", "{"+key+"}:shared", "1", "not ours")
				}
				look := on(t, s)
				spoil()
				first.Lock()
				spoil()
				done := make(chan struct{})
				go func() {
					defer close(done)
					second.Lock()
					second.Unlock()
				}()
				eventually(t, soon, "the second waits, or had it beside the first", func() bool {
					select {
					case <-done:
						return true
					default:
						st, err := look.Status(t.Context(), key)
						require.NoError(t, err)
						return len(st.Queue) == 1
					}
				})
				spoil()
				first.Unlock()
				within(t, soon, "the second has had it", func() { <-done })
				if p.name == "mutex" { // which has no shared holds, and leaves them alone
					command(t, s, "DEL", "{"+key+"}:shared")
				}
				nothingLeft(t, s, key)
			}})
		}
		together(t, cases...)
	})
}
