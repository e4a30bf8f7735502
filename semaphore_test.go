package valkeysync

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// weighted is the method set of golang.org/x/sync/semaphore.Weighted.
type weighted interface {
	Acquire(ctx context.Context, n int64) error
	TryAcquire(n int64) bool
	Release(n int64)
}

var _ weighted = (*Semaphore)(nil)

// acquire begins to acquire in the background, and writes name into the order once it has it.
func acquire(t *testing.T, s *Semaphore, n int64, order chan<- string, name string) {
	go func() {
		if s.Acquire(t.Context(), n) == nil {
			order <- name
		}
	}()
	synctest.Wait()
}

func TestSemaphoreCountsWeights(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s, other := b.client().Semaphore("permits", 5), b.client().Semaphore("permits", 5)
		require.NoError(t, s.Acquire(t.Context(), 2))
		require.True(t, other.TryAcquire(2))
		require.False(t, s.TryAcquire(2))
		require.False(t, other.TryAcquire(2))
		require.True(t, s.TryAcquire(1))
		require.False(t, other.TryAcquire(1))
		s.Release(3)
		require.False(t, s.TryAcquire(4))
		require.True(t, other.TryAcquire(3))
		other.Release(5)
		require.True(t, s.TryAcquire(5))
		require.False(t, other.TryAcquire(1))
		s.Release(5)
		require.False(t, b.Exists("permits"))
		require.False(t, b.Exists("{permits}:shared"))
	})
}

// Every weight up to the size, one after the other and all that fit together.
func TestSemaphoreAllocations(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		for size := int64(1); size <= 6; size++ {
			s := b.client().Semaphore("permits", size)
			for n := int64(1); n <= size; n++ {
				held := int64(0)
				for s.TryAcquire(n) {
					held += n
				}
				require.Equal(t, size/n*n, held, "weights of %d in %d", n, size)
				s.Release(held)
			}
			ctx, stop := context.WithTimeout(t.Context(), time.Second)
			err := s.Acquire(ctx, size+1)
			require.ErrorIs(t, err, ErrTooLarge)
			require.NoError(t, ctx.Err(), "at once")
			stop()
			require.False(t, s.TryAcquire(size+1))
			_, err = s.TryAcquireContext(t.Context(), size+1)
			require.ErrorIs(t, err, ErrTooLarge)
		}
	})
}

// Processes and their goroutines are served in the order in which they came, whatever they want.
func TestSemaphoreIsFirstComeFirstServed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		a, c, d := b.client().Semaphore("permits", 4), b.client().Semaphore("permits", 4), b.client().Semaphore("permits", 4)
		order := make(chan string, 9)
		require.True(t, a.TryAcquire(3))
		acquire(t, c, 4, order, "all")
		acquire(t, d, 1, order, "one")
		require.Empty(t, order, "there is one, but not for who came later")
		require.False(t, a.TryAcquire(1), "nor for a try")
		require.False(t, d.TryAcquire(1))
		a.Release(2)
		acquire(t, a, 2, order, "two")
		require.Empty(t, order)
		a.Release(1)
		require.Equal(t, []string{"all"}, drained(order))
		c.Release(1)
		require.Equal(t, []string{"one"}, drained(order))
		c.Release(1)
		require.Empty(t, drained(order))
		c.Release(2)
		require.Equal(t, []string{"two"}, drained(order))
		a.Release(2)
		d.Release(1)
	})
}

// As TestLargeAcquireDoesntStarve of x/sync: a stream of small ones, which always leaves some free.
func TestLargeAcquireDoesNotStarve(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const size = 4
		ctx, stop := context.WithCancel(t.Context())
		var over []<-chan error
		for i := range 2 * size {
			s := b.client().Semaphore("permits", size)
			over = append(over, async(func() error {
				for ctx.Err() == nil {
					if err := s.Acquire(t.Context(), 1); err != nil {
						return err
					}
					time.Sleep(time.Duration(5+i) * time.Millisecond)
					s.Release(1)
				}
				return nil
			}))
		}
		large := b.client().Semaphore("permits", size)
		for range 5 {
			time.Sleep(50 * time.Millisecond)
			start := time.Now()
			require.NoError(t, large.Acquire(t.Context(), size))
			require.Less(t, time.Since(start), 30*time.Millisecond, "no longer than all who came before")
			large.Release(size)
		}
		stop()
		for _, err := range over {
			require.NoError(t, <-err)
		}
	})
}

// As TestAllocCancelDoesntStarve of x/sync: a large one that gives up lets those behind it in, wherever
// they are.
func TestSemaphoreCancelDoesNotStarve(t *testing.T) {
	for _, behind := range []string{"the same process", "another process"} {
		t.Run(behind, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				s := b.client().Semaphore("permits", 10)
				other := s
				if behind == "another process" {
					other = b.client().Semaphore("permits", 10)
				}
				require.True(t, s.TryAcquire(1))
				ctx, cancel := context.WithCancel(t.Context())
				large := async(func() error { return s.Acquire(ctx, 10) })
				synctest.Wait()
				require.False(t, other.TryAcquire(1))
				small := async(func() error { return other.Acquire(t.Context(), 1) })
				synctest.Wait()
				require.Empty(t, small)
				start := time.Now()
				cancel()
				require.ErrorIs(t, <-large, context.Canceled)
				require.NoError(t, <-small)
				require.Zero(t, time.Since(start))
				other.Release(1)
				s.Release(1)
			})
		})
	}
}

// A canceled context gets nothing, even where there is something, and leaves nothing behind; also one that
// ends just when it is its turn.
func TestSemaphoreAcquireCanceled(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s, other := b.client().Semaphore("permits", 2), b.client().Semaphore("permits", 2)
		done, cancel := context.WithCancelCause(t.Context())
		why := errors.New("because")
		cancel(why)
		err := s.Acquire(done, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		_, err = s.TryAcquireContext(done, 1)
		require.ErrorIs(t, err, context.Canceled)
		require.Empty(t, b.Keys())

		require.True(t, s.TryAcquire(2))
		for range 20 {
			ctx, cancel := context.WithCancel(t.Context())
			got := async(func() error { return other.Acquire(ctx, 2) })
			synctest.Wait()
			go cancel()
			go s.Release(2)
			if err := <-got; err == nil {
				other.Release(2)
			} else {
				require.ErrorIs(t, err, context.Canceled)
				var wait *WaitError
				require.ErrorAs(t, err, &wait)
			}
			require.NoError(t, s.Acquire(t.Context(), 2))
		}
		s.Release(2)
		require.False(t, b.Exists("permits"))
		require.False(t, b.Exists("{permits}:queue"))
	})
}

// As TestWeightedTryAcquire and TestWeightedAcquire of x/sync.
func TestSemaphoreTryAndTimedAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s := b.client().Semaphore("permits", 2)
		timed := func(n int64) bool {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			return s.Acquire(ctx, n) == nil
		}
		for _, try := range []func(int64) bool{s.TryAcquire, timed} {
			require.NoError(t, s.Acquire(t.Context(), 1))
			require.True(t, try(1))
			require.False(t, try(1))
			s.Release(2)
			require.True(t, try(1))
			require.NoError(t, s.Acquire(t.Context(), 1))
			require.False(t, try(1))
			s.Release(2)
		}
	})
}

func TestSemaphoreMisuse(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		s := c.Semaphore("permits", 2)
		for name, misuse := range map[string]func(){
			"Release of what is not held":    func() { s.Release(1) },
			"Release of nothing":             func() { s.Release(0) },
			"Release of less than nothing":   func() { s.Release(-1) },
			"TryAcquire of nothing":          func() { s.TryAcquire(0) },
			"TryAcquire of less":             func() { s.TryAcquire(-1) },
			"TryAcquire of size 0":           func() { c.Semaphore("k", 0).TryAcquire(1) },
			"TryAcquire of a negative size":  func() { c.Semaphore("k", -1).TryAcquire(1) },
			"Release of an empty key":        func() { c.Semaphore("", 1).Release(1) },
			"TryAcquire of an empty key":     func() { c.Semaphore("", 1).TryAcquire(1) },
			"Release by another handle":      func() { require.True(t, s.TryAcquire(1)); defer s.Release(1); c.Semaphore("permits", 2).Release(1) },
			"Release of more than is held":   func() { require.True(t, s.TryAcquire(1)); defer s.Release(1); s.Release(2) },
			"TryAcquire where a Mutex is in": func() { c.Mutex("m").Lock(); c.Semaphore("m", 2).TryAcquire(1) },
		} {
			require.Panics(t, misuse, name)
		}
		require.Equal(t, int64(2), free(t, s))

		for _, n := range []int64{0, -1} {
			require.ErrorIs(t, s.Acquire(t.Context(), n), ErrInvalidWeight)
			_, err := s.TryAcquireContext(t.Context(), n)
			require.ErrorIs(t, err, ErrInvalidWeight)
			require.ErrorIs(t, s.ReleaseContext(t.Context(), n), ErrInvalidWeight)
			require.ErrorIs(t, s.Do(t.Context(), n, func(context.Context) error { t.Error("called"); return nil }), ErrInvalidWeight)
			err = c.Semaphore("k", n).Acquire(t.Context(), 1)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, "size must be at least 1")
		}
		require.ErrorIs(t, s.ReleaseContext(t.Context(), 1), ErrNotLocked)
	})
}

// What belonged to a lost lease counts as held until it is released, so that a late Release does not give
// back what another goroutine holds by now.
func TestReleaseOfLostPermits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		s := c.Semaphore("permits", 3)
		lost, err := s.AcquireContext(t.Context(), 2)
		require.NoError(t, err)
		require.NoError(t, c.ForceUnlock(t.Context(), "permits"))
		synctest.Wait()
		require.ErrorIs(t, context.Cause(lost), ErrLeaseLost)
		held, err := s.AcquireContext(t.Context(), 2)
		require.NoError(t, err, "it is usable again at once")
		s.Release(2)
		require.NoError(t, held.Err())
		require.ErrorIs(t, s.ReleaseContext(lost, 1), ErrNotLocked)
		require.NoError(t, s.ReleaseContext(held, 2))
		require.Panics(t, func() { s.Release(1) })

		lost, err = s.AcquireContext(t.Context(), 2)
		require.NoError(t, err)
		require.NoError(t, c.ForceUnlock(t.Context(), "permits"))
		synctest.Wait()
		require.ErrorIs(t, s.ReleaseContext(lost, 1), ErrLeaseLost)
		require.ErrorIs(t, s.ReleaseContext(lost, 1), ErrLeaseLost)
		require.ErrorIs(t, s.ReleaseContext(lost, 1), ErrNotLocked)
	})
}

// The permits of a process that died come back by its lease, those of the others stay; and whoever waits
// for them gets them then, not when the last lease ends.
func TestPermitsOfADeadProcessComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const lease = 3 * time.Second
		dead, _, line := b.lined(WithLease(lease), WithCrashDetection(0))
		living, waiting := b.client(WithLease(time.Hour)).Semaphore("permits", 5), b.client(WithLease(time.Hour)).Semaphore("permits", 5)
		require.True(t, dead.Semaphore("permits", 5).TryAcquire(3))
		require.True(t, living.TryAcquire(2))
		order := make(chan string, 1)
		line.cut(true, false)
		start := time.Now()
		acquire(t, waiting, 3, order, "in")
		<-order
		require.LessOrEqual(t, time.Since(start), lease+10*time.Millisecond)
		require.Equal(t, int64(0), free(t, living))
		living.Release(2)
		waiting.Release(3)
		require.Equal(t, int64(5), free(t, living))
	})
}

func TestSemaphoreDo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		s, other := b.client().Semaphore("permits", 3), b.client().Semaphore("permits", 3)
		why := errors.New("fn's own")
		require.ErrorIs(t, s.Do(t.Context(), 2, func(ctx context.Context) error {
			require.True(t, leaseOf(t, ctx).Valid())
			require.Equal(t, int64(1), free(t, other))
			return why
		}), why)
		require.Equal(t, int64(3), free(t, other))
		require.Panics(t, func() { _ = s.Do(t.Context(), 3, func(context.Context) error { panic("here") }) })
		require.Equal(t, int64(3), free(t, other))
	})
}

// Tokens rise from one acquisition to the next, over processes and parts released.
func TestTokensOfPermitsRise(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var last int64
		handles := []*Semaphore{b.client().Semaphore("permits", 5), b.client().Semaphore("permits", 5)}
		for i := range 20 {
			s := handles[i%2]
			ctx, err := s.AcquireContext(t.Context(), 2)
			require.NoError(t, err)
			require.Greater(t, leaseOf(t, ctx).Token(), last)
			last = leaseOf(t, ctx).Token()
			require.NoError(t, s.ReleaseContext(ctx, 1))
			require.Equal(t, last, leaseOf(t, ctx).Token())
			if i%4 == 3 {
				for _, s := range handles {
					s.Release(2)
				}
			}
		}
	})
}
