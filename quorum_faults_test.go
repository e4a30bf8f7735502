package valkeysync

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// What goes wrong between a Quorum and its servers, schedule by schedule.

// causes is what each server of a QuorumError says, by its number.
func causesOf(t *testing.T, err error) map[int]error {
	t.Helper()
	var several *QuorumError
	require.ErrorAs(t, err, &several)
	by := map[int]error{}
	for _, e := range several.Errs {
		by[e.Server] = e.Err
	}
	return by
}

func TestQuorumDoesWithoutAMinority(t *testing.T) {
	for name, bend := range map[string]relay{
		"that loses requests": loseRequest, "that loses replies": loseReply, "that is frozen": swallow, "that is silent": swallowReply,
		"that is slow": slow(300*time.Millisecond, 300*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, 5, func(t *testing.T, b *bubbles) {
				p := b.party()
				m := p.Mutex("orders")
				p.bend(bend, 0, 3)
				start := time.Now()
				held, err := m.LockContext(t.Context())
				require.NoError(t, err)
				require.Zero(t, time.Since(start), "nobody waits for them")
				_, err = b.party().Mutex("orders").TryLockContext(t.Context())
				require.ErrorIs(t, err, ErrLocked)
				time.Sleep(20 * time.Second)
				require.NoError(t, held.Err())
				start = time.Now()
				require.NoError(t, m.UnlockContext(held))
				require.Zero(t, time.Since(start))
				p.bend(nil, 0, 3)
				time.Sleep(15 * time.Second)
				b.free("orders")
			})
		})
	}
}

func TestQuorumWithoutAMajorityLeavesNothing(t *testing.T) {
	for name, bend := range map[string]relay{
		"requests are lost": loseRequest, "replies are lost": loseReply, "they are frozen": swallow, "they are silent": swallowReply,
	} {
		t.Run(name, func(t *testing.T) {
			inBubbles(t, 3, func(t *testing.T, b *bubbles) {
				p := b.party()
				m := p.Mutex("orders")
				for _, i := range []int{1, 2} {
					p.taps[i].on("quorum_take", bend)
				}
				start := time.Now()
				_, err := m.TryLockContext(t.Context())
				require.LessOrEqual(t, time.Since(start), time.Second)
				by := causesOf(t, err)
				require.Len(t, by, 2)
				for _, i := range []int{1, 2} {
					require.True(t, errors.Is(by[i], errWire) || errors.Is(by[i], context.DeadlineExceeded), "%v", by[i])
				}
				require.ErrorContains(t, err, "1 of 3 servers, 2 needed")
				time.Sleep(2 * time.Second)
				b.free("orders")
				require.True(t, b.party().Mutex("orders").TryLock(), "it is free at once")
			})
		})
	}
}

// Requests that arrive when nobody wants them any more: some before their latest time and after the first word
// that nothing must remain, some after it.
func TestQuorumRequestsThatComeLate(t *testing.T) {
	for _, late := range []time.Duration{1100 * time.Millisecond, 3 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			inBubbles(t, 3, func(t *testing.T, b *bubbles) {
				p := b.party()
				open := make(chan struct{})
				for _, tap := range p.taps {
					tap.on("quorum_take", holdRequest(open))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				_, err := p.Mutex("orders").LockContext(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				time.Sleep(late - 200*time.Millisecond)
				close(open)
				synctest.Wait()
				time.Sleep(3 * time.Second)
				b.free("orders")
			})
		})
	}
	// The clock of a server is behind what we think: it runs the request that we have given up.
	t.Run("before its time", func(t *testing.T) {
		inBubbles(t, 3, func(t *testing.T, b *bubbles) {
			p := b.party()
			open := make(chan struct{})
			for i, tap := range p.taps {
				tap.on("quorum_take", holdRequest(open))
				p.members[i].c.offset.Add(2000)
			}
			require.False(t, p.Mutex("orders").TryLock())
			synctest.Wait()
			close(open)
			synctest.Wait()
			require.Equal(t, 3, b.held("orders"), "by nobody")
			time.Sleep(5 * time.Second)
			b.free("orders")
		})
	})
}

func TestQuorumContextThatEndsWithTheMajority(t *testing.T) {
	for _, script := range []string{"quorum_take", "quorum_keep"} {
		t.Run(script, func(t *testing.T) {
			inBubbles(t, 3, func(t *testing.T, b *bubbles) {
				p := b.party()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				for i, tap := range p.taps {
					number := time.Now().Add(time.Duration(i) * time.Hour).UnixMicro() // so that they have to be told
					require.NoError(t, b.servers[i].Set("{orders}:fence", strconv.FormatInt(number, 10)))
					tap.on(script, before(cancel))
				}
				_, err := p.Mutex("orders").LockContext(ctx)
				require.ErrorIs(t, err, context.Canceled)
				var wait *WaitError
				require.ErrorAs(t, err, &wait)
				time.Sleep(2 * time.Second)
				b.free("orders")
			})
		})
	}
}

func TestQuorumLosesWithAMajority(t *testing.T) {
	for _, c := range []struct {
		name  string
		do    func(s *bubble)
		cause Cause
	}{
		{"deleted", func(s *bubble) { s.Del("orders") }, CauseDeleted},
		{"taken", func(s *bubble) { _ = s.Set("orders", "somebody else's") }, CauseTaken},
		{"flushed", func(s *bubble) { s.FlushAll() }, CauseDeleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbles(t, 5, func(t *testing.T, b *bubbles) {
				p := b.party()
				var told atomic.Int64
				m := p.Mutex("orders", WithOnLost(func(string, error) { told.Add(1) }))
				held, err := m.LockContext(t.Context())
				require.NoError(t, err)
				l := leaseOf(t, held)
				lost := l.Lost()
				time.Sleep(time.Minute)
				for _, s := range b.servers[2:] {
					c.do(s)
				}
				start := time.Now()
				ends(t, held, time.Minute)
				<-lost
				require.LessOrEqual(t, time.Since(start), 10*time.Second/3)
				require.Equal(t, c.cause, causeOf(held))
				require.Len(t, causesOf(t, context.Cause(held)), 3)
				require.False(t, l.Valid())
				require.ErrorIs(t, m.UnlockContext(held), ErrLeaseLost)
				synctest.Wait()
				require.EqualValues(t, 1, told.Load())
				for _, s := range b.servers[:2] {
					require.False(t, s.Exists("orders"), "given back where it was ours")
				}
			})
		})
	}
}

// A server that has lost its data, a minority, is given the key again; its fence too.
func TestQuorumGivesAnEmptyServerTheKeyAgain(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		inBubbles(t, n, func(t *testing.T, b *bubbles) {
			p := b.party()
			m := p.Mutex("orders")
			held, err := m.LockContext(t.Context())
			require.NoError(t, err)
			synctest.Wait()
			for _, s := range b.servers[(n+1)/2:] {
				s.FlushAll()
			}
			require.Equal(t, (n+1)/2, b.held("orders"))
			time.Sleep(4 * time.Second)
			require.Equal(t, n, b.held("orders"))
			for _, s := range b.servers[:n/2] { // now the others
				s.FlushAll()
			}
			time.Sleep(4 * time.Second)
			require.Equal(t, n, b.held("orders"))
			require.NoError(t, held.Err())
			for _, s := range b.servers {
				fence, err := s.Get("{orders}:fence")
				require.NoError(t, err)
				number, err := strconv.ParseInt(fence, 10, 64)
				require.NoError(t, err)
				require.GreaterOrEqual(t, token(number, 0), leaseOf(t, held).Token())
			}
			require.NoError(t, m.UnlockContext(held))
			b.free("orders")
		})
	})
}

func TestQuorumIsLostWhenNoMajorityAnswers(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party()
		m := p.Mutex("orders")
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		p.freeze(0, 1)
		ends(t, held, time.Minute)
		require.Equal(t, CauseUnreachable, causeOf(held))
		require.GreaterOrEqual(t, b.held("orders"), 2, "told before the servers give it away")
		by := causesOf(t, context.Cause(held))
		require.ErrorIs(t, by[0], context.DeadlineExceeded)
		p.thaw(0, 1)
		held, err = m.LockContext(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.UnlockContext(held))
	})
}

// The holder has its token from the server whose clock is ahead, and dies before any renewal; that server is lost
// with it. The next one comes soon, or when what an hour's use has kept would have lapsed.
func TestQuorumTokensRiseThoughTheHolderDied(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		for _, ahead := range []int{0, n - 1} {
			for _, later := range []time.Duration{12 * time.Second, 90 * time.Minute} {
				inBubbles(t, n, func(t *testing.T, b *bubbles) {
					p, next := b.party(), b.party()
					high := time.Now().Add(2 * time.Hour).UnixMicro()
					require.NoError(t, b.servers[ahead].Set("{orders}:fence", strconv.FormatInt(high, 10)))
					for i := range n / 2 { // so that it is one of the majority
						p.freeze((ahead + 1 + i) % n)
					}
					held, err := p.Mutex("orders").LockContext(t.Context())
					require.NoError(t, err)
					first := leaseOf(t, held).Token()
					require.GreaterOrEqual(t, first, token(high, 0))
					for i := range p.taps {
						p.freeze(i)
					}
					synctest.Wait()
					time.Sleep(later)
					next.freeze(ahead)
					held, err = next.Mutex("orders").LockContext(t.Context())
					require.NoError(t, err)
					require.Greater(t, leaseOf(t, held).Token(), first)
				})
			}
		}
	})
}

func TestQuorumUnlockWithoutAnswers(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party()
		m := p.Mutex("orders")
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		p.freeze(1, 2)
		start := time.Now()
		err = m.UnlockContext(held)
		require.ErrorContains(t, err, "goes on in the background")
		require.Len(t, causesOf(t, err), 2)
		require.Equal(t, requestLimit, time.Since(start))
		p.thaw(1, 2)
		require.NoError(t, m.UnlockContext(held), "wait for it")
		b.free("orders")
		require.ErrorIs(t, m.UnlockContext(held), ErrNotLocked)
		require.Panics(t, m.Unlock)
	})
}

func TestQuorumServersThatRefuse(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		m := b.party().Mutex("orders")
		b.servers[0].HSet("orders", "a", "hash")
		held, err := m.LockContext(t.Context())
		require.NoError(t, err, "one of three")
		require.NoError(t, m.UnlockContext(held))
		b.servers[1].HSet("orders", "a", "hash")
		_, err = m.LockContext(t.Context())
		var reply *valkey.ValkeyError
		require.ErrorAs(t, err, &reply)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.Len(t, causesOf(t, err), 2)
		require.Panics(t, m.Lock)
		require.Panics(t, func() { m.TryLock() })
		synctest.Wait()
		b.servers[0].Del("orders")
		require.True(t, m.TryLock())
		m.Unlock()
	})
}

func TestQuorumLockWaitsUntilAMajorityAnswers(t *testing.T) {
	inBubbles(t, 3, func(t *testing.T, b *bubbles) {
		p := b.party(WithLogger(quiet))
		m := p.Mutex("orders")
		p.freeze(0, 2)
		require.False(t, m.TryLock())
		done := async(func() error { m.Lock(); return nil })
		time.Sleep(time.Minute)
		require.Empty(t, done)
		p.thaw(0)
		start := time.Now()
		require.NoError(t, <-done)
		require.LessOrEqual(t, time.Since(start), 4*time.Second)
		m.Unlock()
	})
}

// A server that was somebody else's for a moment, or late, when the lock was taken is given its part soon after.
func TestQuorumSoonHasAllServers(t *testing.T) {
	inBubbles(t, 5, func(t *testing.T, b *bubbles) {
		p := b.party()
		for _, s := range b.servers[3:] {
			require.NoError(t, s.Set("orders", "a stranger's"))
			s.SetTTL("orders", 500*time.Millisecond)
		}
		held, err := p.Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, b.held("orders"))
		time.Sleep(quorumLimit(10*time.Second) + time.Millisecond)
		synctest.Wait()
		require.Equal(t, 5, b.held("orders"))
		for _, s := range b.servers[:2] {
			s.FlushAll()
		}
		time.Sleep(time.Minute)
		require.NoError(t, held.Err())
		require.Equal(t, 5, b.held("orders"))
	})
}
