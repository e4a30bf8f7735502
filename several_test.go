package valkeysync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestLockAllOfWhatIsFreeIsOneCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		c, other := newClient(t, tap), b.client()
		held, err := c.LockAll(t.Context(), "b", "a", "c", "a")
		require.NoError(t, err)
		require.Equal(t, 1, tap.count("acquire_all"))
		require.Zero(t, tap.count("acquire"))
		var keys []string
		for _, l := range Leases(held) {
			keys = append(keys, l.Key())
			require.True(t, l.Valid())
			require.Positive(t, l.Token())
			require.False(t, other.Mutex(l.Key()).TryLock())
		}
		require.Equal(t, "a b c", strings.Join(keys, " "))
		require.NoError(t, c.UnlockAll(held))
		require.Equal(t, 3, tap.count("release"))
		require.Error(t, held.Err())
		require.ErrorIs(t, c.UnlockAll(held), ErrNotLocked)
		for _, key := range keys {
			require.True(t, other.Mutex(key).TryLock(), key)
		}
	})
}

// Some are not free: those are waited for, and the waiting ends with the context, with nothing held.
func TestLockAllIsAllOrNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c, other := b.client(), b.client()
		m := other.Mutex("b")
		m.Lock()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.LockAll(short, "c", "b", "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `"b"`)
		synctest.Wait()
		for _, key := range []string{"a", "c"} {
			require.True(t, other.Mutex(key).TryLock(), key)
			require.NoError(t, other.ForceUnlock(t.Context(), key))
		}
		all := lockAllAsync(t.Context(), c, "c", "b", "a")
		notYet(t, all)
		m.Unlock()
		require.NoError(t, c.UnlockAll(now(t, all)))
	})
}

func lockAllAsync(ctx context.Context, c *Client, keys ...string) <-chan locked {
	got := make(chan locked, 1)
	go func() {
		held, err := c.LockAll(ctx, keys...)
		got <- locked{held, err, time.Now()}
	}()
	return got
}

// The same keys in any order, by several processes and goroutines, together with single locks: nobody waits in
// a circle, and nobody is in where another is.
func TestLockAllNeverWaitsInACircle(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		keys := []string{"a", "b", "c", "d"}
		var in [4]atomic.Int32 // each under its lock
		index := map[string]int{"a": 0, "b": 1, "c": 2, "d": 3}
		var all sync.WaitGroup
		for i := range 4 {
			c := on(t, s, WithTurn(defaultTurn))
			for j := range 2 {
				all.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(i), uint64(j)))
					for range 30 {
						some := make([]string, 0, 4)
						for _, k := range rnd.Perm(4)[:1+rnd.IntN(4)] {
							some = append(some, keys[k])
						}
						held, err := c.LockAll(context.Background(), some...)
						if err != nil {
							t.Error(err)
							return
						}
						for _, key := range some {
							if n := in[index[key]].Add(1); n != 1 {
								t.Errorf("%d hold %s", n, key)
							}
						}
						for _, key := range some {
							in[index[key]].Add(-1)
						}
						if err := c.UnlockAll(held); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		within(t, 4*soon, "all are through", all.Wait)
		for _, key := range keys {
			nothingLeft(t, s, key)
		}
	})
}

func TestLockAllLosesAllWithOne(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		held, err := c.LockAll(t.Context(), "a", "b", "c")
		require.NoError(t, err)
		require.NoError(t, b.client().ForceUnlock(t.Context(), "b"))
		<-held.Done()
		var lost *LostError
		require.ErrorAs(t, context.Cause(held), &lost)
		require.Equal(t, "b", lost.Key)
		require.ErrorIs(t, c.UnlockAll(held), ErrLeaseLost)
		again, err := c.LockAll(t.Context(), "a", "b", "c")
		require.NoError(t, err)
		require.NoError(t, c.UnlockAll(again))
	})
}

// The one command is lost, its reply is lost, it comes too late, or the server refuses a part of it: nothing
// is left behind, and the locks are had all the same.
func TestLockAllWhoseAnswerIsLost(t *testing.T) {
	for name, bend := range map[string]relay{
		"request lost": loseRequest, "reply lost": loseReply, "silent request": swallow, "silent reply": swallowReply,
		"late": slow(3*time.Second, 0),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				tap := b.tap()
				c, other := newClient(t, tap), b.client()
				tap.on("acquire_all", bend)
				held, err := c.LockAll(t.Context(), "a", "b")
				require.NoError(t, err)
				require.NoError(t, held.Err())
				require.NoError(t, c.UnlockAll(held))
				for _, key := range []string{"a", "b"} {
					short, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := other.Mutex(key).LockContext(short)
					require.NoError(t, err, "nothing is left of %s", key)
				}
			})
		})
	}
}

// The context ends while the one command is under way.
func TestLockAllGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		c, other := newClient(t, tap), b.client()
		ctx, cancel := context.WithCancel(t.Context())
		tap.on("acquire_all", func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
			r := run()
			cancel()
			time.Sleep(time.Millisecond)
			return r
		})
		_, err := c.LockAll(ctx, "a", "b")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		time.Sleep(3 * time.Second) // until no lost request can be run any more
		for _, key := range []string{"a", "b"} {
			require.True(t, other.Mutex(key).TryLock(), key)
		}
	})
}

func TestLockAllRefuses(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		_, err := c.LockAll(t.Context())
		require.ErrorIs(t, err, ErrInvalidKey)
		_, err = c.LockAll(t.Context(), "a", " ")
		require.ErrorIs(t, err, ErrInvalidKey)
		require.True(t, b.client().Mutex("a").TryLock(), "nothing was locked")

		held, err := c.LockAll(t.Context(), "b", "c")
		require.NoError(t, err)
		_, err = c.LockAll(held, "c", "d")
		require.ErrorIs(t, err, ErrDeadlock)
		require.ErrorIs(t, c.UnlockAll(t.Context()), ErrNotLocked)
		require.ErrorIs(t, b.client().UnlockAll(held), ErrNotLocked)
		require.NoError(t, c.UnlockAll(held))

		reentrant := b.client(WithReentrancy())
		outer, err := reentrant.LockAll(t.Context(), "d", "e")
		require.NoError(t, err)
		inner, err := reentrant.LockAll(outer, "f", "e")
		require.NoError(t, err)
		require.NoError(t, reentrant.UnlockAll(inner))
		require.NoError(t, outer.Err())
		require.False(t, b.client().Mutex("e").TryLock())
		require.NoError(t, reentrant.UnlockAll(outer))
	})
}

// One of the keys has something else in it: the server's error is told, and the others are free.
func TestLockAllOverAnotherType(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c, other := on(t, s), on(t, s)
		for i, bad := range []string{"%s", "{%s}:queue", "{%s}:fence"} {
			a, b, z := fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("z", i)
			bad = fmt.Sprintf(bad, b)
			command(t, s, "HSET", bad, "x", "y")
			_, err := c.LockAll(t.Context(), z, b, a)
			requireReply(t, err, "WRONGTYPE")
			command(t, s, "DEL", bad)
			for _, key := range []string{a, b, z} {
				m := other.Mutex(key)
				unlock(t, m, lock(t, m))
				nothingLeft(t, s, key)
			}
		}
	})
}
