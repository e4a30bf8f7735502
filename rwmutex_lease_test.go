package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// What becomes of leases where several read.

// timed locks for writing in the background, and receives the time when it has it.
func timed(rw *RWMutex) <-chan time.Time {
	at := make(chan time.Time, 1)
	go func() {
		rw.Lock()
		at <- time.Now()
	}()
	return at
}

func TestDeadReaderCutsNoOthersLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		long, _, longLine := b.lined(WithLease(5*time.Second), WithCrashDetection(0))
		short, _, shortLine := b.lined(WithLease(time.Second), WithCrashDetection(0))
		start := time.Now()
		long.RWMutex("config").RLock()
		short.RWMutex("config").RLock()
		in := timed(b.client(WithLease(time.Minute)).RWMutex("config"))
		shortLine.cut(true, false)
		time.Sleep(3 * time.Second)
		require.Empty(t, in, "the short one is gone, the long one is not")
		longLine.cut(true, false)
		require.WithinDuration(t, start.Add(3*time.Second+5*time.Second), <-in, 2*time.Second)
	})
}

// Nobody renews for the dead: their leases end while others go on reading.
func TestLivingReaderRenewsForNobodyElse(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		dead, _, line := b.lined(WithLease(5*time.Second), WithCrashDetection(0))
		living := b.client(WithLease(5 * time.Second))
		dead.RWMutex("config").RLock()
		rw := living.RWMutex("config")
		rw.RLock()
		line.cut(true, false)
		time.Sleep(time.Minute)
		st, err := living.Status(t.Context(), "config")
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		require.Equal(t, living.id, st.Holders[0].Client)
		in := timed(b.client().RWMutex("config"))
		synctest.Wait()
		rw.RUnlock()
		synctest.Wait()
		require.Len(t, in, 1)
	})
}

func TestReadersAreRenewedEachOnItsOwn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const processes, each, lease = 20, 5, 3 * time.Second
		var readers []context.Context
		for range processes {
			rw := b.client(WithLease(lease)).RWMutex("config")
			for range each {
				ctx, err := rw.RLockContext(t.Context())
				require.NoError(t, err)
				readers = append(readers, ctx)
			}
		}
		time.Sleep(3 * lease)
		for _, ctx := range readers {
			require.NoError(t, ctx.Err())
			require.True(t, leaseOf(t, ctx).Valid())
		}
	})
}

// However many read in a process, one hold is renewed; and none after the last has left.
func TestRenewalEndsWithTheLastReader(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const lease = 3 * time.Second
		c := b.tap()
		rw := newClient(t, c, WithLease(lease)).RWMutex("config")
		for range 5 {
			rw.RLock()
		}
		time.Sleep(10*lease + lease/6) // not just when a renewal is due
		require.InDelta(t, 30, c.count("renew"), 1)
		for range 4 {
			rw.RUnlock()
		}
		renewed := c.count("renew")
		time.Sleep(lease)
		require.Greater(t, c.count("renew"), renewed, "one is left")
		rw.RUnlock()
		sent := c.total()
		time.Sleep(10 * lease)
		require.Equal(t, sent, c.total(), "not one request more")
		require.False(t, b.Exists("config"))
	})
}

// Handles of one process that ask for different leases share the longest.
func TestSharedReadHoldHasTheLongestLease(t *testing.T) {
	for _, shortFirst := range []bool{true, false} {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client()
			short, long := c.RWMutex("config", WithLease(time.Second)), c.RWMutex("config", WithLease(30*time.Second))
			if shortFirst {
				short.RLock()
				long.RLock()
			} else {
				long.RLock()
				short.RLock()
			}
			synctest.Wait()
			require.Greater(t, b.TTL("config"), 25*time.Second)
			short.RUnlock()
			time.Sleep(time.Minute)
			require.Greater(t, b.TTL("config"), 15*time.Second)
			long.RUnlock()
			require.False(t, b.Exists("config"))
		})
	}
}

// A reader that hangs loses its lease by WithMaxHold. Those who come and go beside it do not.
func TestMaxHoldIsOfEachReader(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const limit, lease = time.Minute, 6 * time.Second
		rw := b.client(WithLease(lease), WithMaxHold(limit)).RWMutex("config")
		start := time.Now()
		hung, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		var at time.Time
		context.AfterFunc(hung, func() { at = time.Now() })
		held, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		for range 60 { // somebody reads all the time, and nobody for long
			time.Sleep(5 * time.Second)
			next, err := rw.RLockContext(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.Err())
			require.NoError(t, rw.RUnlockContext(held))
			held = next
		}
		var lost *LostError
		require.ErrorAs(t, context.Cause(hung), &lost)
		require.Equal(t, CauseMaxHold, lost.Cause)
		require.WithinDuration(t, start.Add(limit), at, lease)
		require.ErrorIs(t, rw.RUnlockContext(hung), ErrLeaseLost)
		require.NoError(t, rw.RUnlockContext(held))
		require.True(t, b.client().RWMutex("config").TryLock())
	})
}

// The hold whose readers all hang is not joined any more, and ends.
func TestMaxHoldOfAllReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const limit, lease = time.Minute, 6 * time.Second
		rw := b.client(WithLease(lease), WithMaxHold(limit)).RWMutex("config")
		hung, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(limit + time.Second)
		fresh, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		<-hung.Done()
		time.Sleep(limit / 2)
		require.NoError(t, fresh.Err())
		require.NoError(t, rw.RUnlockContext(fresh))
	})
}

func TestEachHandleIsToldOfItsOwnLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		told := make(chan string, 9)
		handle := func(name string) *RWMutex {
			return c.RWMutex("config", WithOnLost(func(string, error) { told <- name }))
		}
		one, two := handle("one"), handle("two")
		one.RLock()
		two.RLock()
		two.RLock()
		require.NoError(t, c.ForceUnlock(t.Context(), "config"))
		require.Equal(t, []string{"one", "two", "two"}, drained(told))
	})
}

// Tokens of writers rise over all who held before, readers too; no reader's is lower than that of a writer
// before it. Every acquisition has its own.
func TestTokensOfReadersAndWriters(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var highest, writer int64
		seen := map[int64]bool{}
		note := func(ctx context.Context, above int64) {
			token := leaseOf(t, ctx).Token()
			require.Greater(t, token, above)
			require.False(t, seen[token])
			seen[token] = true
			highest = max(highest, token)
		}
		locks := []*RWMutex{b.client().RWMutex("config"), b.client().RWMutex("config")}
		for range 3 {
			for _, rw := range locks {
				w, err := rw.LockContext(t.Context())
				require.NoError(t, err)
				note(w, highest)
				writer = highest
				r, err := rw.Downgrade(w)
				require.NoError(t, err)
				note(r, writer)
				for range 10 {
					_, err := locks[0].RLockContext(t.Context())
					require.NoError(t, err)
				}
				r, err = locks[1].RLockContext(t.Context())
				require.NoError(t, err)
				note(r, writer)
				for _, rw := range locks {
					for rw.RUnlockContext(t.Context()) == nil {
					}
				}
			}
			b.FlushAll()
			time.Sleep(time.Second) // the clock moves on, which is what tokens rise by then
		}
		for range maxHanded + 10 { // more than one hold can tell apart
			r, err := locks[0].RLockContext(t.Context())
			require.NoError(t, err)
			note(r, highest)
		}
	})
}
