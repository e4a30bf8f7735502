package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestQuorumLocksOnAllServersAndGivesBackOnAll(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		inBubbles(t, n, func(t *testing.T, b *bubbles) {
			p := b.party()
			m := p.Mutex("orders")
			held, err := m.LockContext(t.Context())
			require.NoError(t, err)
			l := leaseOf(t, held)
			require.Equal(t, "orders", l.Key())
			require.True(t, l.Valid())
			require.WithinDuration(t, time.Now().Add(10*time.Second), l.Until(), 200*time.Millisecond)
			synctest.Wait()
			require.Equal(t, n, b.held("orders"))
			_, err = m.LockContext(held)
			require.ErrorIs(t, err, ErrDeadlock)

			time.Sleep(time.Minute)
			require.True(t, l.Valid(), "renewed")
			require.NoError(t, m.UnlockContext(held))
			require.False(t, l.Valid())
			require.ErrorIs(t, held.Err(), context.Canceled)
			b.free("orders")
			require.ErrorIs(t, m.UnlockContext(held), ErrNotLocked)
		})
	})
}

func TestQuorumExcludesAndWakes(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		a, z := b.party().Mutex("orders"), b.party().Mutex("orders")
		held, err := a.LockContext(t.Context())
		require.NoError(t, err)
		_, err = z.TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrLocked)
		var wait *WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, "party1", wait.Holder)
		got := make(chan time.Time)
		go func() {
			z.Lock()
			got <- time.Now()
		}()
		synctest.Wait()
		time.Sleep(5*time.Minute + time.Second)
		synctest.Wait()
		gone := time.Now()
		token := leaseOf(t, held).Token()
		require.NoError(t, a.UnlockContext(held))
		at := <-got
		require.Less(t, at.Sub(gone), 10*time.Millisecond)
		z.Unlock()
		held, err = a.LockContext(t.Context())
		require.NoError(t, err)
		require.Greater(t, leaseOf(t, held).Token(), token)
		a.Unlock()
		b.free("orders")
	})
}

// A crowd that wants one lock: everybody is served, none before its turn came round more often than another's;
// also where a server is away, be it the one with the turnstile.
func TestQuorumServesACrowd(t *testing.T) {
	for name, away := range map[string]int{"all there": -1, "the first away": 0} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, 5, func(t *testing.T, b *bubbles) {
				const crowd, turns = 6, 6
				served := make(chan int, crowd*turns)
				done := make(chan struct{}, crowd)
				in := 0
				var all []*QuorumMutex
				for range crowd {
					p := b.party(WithLogger(quiet))
					all = append(all, p.Mutex("orders"))
					if away >= 0 {
						p.bend(loseRequest, away)
						p.taps[away].goAway(true)
						require.True(t, p.Mutex(fmt.Sprint("another", len(all))).TryLock())
						synctest.Wait()
					}
				}
				start := time.Now()
				for i, m := range all {
					go func() {
						defer func() { done <- struct{}{} }()
						for range turns {
							m.Lock()
							in++
							if in != 1 {
								t.Error("two at once")
							}
							time.Sleep(time.Millisecond)
							in--
							served <- i
							m.Unlock()
						}
					}()
				}
				for range crowd {
					<-done
				}
				t.Logf("%d acquisitions of a millisecond each in %v", crowd*turns, time.Since(start))
				require.Less(t, time.Since(start), 3*crowd*turns*time.Millisecond)
				count := make([]int, crowd)
				for range crowd * turns / 2 {
					count[<-served]++
				}
				for i, n := range count {
					require.InDelta(t, turns/2, n, 2, "%d of %v", i, count)
				}
			})
		})
	}
}

// The turnstile's server freezes while a row waits there.
func TestQuorumGoesOnWithoutTheTurnstile(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		var parties []*party
		for range 5 {
			parties = append(parties, b.party(WithLogger(quiet)))
		}
		first := parties[0].Mutex("orders")
		held, err := first.LockContext(t.Context())
		require.NoError(t, err)
		got := make(chan time.Time, 4)
		for _, p := range parties[1:] {
			go func() {
				m := p.Mutex("orders")
				held, err := m.LockContext(t.Context())
				if err != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
				_ = m.UnlockContext(held)
				got <- time.Now()
			}()
		}
		synctest.Wait()
		time.Sleep(time.Minute)
		for _, p := range parties {
			p.freeze(0)
			p.taps[0].goAway(true)
		}
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, held.Err())
		require.NoError(t, first.UnlockContext(held))
		for range 4 {
			select {
			case at := <-got:
				require.Less(t, at.Sub(start), 10*time.Second)
			case <-time.After(time.Minute):
				t.Fatal("nobody goes on without the turnstile")
			}
		}
		t.Logf("all served after %v", time.Since(start))
	})
}

// Refused once, whoever waits asks again only when it may succeed: minutes of waiting cost few requests.
func TestQuorumDoesNotPoll(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p, next := b.party(), b.party()
		p.Mutex("orders").Lock()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err := next.Mutex("orders").LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrLocked)
		require.Len(t, causesOf(t, err), 3)
		require.LessOrEqual(t, next.taps[0].count("quorum_take"), 600/6)
		synctest.Wait()
	})
}

func TestQuorumCloseEndsEverything(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p, other := b.party(), b.party()
		held, err := p.Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		other.Mutex("invoices").Lock()
		waits := async(func() error { _, err := p.Mutex("invoices").LockContext(t.Context()); return err })
		again := async(func() error { _, err := p.Mutex("invoices").LockContext(t.Context()); return err })
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-waits, ErrClosed)
		require.ErrorIs(t, <-again, ErrClosed)
		require.Equal(t, CauseClosed, causeOf(held))
		b.free("orders")
		_, err = p.Mutex("orders").LockContext(t.Context())
		require.ErrorIs(t, err, ErrClosed)
		require.NoError(t, p.Close())
		require.True(t, p.members[0].c.Mutex("single").TryLock(), "the Clients stay")
	})
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party()
		p.Mutex("orders").Lock()
		p.freeze(0, 1, 2)
		start := time.Now()
		require.NoError(t, p.Close())
		require.LessOrEqual(t, time.Since(start), closeLimit+2*time.Second)
	})
}

func TestQuorumOptions(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party()
		for name, o := range map[string]Option{
			"WithTurn": WithTurn(time.Second), "WithLinger": WithLinger(time.Second), "WithCrashDetection": WithCrashDetection(time.Second), "WithReplicas": WithReplicas(1),
		} {
			_, err := p.Mutex("orders", o).LockContext(t.Context())
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, name)
			require.ErrorContains(t, err, "leave it out")
		}
		_, err := p.Mutex(" ").LockContext(t.Context())
		require.ErrorIs(t, err, ErrInvalidKey)
		require.ErrorIs(t, p.Mutex("orders").UnlockContext(t.Context()), ErrNotLocked)

		var lost atomic.Pointer[LostError]
		m := p.Mutex("orders", WithMaxHold(time.Minute), WithLease(3*time.Second), WithOnLost(func(_ string, err error) {
			var e *LostError
			errors.As(err, &e)
			lost.Store(e)
		}))
		start := time.Now()
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		<-held.Done()
		require.Equal(t, CauseMaxHold, causeOf(held))
		require.InDelta(t, 61, time.Since(start).Seconds(), 2)
		synctest.Wait()
		require.Equal(t, CauseMaxHold, lost.Load().Cause)
		m.Unlock()

		m = p.Mutex("orders", WithReentrancy())
		outer, err := m.LockContext(t.Context())
		require.NoError(t, err)
		inner, err := m.LockContext(outer)
		require.NoError(t, err)
		require.NoError(t, m.UnlockContext(inner))
		require.NoError(t, outer.Err())
		require.NoError(t, m.UnlockContext(outer))
		require.Error(t, outer.Err())
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			require.Len(t, Leases(ctx), 1)
			return ctx.Err()
		}))
		b.free("orders")
	})
}

// A Mutex of one of the servers and a lock on all of them exclude each other.
func TestQuorumAndOneServersMutex(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party()
		q := p.Mutex("orders")
		m, n := p.members[0].c.Mutex("orders"), p.members[1].c.Mutex("orders")
		q.Lock()
		synctest.Wait()
		_, err := m.TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, "party1")
		q.Unlock()
		synctest.Wait()
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		n.Lock()
		_, err = q.TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrLocked)
		require.NoError(t, m.UnlockContext(held))
		held, err = q.LockContext(t.Context())
		require.NoError(t, err, "a majority is free")
		require.NoError(t, q.UnlockContext(held))
		n.Unlock()
	})
}

func TestNewQuorumRefusesDependentServers(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		a, z, x := b.servers[0].client(), b.servers[1].client(), b.servers[2].client()
		for _, c := range []struct {
			clients []*Client
			says    string
		}{
			{nil, "fewer than three"},
			{[]*Client{a, z}, "fewer than three"},
			{[]*Client{a, nil, x}, "nil"},
			{[]*Client{a, z, a}, "one server"},
			{[]*Client{a, z, b.servers[0].client()}, "one server"},
			{[]*Client{a, z, b.servers[2].client(WithPrefix("app:"))}, "prefix"},
		} {
			_, err := NewQuorum(c.clients...)
			require.ErrorIs(t, err, ErrInvalidOption)
			require.ErrorContains(t, err, c.says)
		}
		z.server.Cluster = true
		_, err := NewQuorum(a, z, x)
		require.ErrorIs(t, err, ErrInvalidOption)
		require.ErrorContains(t, err, "server 1 is a cluster")
		z.server.Cluster = false
		q, err := NewQuorum(a, z, x)
		require.NoError(t, err)
		require.NoError(t, q.Close())
		for _, s := range b.servers {
			require.Empty(t, s.Keys(), "nothing of it is left")
		}
	})
}
