package valkeysync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Permits are given back in parts, together, at the same time, and over a network that loses what it can.

// free is how many permits another process finds.
func free(t testing.TB, s *Semaphore) (n int64) {
	t.Helper()
	for n = s.size; n > 0 && !s.TryAcquire(n); n-- {
	}
	if n > 0 {
		s.Release(n)
	}
	return n
}

func TestPermitsAreReleasedInPartsAndTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s, other := b.client().Semaphore("permits", 6), b.client().Semaphore("permits", 6)
		require.NoError(t, s.Acquire(t.Context(), 3))
		for left := range int64(3) {
			require.Equal(t, 3+left, free(t, other))
			s.Release(1)
		}
		require.Equal(t, int64(6), free(t, other))

		require.NoError(t, s.Acquire(t.Context(), 3))
		require.NoError(t, s.Acquire(t.Context(), 2))
		require.NoError(t, s.Acquire(t.Context(), 1))
		s.Release(2) // the one of 2
		s.Release(4) // the others
		require.Equal(t, int64(6), free(t, other))

		require.NoError(t, s.Acquire(t.Context(), 3))
		require.NoError(t, s.Acquire(t.Context(), 2))
		s.Release(4) // 3, and 1 of 2
		require.Equal(t, int64(5), free(t, other))
		require.Panics(t, func() { s.Release(2) })
		require.Equal(t, int64(5), free(t, other), "nothing was released")
		s.Release(1)
		require.False(t, b.Exists("permits"))
	})
}

// A context says which acquisition is meant, of which a part may be released.
func TestPermitsOfAContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s, other := b.client().Semaphore("permits", 6), b.client().Semaphore("permits", 6)
		first, err := s.AcquireContext(t.Context(), 3)
		require.NoError(t, err)
		second, err := s.AcquireContext(t.Context(), 2)
		require.NoError(t, err)
		require.NoError(t, s.ReleaseContext(second, 1))
		require.NoError(t, second.Err())
		require.ErrorIs(t, s.ReleaseContext(second, 2), ErrNotLocked, "1 is left of it")
		require.Equal(t, int64(2), free(t, other))
		require.NoError(t, s.ReleaseContext(second, 1))
		require.ErrorIs(t, second.Err(), context.Canceled)
		require.ErrorIs(t, s.ReleaseContext(second, 1), ErrNotLocked)
		require.NoError(t, first.Err())
		require.ErrorIs(t, other.ReleaseContext(first, 1), ErrNotLocked, "another Semaphore's")
		require.NoError(t, s.ReleaseContext(first, 3))
		require.Equal(t, int64(6), free(t, other))
	})
}

func TestConcurrentPartialReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const size = 50
		s, other := b.client().Semaphore("permits", size), b.client().Semaphore("permits", size)
		for range 4 {
			require.NoError(t, s.Acquire(t.Context(), 10))
			require.NoError(t, s.Acquire(t.Context(), 40))
			var wg sync.WaitGroup
			for i := range 15 {
				wg.Go(func() { s.Release(int64(1 + i%5)) })
			}
			wg.Wait()
			require.Equal(t, int64(45), free(t, other))
			for range 5 {
				wg.Go(func() { s.Release(1) })
			}
			wg.Wait()
			require.False(t, b.Exists("permits"))
		}
	})
}

// Whatever is lost of a partial release, and when it is done: it arrives, and the renewals that race with
// it do not undo it.
func TestPartialReleaseGetsThrough(t *testing.T) {
	for name, fault := range map[string]relay{
		"request lost":      loseRequest,
		"reply lost":        loseReply,
		"request swallowed": swallow,
		"reply swallowed":   swallowReply,
		"slow":              slow(time.Second, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				c := b.tap()
				s := newClient(t, c, WithLease(10*time.Second)).Semaphore("permits", 9)
				other := b.client().Semaphore("permits", 9)
				ctx, err := s.AcquireContext(t.Context(), 9)
				require.NoError(t, err)
				c.on("release", fault, fault)
				c.on("renew", nil, fault, nil, fault)
				_ = s.ReleaseContext(context.WithoutCancel(ctx), 2) // which need not wait for the end of it
				time.Sleep(3 * requestLimit)
				require.Equal(t, int64(2), free(t, other))
				time.Sleep(30 * time.Second)
				require.NoError(t, ctx.Err())
				require.Equal(t, int64(2), free(t, other))
				s.Release(3)
				require.Equal(t, int64(5), free(t, other))
				c.on("release", fault)
				s.Release(4)
				time.Sleep(2 * requestLimit)
				require.Equal(t, int64(9), free(t, other))
				require.False(t, b.Exists("permits"))
			})
		})
	}
}

// Who does not wait for the answer has released it all the same.
func TestPartialReleaseOutlivesItsContext(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.tap()
		s := newClient(t, c).Semaphore("permits", 9)
		other := b.client().Semaphore("permits", 9)
		require.NoError(t, s.Acquire(t.Context(), 9))
		c.on("release", swallow, loseRequest)
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		start := time.Now()
		require.ErrorIs(t, s.ReleaseContext(ctx, 4), context.DeadlineExceeded)
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		time.Sleep(3 * requestLimit)
		require.Equal(t, int64(4), free(t, other))
		require.Panics(t, func() { s.Release(6) })
		s.Release(5)
		require.Equal(t, int64(9), free(t, other))
	})
}

// A release of all that is left may be asked for again, as an unlock may, while the server has not
// confirmed it.
func TestReleaseMayBeWaitedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.tap()
		s := newClient(t, c).Semaphore("permits", 9)
		held, err := s.AcquireContext(t.Context(), 9)
		require.NoError(t, err)
		open := make(chan struct{})
		c.on("release", swallow, holdRequest(open)) // the second is sent in the background
		ctx, stop := context.WithTimeout(held, 50*time.Millisecond)
		defer stop()
		require.Error(t, s.ReleaseContext(ctx, 9))
		require.True(t, b.Exists("permits"))
		close(open)
		require.NoError(t, s.ReleaseContext(held, 9))
		require.False(t, b.Exists("permits"))
		require.ErrorIs(t, s.ReleaseContext(held, 9), ErrNotLocked)
	})
}

// A hold of which a part is just being released is not handed on at its old weight.
func TestTurnDoesNotHandOnWhatIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.tap()
		s := newClient(t, c, WithTurn(time.Second)).Semaphore("permits", 3)
		other := b.client().Semaphore("permits", 3)
		require.NoError(t, s.Acquire(t.Context(), 3))
		in := async(func() error { return s.Acquire(t.Context(), 3) })
		synctest.Wait()
		open := make(chan struct{})
		c.on("release", holdRequest(open))
		part := async(func() error { return s.ReleaseContext(t.Context(), 1) })
		synctest.Wait()
		rest := async(func() error { return s.ReleaseContext(t.Context(), 2) })
		synctest.Wait()
		close(open)
		require.NoError(t, <-part)
		require.NoError(t, <-rest)
		require.NoError(t, <-in)
		require.Equal(t, int64(0), free(t, other))
		s.Release(3)
		require.Equal(t, int64(3), free(t, other))
	})
}

// Parts released, permits acquired and leases lost at the same time, by many: nothing hangs, and in the end
// all is there again.
func TestPartialReleasesUnderLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const size = 12
		c := b.client(WithLease(time.Second))
		s := c.Semaphore("permits", size)
		var wg sync.WaitGroup
		for i := range 6 {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				for range 12 {
					n := 1 + rnd.Int64N(size/2)
					held, err := s.AcquireContext(t.Context(), n)
					if err != nil {
						panic(err)
					}
					for n > 0 {
						k := 1 + rnd.Int64N(n)
						time.Sleep(time.Duration(rnd.IntN(50)) * time.Millisecond)
						_ = s.ReleaseContext(context.WithoutCancel(held), k)
						n -= k
					}
				}
			})
		}
		wg.Go(func() {
			for range 6 {
				time.Sleep(200 * time.Millisecond)
				_ = c.ForceUnlock(context.Background(), "permits")
			}
		})
		wg.Wait()
		require.Equal(t, int64(size), free(t, b.client().Semaphore("permits", size)))
	})
}

// Told by hand: a partial release that comes after the release of the rest does not bring it back.
func TestLatePartialReleaseMakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "permits")
		e := p.entry("1")
		e.Kind, e.Mode, e.Weight = protocol.SemaphoreKind(5), protocol.Permit, 4
		held := p.acquire(e)
		require.Equal(t, protocol.Held, held.Outcome)
		value := e.Hold(held.Number, held.Since)
		part := func(weight int64) protocol.Reply {
			smaller := e
			smaller.Weight = weight
			return p.reply(p.Release(t.Context(), &p.keys, value, &smaller, protocol.Shrink, 0))
		}
		require.Equal(t, protocol.Held, part(2).Outcome)
		require.Equal(t, protocol.Held, part(3).Outcome, "an old one that comes late")
		st := p.standing()
		require.Len(t, st.Shared, 1)
		require.Equal(t, int64(2), protocol.ParseHolder(st.Shared[0].Value).Weight, fmt.Sprint(st))
		require.Equal(t, protocol.Released, p.reply(p.Release(t.Context(), &p.keys, value, nil, protocol.Queue, 0)).Outcome)
		require.Equal(t, protocol.LostIt, part(1).Outcome)
		require.Empty(t, p.standing().Shared)
	})
}
