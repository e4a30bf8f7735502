package valkeysync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// A semaphore whose size is changed while it is in use.

func TestResizeToMore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		old, bigger := b.client().Semaphore("api", 2), b.client().Semaphore("api", 5)
		held, err := old.AcquireContext(t.Context(), 2)
		require.NoError(t, err)
		waits := async(func() error { return old.Acquire(t.Context(), 1) })
		synctest.Wait()
		_, err = bigger.TryAcquireContext(t.Context(), 1)
		require.ErrorIs(t, err, ErrMismatch)

		start := time.Now()
		require.NoError(t, bigger.Resize(t.Context()))
		err = <-waits
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "in use by a Semaphore of size 5, this is a Semaphore of size 2")
		require.ErrorIs(t, old.Acquire(t.Context(), 1), ErrMismatch)
		_, err = old.TryAcquireContext(t.Context(), 1)
		require.ErrorIs(t, err, ErrMismatch)
		require.False(t, old.TryAcquire(1), "which is no reason to panic")
		require.Zero(t, time.Since(start), "all at once")

		require.Equal(t, int64(3), free(t, bigger))
		require.True(t, bigger.TryAcquire(3))
		last := async(func() error { return bigger.Acquire(t.Context(), 2) })
		time.Sleep(time.Minute)
		require.NoError(t, held.Err(), "who holds goes on")
		require.Empty(t, last)
		require.NoError(t, old.ReleaseContext(held, 1))
		synctest.Wait()
		require.Empty(t, last)
		require.NoError(t, old.ReleaseContext(held, 1))
		require.NoError(t, <-last)
		require.False(t, bigger.TryAcquire(1))
		bigger.Release(5)
	})
}

func TestResizeToLess(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		old, smaller := b.client().Semaphore("api", 10), b.client().Semaphore("api", 4)
		require.NoError(t, old.Acquire(t.Context(), 3))
		require.NoError(t, old.Acquire(t.Context(), 3))
		large := async(func() error { return old.Acquire(t.Context(), 9) }) // more than the new size has
		synctest.Wait()
		require.NoError(t, smaller.Resize(t.Context()))
		require.ErrorIs(t, <-large, ErrMismatch)

		first := async(func() error { return smaller.Acquire(t.Context(), 1) })
		second := async(func() error { synctest.Wait(); return smaller.Acquire(t.Context(), 2) })
		time.Sleep(time.Minute)
		require.Empty(t, first)
		old.Release(1) // 5 are left
		old.Release(1) // 4
		time.Sleep(time.Minute)
		require.Empty(t, first, "as many are held as there are")
		old.Release(1)
		require.NoError(t, <-first)
		old.Release(1)
		synctest.Wait()
		require.Empty(t, second)
		old.Release(1)
		require.NoError(t, <-second)
		require.Equal(t, int64(0), free(t, smaller))
		old.Release(1)
		smaller.Release(3)
	})
}

// A process of the old size does not go on by handing its permits from one goroutine to the next.
func TestResizeEndsTheTurnOfTheOldSize(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				c := b.tap()
				old := newClient(t, c, WithTurn(5*time.Millisecond), WithLinger(time.Second)).Semaphore("api", 4)
				require.True(t, b.client().Semaphore("api", 4).TryAcquire(1)) // the key is never free
				if !told {
					c.keepBack(func(m protocol.Message) bool { return m.Verb == protocol.Waits || m.Verb == protocol.Dropped })
				}
				ends := make(chan error, 5)
				for range 5 {
					go func() {
						for {
							if err := old.Acquire(t.Context(), 1); err != nil {
								ends <- err
								return
							}
							time.Sleep(2 * time.Millisecond)
							old.Release(1)
						}
					}()
				}
				time.Sleep(time.Second)
				require.Empty(t, ends)
				require.NoError(t, b.client().Semaphore("api", 2).Resize(t.Context()))
				limit := time.After(30 * time.Second)
				if told {
					limit = time.After(20 * time.Millisecond)
				}
				for range 5 {
					select {
					case err := <-ends:
						require.ErrorIs(t, err, ErrMismatch)
					case <-limit:
						t.Fatal("the old size goes on")
					}
				}
			})
		})
	}
}

func TestResizeWhereThereIsNothingToDo(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		s := c.Semaphore("api", 4)
		require.NoError(t, s.Resize(t.Context()), "free")
		require.Empty(t, b.Keys())
		require.NoError(t, s.Acquire(t.Context(), 4))
		wait := async(func() error { return s.Acquire(t.Context(), 1) })
		synctest.Wait()
		for range 2 {
			require.NoError(t, s.Resize(t.Context()), "the same size")
		}
		synctest.Wait()
		require.Empty(t, wait)
		s.Release(4)
		require.NoError(t, <-wait)
		s.Release(1)

		// With nobody left, the next one who comes says the size.
		require.NoError(t, c.Semaphore("api", 9).Resize(t.Context()))
		require.True(t, s.TryAcquire(4))
		require.NoError(t, c.Semaphore("api", 9).Resize(t.Context()))
		require.True(t, c.Semaphore("api", 9).TryAcquire(5))
		require.False(t, c.Semaphore("api", 9).TryAcquire(1))
	})
}

func TestResizeRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		m, rw, s := c.Mutex("mutex"), c.RWMutex("rw"), c.Semaphore("other", 3)
		m.Lock()
		require.ErrorContains(t, c.Semaphore("mutex", 3).Resize(t.Context()), "in use by a Mutex, this is a Semaphore of size 3")
		rw.RLock()
		require.ErrorIs(t, c.Semaphore("rw", 3).Resize(t.Context()), ErrMismatch)
		rw.RUnlock()
		require.NoError(t, b.Set("rw", "an operator"))
		wait := async(func() error { _, err := rw.LockContext(t.Context()); return err })
		synctest.Wait()
		require.ErrorIs(t, c.Semaphore("rw", 3).Resize(t.Context()), ErrMismatch, "they wait for it")
		b.Del("rw")
		require.NoError(t, <-wait)

		require.ErrorIs(t, c.Semaphore("", 3).Resize(t.Context()), ErrInvalidKey)
		require.ErrorIs(t, c.Semaphore("api", 0).Resize(t.Context()), ErrInvalidOption)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		require.ErrorIs(t, s.Resize(ctx), context.Canceled)
		require.NoError(t, c.Close())
		require.ErrorIs(t, s.Resize(t.Context()), ErrClosed)
	})
}

// Behind a stranger on the key there is nobody who holds by a size, but those who wait do so by one.
func TestResizeBehindAForeignHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		old, bigger := b.client().Semaphore("api", 2), b.client().Semaphore("api", 5)
		require.NoError(t, b.Set("api", "an operator"))
		gone := async(func() error { return old.Acquire(t.Context(), 2) })
		synctest.Wait()
		require.ErrorIs(t, bigger.Acquire(t.Context(), 5), ErrMismatch)
		require.NoError(t, bigger.Resize(t.Context()))
		require.ErrorIs(t, <-gone, ErrMismatch, "the key is free for the new size")
		wait := async(func() error { return bigger.Acquire(t.Context(), 5) })
		synctest.Wait()
		require.ErrorIs(t, old.Acquire(t.Context(), 1), ErrMismatch)
		b.Del("api")
		require.NoError(t, <-wait)
	})
}

// However holds, waits and sizes come after each other: what is held grows only within the size in force,
// and only by it.
func TestResizeAtAnyTimeKeepsTheLimit(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				rnd := rand.New(rand.NewPCG(7, seed))
				sizes := []int64{2, 3, 5, 8}
				clients := []*Client{
					b.client(WithLease(2 * time.Second)), b.client(WithTurn(time.Millisecond)), b.client(WithLinger(20 * time.Millisecond)),
				}
				watch := b.mute("watch", "api")
				ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
				defer stop()
				var over []<-chan error
				for range 8 {
					s := clients[rnd.IntN(len(clients))].Semaphore("api", sizes[rnd.IntN(len(sizes))])
					mine := rand.New(rand.NewPCG(rnd.Uint64(), 1))
					over = append(over, async(func() error {
						for ctx.Err() == nil {
							time.Sleep(time.Duration(mine.IntN(30)) * time.Millisecond)
							n := 1 + mine.Int64N(s.size)
							if mine.IntN(12) == 0 {
								if err := s.Resize(t.Context()); err != nil {
									return err
								}
							}
							held, err := s.AcquireContext(ctx, n)
							if err != nil {
								continue // another size is in force, or it is over
							}
							for n > 0 {
								time.Sleep(time.Duration(mine.IntN(30)) * time.Millisecond)
								k := 1 + mine.Int64N(n)
								if err := s.ReleaseContext(context.WithoutCancel(held), k); err != nil {
									return err
								}
								n -= k
							}
						}
						return nil
					}))
				}
				var before, grown int64
				seen := map[int64]bool{}
				for ctx.Err() == nil {
					time.Sleep(5 * time.Millisecond)
					synctest.Wait()
					var held int64
					limit := before
					for _, m := range watch.standing().Shared {
						h := protocol.ParseHolder(m.Value)
						held += h.Weight
						if !seen[h.Number] { // its kind names the size that was in force when it was granted
							limit = max(limit, h.Kind.Size())
							seen[h.Number] = true
							grown++
						}
					}
					require.LessOrEqual(t, held, limit)
					before = held
				}
				for _, err := range over {
					require.NoError(t, <-err)
				}
				require.Greater(t, grown, int64(30), "and it was used")
				st, err := clients[0].Status(t.Context(), "api")
				require.NoError(t, err)
				time.Sleep(time.Second) // what lingers
				require.Empty(t, watch.standing().Shared, "%+v", st)
			})
		})
	}
}
