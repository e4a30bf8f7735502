package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// causeOf is why a lock's context ended; "" while it lives.
func causeOf(ctx context.Context) Cause {
	if lost, ok := context.Cause(ctx).(*LostError); ok {
		return lost.Cause
	}
	return ""
}

func TestAHoldPastItsMaximumIsToldThatItWasTaken(t *testing.T) {
	// It is not renewed any more, but it is certain until its lease ends, which may be long.
	t.Run("force", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client()
			ctx, err := c.Mutex("orders", WithLease(time.Minute), WithMaxHold(time.Second)).LockContext(t.Context())
			require.NoError(t, err)
			end := leaseOf(t, ctx).Until()
			time.Sleep(30 * time.Second)
			require.Equal(t, end, leaseOf(t, ctx).Until(), "not renewed")
			require.NoError(t, c.ForceUnlock(t.Context(), "orders"))
			synctest.Wait()
			require.Equal(t, CauseDeleted, causeOf(ctx))
		})
	})
	t.Run("a look prolongs nothing", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			start := time.Now()
			ctx, err := newClient(t, wire).Mutex("orders", WithLease(time.Minute), WithMaxHold(time.Second)).LockContext(t.Context())
			require.NoError(t, err)
			for range 11 {
				time.Sleep(5 * time.Second)
				wire.cutEar() // everybody looks
				synctest.Wait()
			}
			require.NoError(t, ctx.Err())
			require.GreaterOrEqual(t, wire.count("renew"), 10)
			require.LessOrEqual(t, b.TTL("orders"), 5*time.Second+50*time.Millisecond)
			<-ctx.Done()
			require.Equal(t, CauseMaxHold, causeOf(ctx))
			require.Equal(t, time.Minute-drift(time.Minute), time.Since(start))
		})
	})
}

func TestOneRenewalAtATime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithLease(9*time.Second))
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		var running, most atomic.Int32
		wire.always("renew", func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			time.Sleep(time.Second)
			return run()
		})
		time.Sleep(2500 * time.Millisecond)
		wire.cutEar() // the hold is looked at; while that runs, the ordinary renewal falls due
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, most.Load())
		require.NoError(t, ctx.Err())
		m.Unlock()
	})
}

func TestALateGrantDoesNotMakeAReleaseALoss(t *testing.T) {
	// The waiter has learnt of its hold by a check, and unlocks. The message that told of the grant, which
	// nobody waits for any more, comes while the release is on its way.
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithOnLost(func(string, error) { t.Error("lost") }))
		got := lockAsync(t.Context(), m)
		wire.keepBack(isGrant)
		p.release(e, held)
		synctest.Wait()
		wire.cutEar() // the waiter checks
		time.Sleep(time.Second)
		ctx := now(t, got)
		open := make(chan struct{})
		wire.on("release", holdRequest(open))
		done := make(chan error, 1)
		go func() { done <- m.UnlockContext(ctx) }()
		synctest.Wait()
		require.Equal(t, 1, wire.deliver())
		synctest.Wait()
		close(open)
		require.NoError(t, <-done)
		require.Zero(t, wire.count("leave"))
	})
}

func TestMaxHoldIsOfWhoeverHolds(t *testing.T) {
	limited, free := WithMaxHold(1500*time.Millisecond), WithMaxHold(0)
	lease := WithLease(3 * time.Second)
	t.Run("not of who queued", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			p := b.peer("p", "orders")
			e, held := p.hold("1")
			c := b.client(lease)
			ctx, cancel := context.WithCancel(t.Context())
			gaveUp := lockAsync(ctx, c.Mutex("orders", free))
			got := lockAsync(t.Context(), c.Mutex("orders", limited))
			cancel() // the second goroutine takes the place of the first
			require.ErrorIs(t, (<-gaveUp).err, context.Canceled)
			p.release(e, held)
			held2 := now(t, got)
			time.Sleep(10 * time.Second)
			require.Equal(t, CauseMaxHold, causeOf(held2))
		})
	})
	t.Run("not of who had the turn before", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client(lease, WithTurn(defaultTurn))
			first := c.Mutex("orders", limited)
			first.Lock()
			got := lockAsync(t.Context(), c.Mutex("orders", free))
			time.Sleep(2500 * time.Millisecond) // not renewed any more
			first.Unlock()
			ctx := now(t, got)
			time.Sleep(time.Minute)
			require.NoError(t, ctx.Err(), "renewed again")
		})
	})
	t.Run("not of the time that it lingered", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			m := b.client(lease, limited, WithLinger(time.Second)).Mutex("orders")
			for range 100 {
				ctx, err := m.LockContext(t.Context())
				require.NoError(t, err)
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, m.UnlockContext(ctx))
			}
		})
	})
}

func TestAHoldWhoseExpiryWasTakenAwayIsRenewed(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		wire.on("acquire", func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
			run()
			require.NoError(t, wire.Client.Do(t.Context(), wire.B().Persist().Key("orders").Build()).Error())
			return valkey.NewErrorResult(errWire) // the repeated request hears of it
		})
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Minute)
		require.NoError(t, ctx.Err())
		require.Positive(t, b.TTL("orders"))
		m.Unlock()
	})
}

func TestACertainTimeLeavesOutWhatClocksDiffer(t *testing.T) {
	require.Equal(t, 102*time.Millisecond, drift(10*time.Second), "1 % and 2 ms")
}

func TestTheContextEndsBeforeTheServerGivesTheLockAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		ctx, err := newClient(t, wire).Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		lost := leaseOf(t, ctx).Lost()
		got := lockAsync(t.Context(), b.client().Mutex("orders"))
		wire.goAway(true) // the holder cannot reach the server any more
		start := time.Now()
		<-ctx.Done()
		require.Equal(t, defaultLease-drift(defaultLease), time.Since(start))
		require.Equal(t, CauseUnreachable, causeOf(ctx))
		require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
		require.Error(t, context.Cause(ctx).(*LostError).Err, "why no renewal got through")
		select {
		case <-lost:
		default:
			t.Fatal("Lost is open")
		}
		notYet(t, got)
		l := <-got
		require.NoError(t, l.err)
		require.Equal(t, defaultLease+time.Millisecond, l.at.Sub(start), "the other has it when the server's lease is over")
		wire.goAway(false)
	})
}

func TestAHoldIsRenewedAtAThirdOfItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithLease(9*time.Second))
		var at []time.Duration
		start := time.Now()
		wire.always("renew", before(func() { at = append(at, time.Since(start)) }))
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{3 * time.Second, 6 * time.Second, 9 * time.Second}, at)
		require.Equal(t, start.Add(9*time.Second+9*time.Second-drift(9*time.Second)), leaseOf(t, ctx).Until())
		require.NoError(t, m.UnlockContext(ctx))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, at, 3, "nothing is renewed any more")
	})
}

func TestAFirstLeaseIsShortAndRenewedSoon(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		got := lockAsync(t.Context(), m)
		p.release(e, held)
		granted := time.Now()
		lease := leaseOf(t, now(t, got))
		require.Equal(t, shortLease, b.TTL("orders"))
		require.Equal(t, granted.Add(shortLease-drift(shortLease)), lease.Until())
		time.Sleep(shortLease/3 + time.Millisecond)
		require.Equal(t, 1, wire.count("renew"))
		require.WithinDuration(t, granted.Add(shortLease/3+defaultLease-drift(defaultLease)), lease.Until(), time.Millisecond)
		m.Unlock()
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// A lease shorter than that stays what it is.
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		m := b.client().Mutex("orders", WithLease(500*time.Millisecond))
		got := lockAsync(t.Context(), m)
		p.release(e, held)
		now(t, got)
		require.Equal(t, 500*time.Millisecond, b.TTL("orders"))
		m.Unlock()
	})
}

func TestAReplyCountsFromTheSendingOfItsRequest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		start := time.Now()
		wire.on("acquire", slow(300*time.Millisecond, 400*time.Millisecond))
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		require.Equal(t, start.Add(defaultLease-drift(defaultLease)), leaseOf(t, ctx).Until())
		wire.on("renew", slow(300*time.Millisecond, 400*time.Millisecond))
		renewed := start.Add(defaultLease / 3) // when it is sent
		time.Sleep(time.Until(renewed) + time.Second)
		require.Equal(t, renewed.Add(defaultLease-drift(defaultLease)), leaseOf(t, ctx).Until())
		m.Unlock()
	})
}

func TestAReplyThatComesAfterTheLeaseIsNoHold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithLease(time.Second))
		wire.on("acquire", slow(0, 1500*time.Millisecond))
		start := time.Now()
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, wire.count("acquire"))
		require.Equal(t, start.Add(1500*time.Millisecond+time.Second-drift(time.Second)), leaseOf(t, ctx).Until())
		m.Unlock()
		time.Sleep(10 * time.Second)
		require.False(t, b.Exists("orders"))
	})
}

// grantTo writes, as a script would, that the attempt that waits first has the lock.
func grantTo(t *testing.T, b *bubble, p *peer, at time.Time, lease time.Duration) {
	t.Helper()
	e, ok := protocol.ParseEntry(p.standing().Queue[0].Value)
	require.True(t, ok)
	text := fmt.Sprintf("grant m %s 1 %d %d 0 orders", e.Attempt, at.UnixMilli(), lease.Milliseconds())
	require.Equal(t, 1, b.Publish(protocol.ChannelFor(e.Client), text))
}

func TestAMessageWithoutARequestsReplyCountsFromItsSending(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		wire.on("acquire", swallowReply) // it is in the queue, and does not know
		wire.always("renew", swallow)
		start := time.Now()
		got := lockAsync(t.Context(), m)
		time.Sleep(time.Second)
		p.release(e, held)
		ctx := now(t, got)
		require.Equal(t, start.Add(shortLease-drift(shortLease)), leaseOf(t, ctx).Until())
		wire.always("renew", nil)
		m.Unlock()
	})
}

func TestAMessageNeverCountsLongerThanFromNow(t *testing.T) {
	// The server's clock was set forward by an hour between the request and the grant.
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		got := lockAsync(t.Context(), m)
		wire.always("renew", swallow)
		grantTo(t, b, p, time.Now().Add(time.Hour), shortLease)
		require.Equal(t, time.Now().Add(shortLease-drift(shortLease)), leaseOf(t, now(t, got)).Until())
	})
}

func TestAMessageThatComesAfterTheLeaseIsNoHold(t *testing.T) {
	for name, late := range map[string]time.Duration{"just": shortLease - drift(shortLease), "long": shortLease + time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				p := b.peer("p", "orders")
				e, held := p.hold("1")
				wire := b.tap()
				m := newClient(t, wire).Mutex("orders")
				got := lockAsync(t.Context(), m)
				time.Sleep(2 * settleTime) // the checks of a new waiter are over
				wire.keepBack(isGrant)
				p.release(e, held)
				time.Sleep(late)
				wire.keepBack(nil)
				checks := wire.count("check")
				if late < shortLease {
					// The server still has it for a moment, which is too little: it is given up and taken anew.
					require.Equal(t, 1, wire.deliver())
					require.True(t, leaseOf(t, now(t, got)).Until().After(time.Now().Add(time.Second)))
					require.Equal(t, checks+1, wire.count("check"))
					return
				}
				p.hold("2") // it has gone to another meanwhile
				require.Equal(t, 1, wire.deliver())
				notYet(t, got)
				require.Equal(t, checks+1, wire.count("check"))
			})
		})
	}
}

func TestRenewalsAreRepeatedUntilTheLeaseEnds(t *testing.T) {
	t.Run("and the hold lives when one gets through", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client(WithOnLost(func(string, error) { t.Error("lost") }))
			m := c.Mutex("orders")
			ctx, err := m.LockContext(t.Context())
			require.NoError(t, err)
			for range 20 { // the server fails for 60 % of every lease
				time.Sleep(3 * time.Second)
				b.SetError("LOADING the dataset")
				time.Sleep(6 * time.Second)
				b.SetError("")
				time.Sleep(time.Second)
			}
			require.NoError(t, ctx.Err())
			require.Positive(t, c.Stats().RenewalErrors, "told as a failure, not as a loss")
			require.Empty(t, c.Stats().Lost)
			m.Unlock()
		})
	})
	t.Run("whatever the error is", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			ctx, err := newClient(t, wire).Mutex("orders").LockContext(t.Context())
			require.NoError(t, err)
			rnd := rand.New(rand.NewPCG(1, 2))
			errs := []string{"NOPERM no", "OOM no", "MISCONF no", "READONLY no", "ERR what"}
			wire.always("renew", func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
				switch rnd.IntN(5) {
				case 0:
					b.SetError(errs[rnd.IntN(len(errs))])
					defer b.SetError("")
				case 1:
					return loseReply(ctx, run)
				}
				return run()
			})
			time.Sleep(100 * defaultLease)
			require.NoError(t, ctx.Err())
		})
	})
	t.Run("and then it is lost", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			ctx, err := b.client().Mutex("orders").LockContext(t.Context())
			require.NoError(t, err)
			b.SetError("MISCONF disk full")
			start := time.Now()
			<-ctx.Done()
			require.Equal(t, defaultLease-drift(defaultLease), time.Since(start))
			lost := context.Cause(ctx).(*LostError)
			require.Equal(t, CauseUnreachable, lost.Cause)
			require.ErrorContains(t, lost, "MISCONF")
			var reply *valkey.ValkeyError
			require.ErrorAs(t, lost, &reply)
			b.SetError("")
		})
	})
}

func TestNotYoursIsLossAtOnce(t *testing.T) {
	for name, row := range map[string]struct {
		act   func(b *bubble)
		cause Cause
	}{
		"deleted":      {func(b *bubble) { b.Del("orders") }, CauseDeleted},
		"flushed":      {func(b *bubble) { b.FlushAll() }, CauseDeleted},
		"taken":        {func(b *bubble) { b.Set("orders", "mine") }, CauseTaken},
		"another type": {func(b *bubble) { b.Del("orders"); b.Lpush("orders", "x") }, CauseTaken},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				told := make(chan error, 2)
				c := b.client(WithOnLost(func(key string, err error) {
					require.Equal(t, "orders", key)
					told <- err
				}))
				m := c.Mutex("orders")
				ctx, err := m.LockContext(t.Context())
				require.NoError(t, err)
				row.act(b)
				start := time.Now()
				<-ctx.Done()
				require.Equal(t, defaultLease/3, time.Since(start), "with the next renewal")
				require.Equal(t, row.cause, causeOf(ctx))
				require.Equal(t, context.Cause(ctx), <-told)
				require.Equal(t, map[Cause]uint64{row.cause: 1}, c.Stats().Lost)
				require.Equal(t, context.Cause(ctx), m.UnlockContext(ctx))
				require.Equal(t, ErrNotLocked, m.UnlockContext(ctx))
				require.Empty(t, told)
			})
		})
	}
}

func TestALostLeaseIsToldByUnlockTooWithItsCause(t *testing.T) {
	// Nobody has noticed yet: the release is what finds out.
	for name, row := range map[string]struct {
		act   func(b *bubble, p *peer)
		cause Cause
	}{
		"deleted": {func(b *bubble, _ *peer) { b.Del("orders") }, CauseDeleted},
		"taken":   {func(b *bubble, p *peer) { b.Del("orders"); p.hold("1") }, CauseTaken},
		"foreign": {func(b *bubble, _ *peer) { b.Set("orders", "mine") }, CauseTaken},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				told := make(chan error, 2)
				c := b.client(WithOnLost(func(_ string, err error) { told <- err }))
				m := c.Mutex("orders")
				ctx, err := m.LockContext(t.Context())
				require.NoError(t, err)
				p := b.peer("p", "orders")
				row.act(b, p)
				before := p.standing()
				err = m.UnlockContext(ctx)
				require.ErrorIs(t, err, ErrLeaseLost)
				require.Equal(t, row.cause, err.(*LostError).Cause)
				require.Equal(t, err, <-told)
				require.Equal(t, map[Cause]uint64{row.cause: 1}, c.Stats().Lost)
				require.Equal(t, before, p.standing(), "another's lock is left alone")
			})
		})
	}
}

func TestARenewalNeverTakesTheLockAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		ctx, err := newClient(t, wire).Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		open := make(chan struct{})
		wire.on("renew", holdRequest(open)) // it arrives late
		time.Sleep(5 * time.Second)
		b.Del("orders")
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		p.release(e, held) // somebody had it in between
		close(open)
		synctest.Wait()
		require.False(t, b.Exists("orders"))
		time.Sleep(time.Second)
		require.Equal(t, CauseDeleted, causeOf(ctx))
	})
}

func TestAfterALossTheMutexIsReusableAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := b.client().Mutex("orders")
		for range 5 {
			ctx, err := m.LockContext(t.Context())
			require.NoError(t, err)
			time.Sleep(3 * defaultLease)
			require.NoError(t, ctx.Err(), "each hold is renewed")
			b.Del("orders")
			<-ctx.Done()
			require.True(t, m.TryLock())
			require.ErrorIs(t, m.UnlockContext(ctx), ErrLeaseLost)
			m.Unlock()
		}
	})
}

func TestALateUnlockDoesNotOpenTheNextHoldersLock(t *testing.T) {
	for name, unlock := range map[string]func(t *testing.T, m *Mutex, lost context.Context){
		"Unlock": func(_ *testing.T, m *Mutex, _ context.Context) { m.Unlock() },
		"UnlockContext": func(t *testing.T, m *Mutex, lost context.Context) {
			require.ErrorIs(t, m.UnlockContext(lost), ErrLeaseLost)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m := b.client().Mutex("orders")
				lost, err := m.LockContext(t.Context())
				require.NoError(t, err)
				next := lockAsync(t.Context(), m)
				b.Del("orders")
				<-lost.Done()
				held := now(t, next)
				unlock(t, m, lost)
				require.NoError(t, held.Err())
				require.False(t, b.client().Mutex("orders").TryLock(), "the next holder still has it")
				require.NoError(t, m.UnlockContext(held))
				require.False(t, b.Exists("orders"))
			})
		})
	}
	t.Run("on the server", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			// The release of a hold that the server has given to another.
			wire := b.tap()
			m := newClient(t, wire).Mutex("orders")
			m.Lock()
			open := make(chan struct{})
			wire.on("release", holdRequest(open))
			go m.Unlock()
			synctest.Wait()
			b.Del("orders")
			p := b.peer("p", "orders")
			p.hold("1")
			before := p.standing()
			close(open)
			synctest.Wait()
			require.Equal(t, before.Value, p.standing().Value)
			require.Equal(t, before.Remaining, p.standing().Remaining)
		})
	})
}

func TestDoNeverRunsWithoutTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		m := c.Mutex("orders")
		boom := errors.New("boom")
		require.Equal(t, boom, m.Do(t.Context(), func(ctx context.Context) error {
			require.True(t, leaseOf(t, ctx).Valid())
			require.False(t, c.Mutex("orders").TryLock())
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := c.Mutex("orders").Do(short, func(context.Context) error { panic("called") })
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return boom
		}))
		require.False(t, b.Exists("orders"))

		require.PanicsWithValue(t, "boom", func() {
			_ = m.Do(t.Context(), func(context.Context) error { panic("boom") })
		})
		require.False(t, b.Exists("orders"), "unlocked on a panic")

		err := m.Do(t.Context(), func(ctx context.Context) error {
			b.Del("orders")
			<-ctx.Done()
			return boom
		})
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, err, ErrLeaseLost, "and that the work was not protected until its end")

		ended, cancel := context.WithCancel(t.Context())
		require.NoError(t, m.Do(ended, func(context.Context) error {
			cancel()
			return nil
		}), "it unlocks with a context that has ended")
		require.False(t, b.Exists("orders"))
	})
}

func TestTheContextNoticesAnEndThatNoTimerHasToldYet(t *testing.T) {
	// As in a process that was stopped and has just gone on.
	for name, look := range map[string]func(ctx context.Context, l *Lease) bool{
		"Err": func(ctx context.Context, _ *Lease) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context, _ *Lease) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a context made from it": func(ctx context.Context, _ *Lease) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err() != nil
		},
		"Valid": func(_ context.Context, l *Lease) bool { return !l.Valid() },
		"Until": func(_ context.Context, l *Lease) bool { return !time.Now().Before(l.Until()) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m := b.client().Mutex("orders")
				ctx, err := m.LockContext(t.Context())
				require.NoError(t, err)
				l := leaseOf(t, ctx)
				require.False(t, look(ctx, l))
				l.gate.mu.Lock()
				l.hold.alarm.timer.Stop()
				l.gate.mu.Unlock()
				time.Sleep(defaultLease - drift(defaultLease))
				require.True(t, look(ctx, l))
				require.ErrorIs(t, m.UnlockContext(ctx), ErrLeaseLost)
			})
		})
	}
}

// A context that several locks gave, one around the other, notices the end of each.
func TestTheContextOfSeveralLocksNoticesAnEndThatNoTimerHasToldYet(t *testing.T) {
	for name, look := range map[string]func(ctx context.Context) bool{
		"Err": func(ctx context.Context) bool { return ctx.Err() != nil },
		"Done": func(ctx context.Context) bool {
			select {
			case <-ctx.Done():
				return true
			default:
				return false
			}
		},
		"a context made from it": func(ctx context.Context) bool {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			return child.Err() != nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				c := b.client()
				ctx := t.Context()
				for _, key := range []string{"orders", "stock"} { // as LockAll where the second is not free at once
					var err error
					ctx, err = c.Mutex(key).LockContext(ctx)
					require.NoError(t, err)
					l := leaseOf(t, ctx)
					l.gate.mu.Lock()
					l.hold.alarm.timer.Stop()
					l.gate.mu.Unlock()
					time.Sleep(defaultLease / 2)
				}
				require.False(t, Leases(ctx)[0].Valid())
				require.True(t, Leases(ctx)[1].Valid())
				require.True(t, look(ctx))
				require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
			})
		})
	}
}

func TestALeaseTellsOfItself(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client(WithPrefix("app:"))
		m := c.Mutex("orders")
		var last int64
		for range 10 {
			ctx, err := m.LockContext(t.Context())
			require.NoError(t, err)
			l := leaseOf(t, ctx)
			require.Equal(t, "app:orders", l.Key())
			require.Greater(t, l.Token(), last)
			last = l.Token()
			if last%2 == 0 {
				b.FlushAll() // tokens rise all the same: the clock has moved on
			}
			_ = m.UnlockContext(ctx)
			require.False(t, l.Valid())
			require.True(t, l.Until().Before(time.Now()))
			require.ErrorIs(t, ctx.Err(), context.Canceled)
			time.Sleep(time.Microsecond)
		}
		_, ok := FromContext(t.Context())
		require.False(t, ok)
	})
}
