package valkeysync

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Who goes in when: the policy of sync.RWMutex, over processes.

func TestWaitingWriterHoldsOffNewReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		a, other := b.client().RWMutex("config"), b.client().RWMutex("config")
		third := b.client().RWMutex("config")
		order := make(chan string, 9)
		a.RLock()
		require.True(t, other.TryRLock(), "readers do not exclude each other")
		wlock(t, third, order, "writer")

		require.False(t, a.TryRLock(), "nor does the process that reads already get more readers")
		require.False(t, other.TryRLock())
		require.False(t, third.TryRLock())
		rlock(t, a, order, "new reader here")
		rlock(t, other, order, "new reader there")
		rlock(t, third, order, "new reader beside the writer")
		time.Sleep(time.Minute)
		require.Empty(t, drained(order))

		a.RUnlock()
		require.Empty(t, drained(order), "one reader is left")
		other.RUnlock()
		require.Equal(t, []string{"writer"}, drained(order))
		third.Unlock()
		require.Equal(t, []string{"new reader beside the writer", "new reader here", "new reader there"}, drained(order))
	})
}

// A process that reads learns of a writer that began to wait before it got in.
func TestReadersLetInBetweenWritersAdmitNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		first, reader, second := b.client().RWMutex("config"), b.client().RWMutex("config"), b.client().RWMutex("config")
		order := make(chan string, 9)
		first.Lock()
		rlock(t, reader, order, "reader")
		wlock(t, second, order, "writer")
		first.Unlock()
		require.Equal(t, []string{"reader"}, drained(order))
		require.False(t, reader.TryRLock())
		reader.RUnlock()
		require.Equal(t, []string{"writer"}, drained(order))
		second.Unlock()
	})
}

func TestReadersGoInTogetherWhenAWriterLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const readers = 20
		order := make(chan string, readers+4)
		tap := b.tap()
		writer := newClient(t, tap, WithLease(time.Hour)).RWMutex("config")
		writer.Lock()
		var taps []*tapped
		for i := range readers {
			c := b.tap()
			rw := newClient(t, c, WithLease(time.Hour)).RWMutex("config")
			taps = append(taps, &tapped{c, rw})
			if i == readers/2 {
				wlock(t, b.client(WithLease(time.Hour)).RWMutex("config"), order, "writer in the middle")
			}
			rlock(t, rw, order, "reader")
		}
		require.Empty(t, drained(order))
		sent := func() (n int) {
			for _, c := range taps {
				n += c.total()
			}
			return n + tap.total()
		}
		before := sent()
		writer.Unlock()
		in := drained(order)
		require.Len(t, in, readers)
		require.NotContains(t, in, "writer in the middle")
		require.Equal(t, 1, sent()-before, "one release lets them all in")

		for _, c := range taps {
			c.rw.RUnlock()
		}
		require.Equal(t, []string{"writer in the middle"}, drained(order))
	})
}

type tapped struct {
	*tap
	rw *RWMutex
}

// Readers and writers of one process wait apart: its readers go in with those of others.
func TestReadersDoNotWaitForTheNextWriterOfTheirProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		a, other := b.client().RWMutex("config"), b.client().RWMutex("config")
		order := make(chan string, 9)
		a.Lock()
		wlock(t, a, order, "second writer here")
		rlock(t, a, order, "reader here")
		wlock(t, other, order, "writer there")
		rlock(t, other, order, "reader there")
		rlock(t, other, order, "reader there")

		a.Unlock()
		require.Equal(t, []string{"reader here", "reader there", "reader there"}, drained(order))
		a.RUnlock()
		other.RUnlock()
		rlock(t, a, order, "late reader here")
		require.Empty(t, drained(order), "a late reader does not go before the writers")
		other.RUnlock()
		require.Equal(t, []string{"writer there"}, drained(order))
		other.Unlock()
		require.Equal(t, []string{"late reader here"}, drained(order))
		a.RUnlock()
		require.Equal(t, []string{"second writer here"}, drained(order))
		a.Unlock()
	})
}

// A stream of readers does not starve a writer, nor a stream of writers a reader, in one process or two.
func TestNeitherReadersNorWritersStarve(t *testing.T) {
	for _, processes := range []int{1, 3} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				const hold = 10 * time.Millisecond
				var locks []*RWMutex
				for range processes {
					locks = append(locks, b.client().RWMutex("config"))
				}
				for _, stream := range []struct{ lock, unlock, once func(*RWMutex) }{
					{(*RWMutex).RLock, (*RWMutex).RUnlock, func(rw *RWMutex) { rw.Lock(); rw.Unlock() }},
					{(*RWMutex).Lock, (*RWMutex).Unlock, func(rw *RWMutex) { rw.RLock(); rw.RUnlock() }},
				} {
					ctx, stop := context.WithCancel(t.Context())
					var over []<-chan error
					for i := range 6 {
						rw := locks[i%processes]
						over = append(over, async(func() error {
							for ctx.Err() == nil {
								stream.lock(rw)
								time.Sleep(hold)
								stream.unlock(rw)
							}
							return nil
						}))
						time.Sleep(hold / 7) // never all at once
					}
					for _, rw := range locks {
						start := time.Now()
						stream.once(rw)
						require.Less(t, time.Since(start), 7*hold, "no longer than all six once")
					}
					stop()
					for _, done := range over {
						<-done
					}
				}
			})
		})
	}
}

// A reader that gives up, and one whose process dies, leave the others their places.
func TestReadersThatLeaveTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		a, other, third := b.client().RWMutex("config"), b.client().RWMutex("config"), b.client().RWMutex("config")
		order := make(chan string, 9)
		a.RLock()
		ctx, stop := context.WithCancel(t.Context())
		gone := async(func() error { _, err := other.LockContext(ctx); return err })
		synctest.Wait()
		rlock(t, third, order, "reader")
		rlock(t, a, order, "reader of the process that holds")
		require.Empty(t, drained(order))
		stop()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.Equal(t, []string{"reader", "reader of the process that holds"}, drained(order), "nobody waits for the lock any more")
		require.True(t, other.TryRLock())
		require.False(t, other.TryLock())
	})
}

// Tries that happen at the same moment do not stand in each other's way.
func TestTriesOfOneProcessDoNotHinderEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const n = 10
		c := b.client()
		rw, sem := c.RWMutex("config"), c.Semaphore("permits", n)
		var in []<-chan error
		for range n {
			in = append(in, async(func() error { _, err := rw.TryRLockContext(t.Context()); return err }))
			in = append(in, async(func() error { _, err := sem.TryAcquireContext(t.Context(), 1); return err }))
		}
		for _, err := range in {
			require.NoError(t, <-err)
		}
		require.False(t, sem.TryAcquire(1))
		require.False(t, rw.TryLock())
		for range n {
			rw.RUnlock()
		}
		require.True(t, rw.TryLock())

		// An acquire that is under way is no reason either, as long as there is room.
		sem.Release(n)
		blocked := async(func() error { return sem.Acquire(t.Context(), 1) })
		tried := async(func() error { _, err := sem.TryAcquireContext(t.Context(), 1); return err })
		require.NoError(t, <-blocked)
		require.NoError(t, <-tried)
	})
}

// What lingers here is given back before a try asks for something else.
func TestTryOfSomethingElseThanWhatLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client(WithLinger(4 * time.Second))
		rw, sem := c.RWMutex("config"), c.Semaphore("permits", 3)
		rw.RLock()
		rw.RUnlock()
		require.True(t, rw.TryLock())
		rw.Unlock()
		require.True(t, rw.TryRLock())
		rw.RUnlock()
		for range 3 {
			require.True(t, sem.TryAcquire(1))
		}
		sem.Release(3)
		require.True(t, sem.TryAcquire(3))
		sem.Release(3)

		// Where another has it meanwhile, a try does not begin to wait.
		other := b.client().RWMutex("config")
		rw.RLock()
		rw.RUnlock()
		require.True(t, other.TryRLock())
		start := time.Now()
		require.False(t, rw.TryLock())
		require.Less(t, time.Since(start), time.Second)
		other.RUnlock()
	})
}

// A try beside a wait that the server does not answer ends in its own time.
func TestTryDoesNotWaitForWhoWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		rw := b.client().RWMutex("config")
		b.away()
		order := make(chan string, 1)
		rlock(t, rw, order, "reader")
		start := time.Now()
		_, err := rw.TryRLockContext(t.Context())
		require.Error(t, err)
		require.Less(t, time.Since(start), 2*requestLimit)
		b.SetError("")
		require.Equal(t, "reader", <-order)
		rw.RUnlock()
	})
}

func TestTryAndClose(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		b.away()
		tried := async(func() error { _, err := c.RWMutex("config").TryRLockContext(t.Context()); return err })
		synctest.Wait()
		closed := async(c.Close)
		require.ErrorIs(t, <-tried, ErrClosed)
		b.SetError("")
		require.NoError(t, <-closed)
		require.True(t, b.client().RWMutex("config").TryLock())
	})
}

// A process whose writer loses the lock asks for its readers first, and for its next writer once they were
// answered: two requests at once may reach the server in any order.
func TestReadersAskBeforeTheNextWriterWhenTheLockIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		rw := newClient(t, tap).RWMutex("config")
		order := make(chan string, 9)
		held, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		wlock(t, rw, order, "writer")
		rlock(t, rw, order, "reader")
		before, open := tap.count("acquire"), make(chan struct{})
		tap.always("acquire", holdRequest(open))
		require.NoError(t, b.client().ForceUnlock(t.Context(), "config"))
		synctest.Wait()
		require.ErrorIs(t, context.Cause(held), ErrLeaseLost)
		require.Equal(t, 1, tap.count("acquire")-before, "one request at a time")
		close(open)
		require.Equal(t, []string{"reader"}, drained(order))
		rw.RUnlock()
		require.Equal(t, []string{"writer"}, drained(order))
		rw.Unlock()
	})
}
