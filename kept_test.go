package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// keeping are n Clients that linger, each with the mutex of one key, and the count of what they ask.
func keeping(t *testing.T, b *bubble, n int, opts ...Option) (mutexes []*Mutex, asked func() int) {
	t.Helper()
	var taps []*tap
	for range n {
		wire := b.tap()
		taps = append(taps, wire)
		c := newClient(t, wire, append([]Option{WithLinger(time.Second)}, opts...)...)
		mutexes = append(mutexes, c.Mutex("k"))
	}
	return mutexes, func() (sum int) {
		for _, wire := range taps {
			sum += wire.total()
		}
		return sum
	}
}

func TestAKeptPlaceMakesALockCostOneCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const processes, each = 4, 50
		mutexes, asked := keeping(t, b, processes)
		var order, sent []int // guarded by the lock
		done := make(chan struct{})
		for i, m := range mutexes {
			go func() {
				for range each {
					m.Lock()
					time.Sleep(time.Millisecond) // the others have asked by then
					order, sent = append(order, i), append(sent, asked())
					m.Unlock()
				}
				done <- struct{}{}
			}()
			synctest.Wait()
		}
		for range mutexes {
			<-done
		}
		for i, who := range order {
			require.Equal(t, i%processes, who, "the order is that of the queue")
		}
		// At first everybody asks, and at the end a place is given up by whoever locks no more.
		from, to := 2*processes, processes*(each-1)
		require.Equal(t, to-from, sent[to]-sent[from])
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, b.left("k"))
	})
}

// kept has a's release keep a place behind b, who holds the lock then.
func kept(t *testing.T, a, b *Mutex) {
	t.Helper()
	a.Lock()
	got := locking(b)
	synctest.Wait()
	a.Unlock()
	<-got
	synctest.Wait()
	st, err := a.c.Status(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, st.Waiting)
}

func TestAKeptPlaceThatNobodyWantsIsPassedOn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, asked := keeping(t, b, 2)
		third, alsoAsked := keeping(t, b, 1, WithLinger(0))
		kept(t, m[0], m[1])
		got := locking(third[0])
		synctest.Wait()
		before := asked() + alsoAsked()
		start := time.Now()
		m[1].Unlock()
		require.Zero(t, (<-got).Sub(start), "at once")
		synctest.Wait()
		require.Equal(t, 2, asked()+alsoAsked()-before, "the release, and one that passes it on")
		third[0].Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, b.left("k"))
	})
}

func TestAKeptPlaceIsGivenUpAfterTheLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, _ := keeping(t, b, 2)
		start := time.Now()
		kept(t, m[0], m[1])
		require.Zero(t, time.Since(start))
		time.Sleep(999 * time.Millisecond)
		require.True(t, b.Exists("{k}:queue"))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.False(t, b.Exists("{k}:queue"))
		m[1].Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Empty(t, b.left("k"))
	})
}

// Nobody waits any more when the kept place has its turn: it is the lock that is kept then, for the rest of the
// time.
func TestAKeptPlaceWhoseTurnComesLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, asked := keeping(t, b, 1)
		other, _ := keeping(t, b, 1, WithLinger(0))
		kept(t, m[0], other[0])
		time.Sleep(400 * time.Millisecond)
		other[0].Unlock()
		synctest.Wait()
		before := asked()
		require.True(t, b.Exists("k"))
		m[0].Lock()
		require.Equal(t, before, asked(), "it was there")
		m[0].Unlock()

		kept(t, m[0], other[0])
		time.Sleep(400 * time.Millisecond)
		other[0].Unlock()
		time.Sleep(599 * time.Millisecond)
		require.True(t, b.Exists("k"))
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Empty(t, b.left("k"), "a linger after the unlock, and no longer")
	})
}

func TestAKeptPlaceIsForWhoeverComesFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, _ := keeping(t, b, 2)
		kept(t, m[0], m[1])
		require.False(t, m[0].TryLock(), "who only tries does not wait")
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := m[0].LockContext(ctx)
			gaveUp <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		synctest.Wait()
		require.False(t, b.Exists("{k}:queue"), "a wait that is given up gives the place up")
		m[1].Unlock()
	})
}

// Another lease is another request: the place that was kept does not fit.
func TestAKeptPlaceThatDoesNotFitIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, _ := keeping(t, b, 2)
		kept(t, m[0], m[1])
		long := m[0].c.Mutex("k", WithLease(time.Minute))
		got := locking(long)
		synctest.Wait()
		waiting, err := b.ZMembers("{k}:queue")
		require.NoError(t, err)
		require.Len(t, waiting, 1)
		require.Contains(t, waiting[0], " 60000 ")
		m[1].Unlock()
		<-got
		long.Unlock()
	})
}

func TestAKeptPlaceEndsWithItsClient(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m, _ := keeping(t, b, 2)
		kept(t, m[0], m[1])
		require.NoError(t, m[0].c.Close())
		require.False(t, b.Exists("{k}:queue"))
		m[1].Unlock()
	})
}

// left is what the server has of a key besides its fence.
func (b *bubble) left(key string) (left []string) {
	for _, name := range b.Keys() {
		if name != "{"+key+"}:fence" {
			left = append(left, name)
		}
	}
	return left
}
