package valkeysync

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// unsteady is a server that cuts connections for half of a request's time limit, and then is silent.
func unsteady() relay {
	start := time.Now()
	return func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
		if time.Since(start) < requestLimit/2 {
			return valkey.NewErrorResult(errWire)
		}
		return swallow(ctx, run)
	}
}

func TestWithoutAnAnswerTryLockAndUnlockBlockForTwoSecondsAtMost(t *testing.T) {
	for name, bend := range map[string]func() relay{
		"silent":   func() relay { return swallow },
		"cut":      func() relay { return loseRequest },
		"unsteady": unsteady,
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				wire := b.tap()
				m := newClient(t, wire).Mutex("orders")
				start := time.Now()
				wire.always("acquire", bend())
				require.False(t, m.TryLock())
				require.LessOrEqual(t, time.Since(start), requestLimit)
				wire.always("acquire", nil)

				m.Lock()
				start = time.Now()
				wire.always("release", bend())
				m.Unlock()
				require.LessOrEqual(t, time.Since(start), requestLimit)

				parent, cancel := context.WithCancel(t.Context())
				ctx, err := m.LockContext(parent) // what was not confirmed lapses with its lease, at the latest
				require.NoError(t, err)
				require.LessOrEqual(t, time.Since(start), defaultLease+time.Second)
				cancel()
				start = time.Now()
				wire.always("release", bend())
				require.Error(t, m.UnlockContext(ctx))
				require.LessOrEqual(t, time.Since(start), requestLimit)
				wire.always("release", nil)
				time.Sleep(requestLimit) // the next request may have been swallowed before
				require.NoError(t, m.UnlockContext(ctx), "it waits for what goes on in the background")
				require.False(t, b.Exists("orders"))
			})
		})
	}
}

func TestLockReturnsWithTheGrantWhateverReplyIsMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		wire.on("acquire", swallowReply)
		start := time.Now()
		got := make(chan time.Duration, 1)
		go func() {
			m.Lock()
			got <- time.Since(start)
		}()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		p.release(e, held)
		require.Equal(t, 100*time.Millisecond, <-got)
		m.Unlock()
	})
}

// late is a context whose end is not told by Done: as one that ends in the moment in which the lock is got.
type late struct {
	context.Context
	ended atomic.Bool
}

func (c *late) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

func (c *late) Done() <-chan struct{} { return make(chan struct{}) }

func TestTheEndOfTheContextComesBeforeTheLock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		m := b.client().Mutex("orders")
		ctx := &late{Context: t.Context()}
		got := lockAsync(ctx, m)
		ctx.ended.Store(true)
		p.release(e, held)
		require.ErrorIs(t, (<-got).err, context.Canceled)
		synctest.Wait()
		require.False(t, b.Exists("orders"), "it was given back")
	})
}

func TestGoroutinesOfOneClientGetTheLockInTheOrderTheyCame(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		first := c.Mutex("orders")
		first.Lock()
		order := make(chan int, 100)
		for i := range 100 {
			m := first
			if i%2 == 1 {
				m = c.Mutex("orders") // another handle is the same lock
			}
			go func() {
				m.Lock()
				order <- i
				m.Unlock()
			}()
			synctest.Wait()
		}
		first.Unlock()
		for i := range 100 {
			require.Equal(t, i, <-order)
		}
	})
}

func TestClientsWithSeveralGoroutinesTakeTurnsAndQueueAgainWithTheirRelease(t *testing.T) {
	const clients, each, turns = 4, 3, 20
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		var order [][2]int
		var wires []*tap
		var wg sync.WaitGroup
		for i := range clients {
			wire := b.tap()
			wires = append(wires, wire)
			m := newClient(t, wire).Mutex("orders")
			for j := range each {
				wg.Go(func() {
					for range turns {
						m.Lock()
						order = append(order, [2]int{i, j})
						time.Sleep(time.Millisecond)
						m.Unlock()
					}
				})
				synctest.Wait()
			}
		}
		p.release(e, held)
		wg.Wait()
		for n, who := range order {
			require.Equal(t, [2]int{n % clients, n / clients % each}, who, "turn %d", n)
		}
		for _, wire := range wires {
			require.Equal(t, 1, wire.count("acquire"), "a release queues the next goroutine in the same request")
			require.Equal(t, each*turns, wire.count("release"))
		}
	})
}

func TestAWaitGivenUpInTheMomentOfTheGrantHandsOn(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		holder := b.client().Mutex("orders")
		holder.Lock()
		wire := b.tap()
		ctx, cancel := context.WithCancel(t.Context())
		leaver := lockAsync(ctx, newClient(t, wire).Mutex("orders"))
		next := lockAsync(t.Context(), b.client().Mutex("orders"))
		wire.keepBack(isGrant)
		holder.Unlock()
		notYet(t, next) // the server has given it to the leaver
		cancel()
		require.ErrorIs(t, (<-leaver).err, context.Canceled)
		held := now(t, next)
		require.Equal(t, 1, wire.deliver()) // the grant is nobody's now
		synctest.Wait()
		require.NoError(t, held.Err())
		require.False(t, holder.TryLock())
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// The next is a goroutine of the same process.
		holder := b.client().Mutex("orders")
		holder.Lock()
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		ctx, cancel := context.WithCancel(t.Context())
		leaver := lockAsync(ctx, m)
		next := lockAsync(t.Context(), m)
		wire.keepBack(isGrant)
		holder.Unlock()
		cancel()
		require.ErrorIs(t, (<-leaver).err, context.Canceled)
		notYet(t, next)
		require.Equal(t, 1, wire.deliver())
		now(t, next)
		m.Unlock()
		require.False(t, b.Exists("orders"))
	})
}

func TestALeaverGivesItsPlaceToThoseBehind(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		holder := b.client().Mutex("orders")
		holder.Lock()
		ctx, cancel := context.WithCancel(t.Context())
		leaver := lockAsync(ctx, b.client().Mutex("orders"))
		second := lockAsync(t.Context(), b.client().Mutex("orders"))
		third := lockAsync(t.Context(), b.client().Mutex("orders"))
		cancel()
		require.Error(t, (<-leaver).err)
		synctest.Wait()
		holder.Unlock()
		now(t, second)
		notYet(t, third)
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// Of the goroutines of a process, the next takes its place, in front of the others.
		holder := b.client().Mutex("orders")
		holder.Lock()
		m := b.client().Mutex("orders")
		ctx, cancel := context.WithCancel(t.Context())
		leaver := lockAsync(ctx, m)
		here := lockAsync(t.Context(), m)
		elsewhere := lockAsync(t.Context(), b.client().Mutex("orders"))
		cancel()
		require.Error(t, (<-leaver).err)
		synctest.Wait()
		holder.Unlock()
		now(t, here)
		notYet(t, elsewhere)
	})
}

func TestAtTheFrontAWaiterLooksWhenTheHoldersLeaseIsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		p.hold("1") // and it dies
		start := time.Now()
		wire := b.tap()
		l := <-lockAsync(t.Context(), newClient(t, wire).Mutex("orders", WithLease(time.Hour)))
		require.NoError(t, l.err)
		require.Equal(t, defaultLease+time.Millisecond, l.at.Sub(start))
		require.LessOrEqual(t, wire.count("check"), 3, "New's, one when it began to watch, and one at the end")
	})
}

func TestAtTheFrontAWaiterLooksOnceALeaseWhateverTheHolder(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"without expiry": 0, "with a long one": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				require.NoError(t, b.Set("orders", "another program's"))
				if ttl > 0 {
					b.SetTTL("orders", ttl)
				}
				start := time.Now()
				wire := b.tap()
				got := lockAsync(t.Context(), newClient(t, wire).Mutex("orders"))
				time.Sleep(time.Hour)
				checks := wire.count("check")
				require.LessOrEqual(t, checks, 362, "one in 10 s")
				time.Sleep(5 * time.Second)
				b.Del("orders") // and no event
				l := <-got
				require.NoError(t, l.err)
				require.Equal(t, time.Hour+defaultLease, l.at.Sub(start))
			})
		})
	}
}

func TestAWaiterThatComesToTheFrontLooksAfterItsHolder(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p, front := b.peer("p", "orders"), b.peer("front", "orders")
		start := time.Now()
		p.hold("1")
		front.acquire(front.entry("1"))
		got := lockAsync(t.Context(), b.client().Mutex("orders", WithLease(time.Hour)))
		time.Sleep(time.Second)
		front.leave(front.entry("1"))
		l := <-got // by its place it would have looked in two hours
		require.NoError(t, l.err)
		require.Equal(t, defaultLease+time.Millisecond, l.at.Sub(start))
	})
}

func TestAWaiterThatNeverAnswersCostsItsFirstLease(t *testing.T) {
	// Its connection is half open, so it counts as alive.
	inBubble(t, func(t *testing.T, b *bubble) {
		p, ghost := b.peer("p", "orders"), b.peer("ghost", "orders")
		e, held := p.hold("1")
		ghost.acquire(ghost.entry("1"))
		got := lockAsync(t.Context(), b.client().Mutex("orders"))
		time.Sleep(time.Second)
		p.release(e, held)
		start := time.Now()
		l := <-got
		require.NoError(t, l.err)
		require.LessOrEqual(t, l.at.Sub(start), shortLease+settleTime)
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// One that has no connection any more is passed over.
		p, ghost := b.peer("p", "orders"), b.peer("ghost", "orders")
		e, held := p.hold("1")
		ghost.acquire(ghost.entry("1"))
		got := lockAsync(t.Context(), b.client().Mutex("orders"))
		ghost.die()
		synctest.Wait()
		p.release(e, held)
		now(t, got)
	})
}

func TestWaitersOfOneClientKeepTheirOwnOptions(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		c := b.client()
		onlost := make(chan string, 10)
		mutex := func(name string, lease time.Duration) *Mutex {
			return c.Mutex("orders", WithLease(lease), WithOnLost(func(string, error) { onlost <- name }))
		}
		ctx, cancel := context.WithCancel(t.Context())
		leaver := lockAsync(ctx, mutex("leaver", time.Minute))
		short := lockAsync(t.Context(), mutex("short", time.Second))
		long := lockAsync(t.Context(), mutex("long", time.Hour))
		cancel()
		require.Error(t, (<-leaver).err)
		synctest.Wait()
		p.release(e, held)
		shortLease := leaseOf(t, now(t, short))
		require.Equal(t, time.Second, b.TTL("orders"))
		time.Sleep(10 * time.Second)
		require.True(t, shortLease.Valid())
		b.Del("orders")
		require.Equal(t, "short", <-onlost)
		longLease := leaseOf(t, now(t, long))
		time.Sleep(30 * time.Minute)
		require.True(t, longLease.Valid())
		require.Greater(t, b.TTL("orders"), 30*time.Minute)
		b.Del("orders")
		require.Equal(t, "long", <-onlost)
	})
}

func TestHoursOfWaitingCostFewCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		m := b.client(WithLease(time.Minute)).Mutex("orders")
		m.Lock()
		wire := b.tap()
		ctx, cancel := context.WithCancel(t.Context())
		got := lockAsync(ctx, newClient(t, wire, WithLease(time.Minute)).Mutex("orders"))
		time.Sleep(10 * time.Minute)
		goroutines, sent := runtime.NumGoroutine(), wire.total()
		time.Sleep(10 * time.Hour)
		require.LessOrEqual(t, wire.total()-sent, 1200)
		require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
		cancel()
		require.Error(t, (<-got).err)
	})
}

func TestAWaitEndsWithItsContextToTheMillisecond(t *testing.T) {
	for name, bend := range map[string]func(wire *tap){
		"while it waits":           func(*tap) {},
		"while it asks":            func(wire *tap) { wire.always("acquire", swallow) },
		"while it tries again":     func(wire *tap) { wire.always("acquire", loseRequest) },
		"while nobody can be told": func(wire *tap) { wire.always("leave", swallow) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				p := b.peer("p", "orders")
				p.hold("1")
				wire := b.tap()
				m := newClient(t, wire).Mutex("orders")
				bend(wire)
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				start := time.Now()
				_, err := m.LockContext(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, 50*time.Millisecond, time.Since(start))
				wire.always("acquire", nil)
				wire.always("leave", nil)
				time.Sleep(10 * time.Second)
				require.Zero(t, p.standing().Waiting, "and leaves nothing")
			})
		})
	}
}

func TestAWaitOfManyIsAsLongAsThoseBeforeItHold(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var wg sync.WaitGroup
		for i := range 60 {
			m := b.client().Mutex("orders")
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				start := time.Now()
				held, err := m.LockContext(ctx)
				require.NoError(t, err)
				require.Equal(t, time.Duration(i)*100*time.Millisecond, time.Since(start))
				time.Sleep(100 * time.Millisecond)
				require.NoError(t, m.UnlockContext(held))
			})
			synctest.Wait()
		}
		wg.Wait()
	})
}

func TestNoWakeIsMissedInAStorm(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const clients, locks, goroutines = 10, 50, 500
		var cs []*Client
		for range clients {
			cs = append(cs, b.client(WithLease(time.Hour))) // a timer would be far too late
		}
		var wg sync.WaitGroup
		start := time.Now()
		for i := range goroutines {
			m := cs[i%clients].Mutex(fmt.Sprint("lock", i%locks))
			hold := time.Duration(i*7919%5000) * time.Microsecond
			wg.Go(func() {
				for range 2 {
					m.Lock()
					time.Sleep(hold)
					m.Unlock()
				}
			})
		}
		wg.Wait()
		// 10 goroutines a lock, twice 5 ms each.
		require.Less(t, time.Since(start), 10*2*5*time.Millisecond)
		for _, c := range cs {
			require.Zero(t, c.Stats().WokenByTimer)
		}
	})
}

func TestTryLockAsksOnceAndDoesNotPushAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		p.hold("1")
		wire := b.tap()
		c := newClient(t, wire)
		m := c.Mutex("orders")
		asked := wire.total()
		require.False(t, m.TryLock())
		_, err := m.TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrLocked)
		var wait *WaitError
		require.ErrorAs(t, err, &wait)
		require.Equal(t, "p", wait.Holder)
		require.Equal(t, defaultLease, wait.Remaining)
		require.Equal(t, asked+2, wire.total(), "one request each")
		require.Zero(t, p.standing().Waiting)

		waiting := lockAsync(t.Context(), b.client().Mutex("orders"))
		require.False(t, m.TryLock())
		b.Del("orders") // free, and somebody waits
		require.False(t, m.TryLock())
		now(t, waiting)
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// What this process itself has or waits for need not be asked.
		wire := b.tap()
		c := newClient(t, wire)
		c.Mutex("orders").Lock()
		asked := wire.total()
		require.False(t, c.Mutex("orders").TryLock())
		require.Equal(t, asked, wire.total())
	})
}

func TestCloseEndsWaitsAtOnceAndLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		p.hold("1")
		wire := b.tap()
		c := newClient(t, wire)
		var waits []<-chan locked
		for i := range 50 {
			m := c.Mutex("orders")
			if i%2 == 0 {
				m = c.Mutex("orders", WithLease(time.Duration(i+1)*time.Second))
			}
			waits = append(waits, lockAsync(t.Context(), m))
		}
		panicked := make(chan any, 1)
		go func() {
			defer func() { panicked <- recover() }()
			c.Mutex("orders").Lock()
		}()
		synctest.Wait()
		start := time.Now()
		require.NoError(t, c.Close())
		require.NoError(t, c.Close(), "twice is fine")
		for _, got := range waits {
			require.Equal(t, ErrClosed, (<-got).err)
		}
		require.Equal(t, ErrClosed, <-panicked)
		require.Zero(t, time.Since(start))
		require.Zero(t, p.standing().Waiting)
		require.Zero(t, gatesOf(c))
		synctest.Wait()
		require.Zero(t, b.PubSubNumSub(protocol.ChannelFor(c.id))[protocol.ChannelFor(c.id)])

		asked := wire.total()
		_, err := c.Mutex("orders").LockContext(t.Context())
		require.Equal(t, ErrClosed, err)
		require.PanicsWithValue(t, ErrClosed, c.Mutex("orders").Lock)
		require.PanicsWithValue(t, ErrClosed, func() { c.Mutex("orders").TryLock() })
		_, err = c.Status(t.Context(), "orders")
		require.Equal(t, ErrClosed, err)
		require.Equal(t, ErrClosed, c.ForceUnlock(t.Context(), "orders"))
		require.Equal(t, asked, wire.total())
	})
}

func TestCloseGivesBackWhatIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		var held []context.Context
		var ms []*Mutex
		for i := range 20 {
			m := c.Mutex(fmt.Sprint("orders", i))
			ctx, err := m.LockContext(t.Context())
			require.NoError(t, err)
			held, ms = append(held, ctx), append(ms, m)
		}
		start := time.Now()
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(start))
		for i, ctx := range held {
			require.Equal(t, CauseClosed, causeOf(ctx))
			require.ErrorIs(t, context.Cause(ctx), ErrClosed)
			require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
			require.ErrorIs(t, ms[i].UnlockContext(ctx), ErrClosed)
			require.False(t, b.Exists(fmt.Sprint("orders", i)))
		}
		require.Zero(t, gatesOf(c))
	})
}

func TestCloseDoesNotWaitForEverForAServerThatIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		c := newClient(t, wire)
		c.Mutex("orders").Lock()
		got := lockAsync(t.Context(), c.Mutex("orders"))
		wire.goAway(true)
		start := time.Now()
		require.NoError(t, c.Close())
		require.Equal(t, ErrClosed, (<-got).err)
		require.Equal(t, closeLimit, time.Since(start))
		time.Sleep(defaultLease)
		require.False(t, b.Exists("orders"), "it lapses")
	})
}

func TestNobodyQueuesWhoWouldNotHear(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e := p.entry("1")
		e.Lease = time.Hour
		held := p.acquire(e)
		wire := b.tap()
		c := newClient(t, wire)
		wire.refuse(true) // no new connections: there is none for messages
		wire.cutEar()
		synctest.Wait()
		got := lockAsync(t.Context(), c.Mutex("orders"))
		time.Sleep(time.Minute)
		require.Zero(t, p.standing().Waiting)
		notYet(t, got)
		wire.refuse(false)
		time.Sleep(2*maxPause + requestLimit)
		require.Equal(t, 1, p.standing().Waiting)
		p.release(e, held)
		l := <-got
		require.NoError(t, l.err)
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// And one that is let go meanwhile is not missed.
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		c := newClient(t, wire)
		wire.refuse(true)
		wire.cutEar()
		synctest.Wait()
		got := lockAsync(t.Context(), c.Mutex("orders"))
		time.Sleep(time.Second)
		p.release(e, held)
		time.Sleep(requestLimit + maxPause)
		now(t, got)
		wire.refuse(false)
	})
}

func TestMutexServesACond(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var l sync.Locker = b.client().Mutex("orders")
		cond := sync.NewCond(l)
		ready, done := 0, make(chan int, 3)
		for i := range 3 {
			go func() {
				cond.L.Lock()
				defer cond.L.Unlock()
				for ready <= i {
					cond.Wait()
				}
				done <- i
			}()
		}
		for range 3 {
			synctest.Wait()
			cond.L.Lock()
			ready++
			cond.L.Unlock()
			cond.Broadcast()
			<-done
		}
	})
}
