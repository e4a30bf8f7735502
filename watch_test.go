package valkeysync

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// seen is what a Watch told, one after the other.
type seen struct {
	t    *testing.T
	next func() (Status, error, bool)
}

func watching(t *testing.T, c *Client, key string) *seen {
	t.Helper()
	next, stop := iter.Pull2(c.Watch(t.Context(), key))
	t.Cleanup(stop)
	return &seen{t, next}
}

// until reads on until what was told is so.
func (s *seen) until(what string, so func(Status) bool) (last Status) {
	s.t.Helper()
	within(s.t, soon, what, func() {
		for {
			st, err, ok := s.next()
			if !ok || err != nil {
				s.t.Errorf("%s: %v %v", what, ok, err)
				return
			}
			if so(st) {
				last = st
				return
			}
		}
	})
	return last
}

func held(by string, waiting int) func(Status) bool {
	return func(s Status) bool {
		return s.State == StateHeld && s.Holders[0].Name == by && s.Waiting == waiting && len(s.Queue) == waiting
	}
}

func isFree(s Status) bool { return s.State == StateFree && s.Waiting == 0 }

// Every change of holder and queue is told: taken, queued, given up, handed over, given back, taken away,
// lapsed. The leases are long, so that no timer tells it.
func TestWatchTellsEveryChange(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		long := WithLease(time.Minute)
		a, b, c := on(t, s, long, WithName("a")).Mutex("orders"), on(t, s, long, WithName("b")).Mutex("orders"), on(t, s, long, WithName("c")).Mutex("orders")
		w := watching(t, on(t, s), "orders")
		w.until("free", isFree)

		ctx := lock(t, a)
		w.until("taken", held("a", 0))
		waits := take(context.Background(), b)
		w.until("b waits", held("a", 1))
		short, giveUp := context.WithCancel(context.Background())
		gaveUp := async(func() error { _, err := c.LockContext(short); return err })
		w.until("c waits", held("a", 2))
		giveUp()
		require.ErrorIs(t, <-gaveUp, context.Canceled)
		w.until("c gave up", held("a", 1))
		unlock(t, a, ctx)
		ctx = waits.got(t, soon)
		w.until("b got it", held("b", 0))
		unlock(t, b, ctx)
		w.until("given back", isFree)

		command(t, s, "SET", "orders", "somebody else", "NX", "PX", "300")
		w.until("foreign", func(s Status) bool { return s.State == StateForeign && s.Holders[0].Name == "somebody else" })
		w.until("lapsed", isFree)
		command(t, s, "SET", "orders", "operator", "PX", "60000") // without PX nobody would be told: Kgxe has no "set"
		w.until("operator", func(s Status) bool { return s.State == StateForeign && s.Holders[0].Name == "operator" })
		command(t, s, "PERSIST", "orders")
		w.until("without expiry", func(s Status) bool { return s.State == StateNoExpiry })
		command(t, s, "DEL", "orders")
		w.until("deleted", isFree)
	})
}

func TestWatchTellsOfReadersAndPermits(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		long := WithLease(time.Minute)
		one, two := on(t, s, long), on(t, s, long)
		rw := watching(t, on(t, s), "config")
		one.RWMutex("config").RLock()
		shared := func(holders, waiting int) func(Status) bool {
			return func(s Status) bool {
				return s.State == StateShared && len(s.Holders) == holders && s.Waiting == waiting
			}
		}
		rw.until("one reads", shared(1, 0))
		r := two.RWMutex("config")
		r.RLock()
		rw.until("two read", shared(2, 0))
		r.RUnlock()
		rw.until("one has left", shared(1, 0))

		sem := watching(t, on(t, s), "api")
		permits := one.Semaphore("api", 3)
		require.NoError(t, permits.Acquire(t.Context(), 2))
		sem.until("two permits", func(s Status) bool { return s.State == StateShared && s.Size == 3 && s.Holders[0].Weight == 2 })
		waits := async(func() error { return two.Semaphore("api", 3).Acquire(t.Context(), 3) })
		sem.until("a large one waits", shared(1, 1))
		permits.Release(2)
		require.NoError(t, <-waits)
		sem.until("it has them", func(s Status) bool { return s.State == StateShared && s.Holders[0].Weight == 3 })
	})
}

// Nothing is asked of the server while nothing happens; renewals are what happens.
func TestWatchDoesNotPoll(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		m := on(t, s, WithLease(time.Minute)).Mutex("orders")
		looker := on(t, s)
		ctx := lock(t, m)
		w := watching(t, looker, "orders")
		w.until("taken", held(m.c.opts.client.name, 0))
		next := async(func() error { _, err, _ := w.next(); return err })
		watched(t, s, "orders", 1)
		eventually(t, soon, "it sleeps for a second", func() bool {
			before := s.Calls()["evalsha"]
			<-time.After(time.Second)
			return s.Calls()["evalsha"] == before
		})
		unlock(t, m, ctx)
		require.NoError(t, <-next)
	})
}

func TestWatchIsToldWhyItCannot(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		c := on(t, s)
		for _, err := range c.Watch(t.Context(), "orders") {
			require.ErrorIs(t, err, ErrNoNotifications)
			require.ErrorContains(t, err, "Kgxe")
		}
		for _, err := range c.Watch(t.Context(), " ") {
			require.ErrorIs(t, err, ErrInvalidKey)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range c.Watch(ended, "orders") {
			t.Error("ended before it began")
		}
	})
}

// A Watch ends with its Client, and goes on over a server that restarts.
func TestWatchOutlivesTheServersRestart(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := on(t, s)
		m := on(t, s, WithLease(time.Minute)).Mutex("orders")
		lock(t, m)
		next, stop := iter.Pull2(c.Watch(t.Context(), "orders"))
		defer stop()
		st, err, _ := next()
		require.NoError(t, err)
		require.True(t, held(m.c.opts.client.name, 0)(st))
		s.Kill()
		s.Restart()
		within(t, soon, "free after the restart", func() {
			for {
				st, err, ok := next()
				if !ok {
					t.Error("it ended")
					return
				}
				if err == nil && isFree(st) {
					return
				}
			}
		})
		require.NoError(t, c.Close())
		within(t, soon, "closed", func() {
			for {
				_, err, ok := next()
				if !ok {
					t.Error("it did not say why")
					return
				}
				if errors.Is(err, ErrClosed) {
					return
				}
			}
		})
	})
}

// Who may hear of the lock but not of its queue is told so, and does not wait for what never comes.
func TestWatchIsToldWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		few := append(slices.Clone(enough), "resetchannels", "&valkeysync:*", "&__keyspace@0__:valkeysync:*", "&__keyspace@0__:orders")
		c := newClient(t, as(t, s, "few", few...))
		next, stop := iter.Pull2(c.Watch(t.Context(), "orders"))
		defer stop()
		within(t, soon, "refused", func() {
			for {
				_, err, ok := next()
				if !ok {
					t.Error("it did not say why")
					return
				}
				if err != nil {
					requireReply(t, err, "NOPERM")
					return
				}
			}
		})
		_, _, ok := next()
		require.False(t, ok, "it is over")
	})
}
