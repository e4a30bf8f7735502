package valkeysync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// One test for each rule of the protocol that a model of it has shown to be needed: each plays the
// schedule that goes wrong without the rule.

func TestARepeatedAcquireCountsWhatRemainsOfTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		wire.on("acquire", swallowReply) // it holds, and does not know
		start := time.Now()
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, wire.count("acquire"))
		require.GreaterOrEqual(t, time.Since(start), requestLimit)
		require.Equal(t, start.Add(defaultLease-drift(defaultLease)), leaseOf(t, ctx).Until(), "the lease began with the first request")
	})
}

func TestACheckCountsWhatRemainsOfTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		got := lockAsync(t.Context(), newClient(t, wire).Mutex("orders"))
		wire.keepBack(isGrant)
		wire.always("renew", swallow) // what little is left would be renewed at once
		p.release(e, held)
		granted := time.Now()
		time.Sleep(time.Second) // half of the first lease
		wire.cutEar()           // a new connection makes the waiter check
		time.Sleep(time.Second / 2)
		require.Equal(t, granted.Add(shortLease-drift(defaultLease)), leaseOf(t, now(t, got)).Until())
	})
}

func TestARepeatedReleaseSaysWhatBecameOfTheNextAttempt(t *testing.T) {
	for _, name := range []string{"cut", "silent"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				wire := b.tap()
				m := newClient(t, wire).Mutex("orders")
				m.Lock()
				got := lockAsync(t.Context(), m)
				p := b.peer("p", "orders")
				e := p.entry("1")
				require.Equal(t, protocol.Queued, p.acquire(e).Outcome)
				lose := relay(loseReply)
				if name == "silent" {
					lose = func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
						run()
						_, err := p.Renew(ctx, &p.keys, p.standing().Value, e.Lease, false)
						require.NoError(t, err)
						<-ctx.Done()
						return valkey.NewErrorResult(ctx.Err())
					}
				}
				wire.on("release", lose)
				acquires := wire.count("acquire")
				m.Unlock()
				require.Equal(t, 1, p.standing().Waiting, "the second goroutine is in the queue, once")
				require.Equal(t, e.Ref(), p.holder())
				notYet(t, got)
				p.release(e, p.check(e))
				now(t, got)
				require.Equal(t, acquires, wire.count("acquire"), "no new attempt was needed")
				m.Unlock()
			})
		})
	}
}

func TestACheckTellsTheHolderAgainThatSomeoneWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		holder, waiter := b.peer("holder", "orders"), b.peer("waiter", "orders")
		holder.hold("1")
		e := waiter.entry("1")
		waits := func() (n int) {
			synctest.Wait()
			for _, m := range holder.messages() {
				if m.Verb == protocol.Waits && m.Attempt == "1" {
					n++
				}
			}
			return n
		}
		waiter.acquire(e)
		require.Equal(t, 1, waits())
		waiter.check(e)
		require.Equal(t, 1, waits())
	})
}

func TestNoGrantIsToldThatIsNotWritten(t *testing.T) {
	// A waiter that hears but is not counted as a listener (a pattern, a replica) is passed over. If the
	// message went out before that is decided, it would tell of a hold that is not.
	inBubble(t, func(t *testing.T, b *bubble) {
		holder, waiter := b.peer("holder", "orders"), b.mute("waiter", "orders")
		heard := make(chan string, 10)
		ear, done := waiter.Client.Dedicate()
		defer done()
		ear.SetPubSubHooks(valkey.PubSubHooks{OnMessage: func(m valkey.PubSubMessage) { heard <- m.Message }})
		require.NoError(t, ear.Do(t.Context(), ear.B().Psubscribe().Pattern("valkeysync:waiter*").Build()).Error())
		e, held := holder.hold("1")
		waiter.acquire(waiter.entry("1"))
		holder.release(e, held)
		synctest.Wait()
		require.Empty(t, holder.standing().Value)
		require.Empty(t, heard)
	})
}

func TestTheCallerOfAScriptIsAlive(t *testing.T) {
	// It gets its grant in the reply, with the full lease, though nobody listens on its channel.
	inBubble(t, func(t *testing.T, b *bubble) {
		deaf := b.mute("deaf", "orders")
		first := deaf.entry("1")
		r := deaf.acquire(first)
		require.Equal(t, protocol.Held, r.Outcome)
		require.Equal(t, defaultLease, r.Remaining)

		second := deaf.entry("2")
		deaf.acquire(second)
		b.Del("orders")
		r = deaf.check(second)
		require.Equal(t, protocol.Held, r.Outcome)
		require.Equal(t, defaultLease, r.Remaining)

		third := deaf.entry("3")
		deaf.acquire(third)
		b.Del("orders")
		r = deaf.acquire(third) // repeated
		require.Equal(t, protocol.Held, r.Outcome)
		require.Equal(t, defaultLease, r.Remaining)

		// And in a release that queues it again, where all before it are dead.
		ghost := b.mute("ghost", "orders")
		ghost.acquire(ghost.entry("1"))
		fourth := deaf.entry("4")
		r = deaf.reply(deaf.Release(t.Context(), &deaf.keys, third.Hold(r.Number, r.Since), &fourth, protocol.Queue, 0))
		require.Equal(t, protocol.Held, r.Outcome)
		require.Equal(t, defaultLease, r.Remaining)
	})
}

func TestWhateverMakesAnotherEntryTheFrontTellsIt(t *testing.T) {
	front := func(t *testing.T, p *peer) {
		t.Helper()
		synctest.Wait()
		heard := p.messages()
		require.NotEmpty(t, heard, "it was not told")
		require.Equal(t, protocol.Front, heard[0].Verb)
		require.Equal(t, "1", heard[0].Attempt)
	}
	for name, act := range map[string]func(holder, first *peer){
		"grant": func(holder, _ *peer) {
			h := protocol.ParseHolder(holder.standing().Value)
			holder.release(h.Entry, protocol.Reply{Number: h.Number, Since: h.Since})
		},
		"leave": func(_, first *peer) { first.leave(first.entry("1")) },
		"drop on a release": func(holder, first *peer) {
			first.die()
			synctest.Wait()
			h := protocol.ParseHolder(holder.standing().Value)
			again := holder.entry("2")
			holder.reply(holder.Release(holder.t.Context(), &holder.keys, h.Value, &again, protocol.Queue, 0))
		},
		"grant on a force": func(holder, _ *peer) { holder.reply(holder.Force(holder.t.Context(), &holder.keys)) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				holder, first, second, third := b.peer("holder", "orders"), b.peer("first", "orders"), b.peer("second", "orders"), b.peer("third", "orders")
				holder.hold("1")
				for _, p := range []*peer{first, second, third} {
					p.acquire(p.entry("1"))
				}
				act(holder, first)
				if name == "drop on a release" {
					synctest.Wait()
					require.Equal(t, protocol.Grant, second.messages()[0].Verb)
					front(t, third)
					return
				}
				front(t, second)
				require.Empty(t, third.messages())
			})
		})
	}
	t.Run("drop on a check", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			holder, first, second, third := b.peer("holder", "orders"), b.peer("first", "orders"), b.peer("second", "orders"), b.peer("third", "orders")
			holder.hold("1")
			for _, p := range []*peer{first, second, third} {
				p.acquire(p.entry("1"))
			}
			first.die()
			synctest.Wait()
			third.check(third.entry("1"))
			front(t, second)
		})
	})
}

func TestBehindTheFrontAWaiterLooksAfterAsManyLeasesAsItsPlace(t *testing.T) {
	// Those ahead of it are dead, and the lock is deleted: nobody is left who would say anything.
	inBubble(t, func(t *testing.T, b *bubble) {
		holder := b.peer("holder", "orders")
		holder.hold("1")
		var dead []*peer
		for _, id := range []string{"first", "second"} {
			p := b.peer(id, "orders")
			p.acquire(p.entry("1"))
			dead = append(dead, p)
		}
		start := time.Now()
		got := lockAsync(t.Context(), b.client().Mutex("orders"))
		for _, p := range dead {
			p.die()
		}
		b.Del("orders")
		l := <-got
		require.NoError(t, l.err)
		require.Equal(t, 3*defaultLease, l.at.Sub(start))
	})
}

func TestAGrantForAnAttemptThatNobodyWaitsForIsAnsweredByLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		// The wait is given up, and the leave that follows is lost as long as the network is away, so the
		// server grants the lock to nobody. The message is what tells.
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		c := newClient(t, wire)
		ctx, cancel := context.WithCancel(t.Context())
		got := lockAsync(ctx, c.Mutex("orders"))
		open := make(chan struct{})
		wire.on("leave", holdRequest(open))
		cancel()
		require.ErrorIs(t, (<-got).err, context.Canceled)
		next := p.entry("2")
		p.acquire(next)
		p.release(e, held)
		synctest.Wait()
		require.Equal(t, next.Ref(), p.holder())
		close(open)
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// The same, and another goroutine here waits for the lock, under another attempt.
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		c := newClient(t, wire)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := lockAsync(ctx, c.Mutex("orders"))
		got := lockAsync(t.Context(), c.Mutex("orders", WithLease(time.Minute)))
		open := make(chan struct{})
		wire.on("leave", holdRequest(open))
		cancel()
		require.ErrorIs(t, (<-gaveUp).err, context.Canceled)
		p.release(e, held)
		now(t, got)
		close(open)
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		// As an older process under the same id would have left it: nobody here knows the attempt.
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		c := b.client()
		lost := p.entry("lost")
		lost.Client = c.id
		p.acquire(lost)
		next := p.entry("2")
		p.acquire(next)
		p.release(e, held)
		synctest.Wait()
		require.Equal(t, next.Ref(), p.holder())
	})
}

func TestAMessageIsTimedByOneRequestsOwnPair(t *testing.T) {
	// Of two requests with very different ways, a send time of one and a server time of the other would
	// make a time that never was.
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		got := lockAsync(t.Context(), m)
		time.Sleep(3 * time.Second)
		wire.cutEar() // the waiter checks
		time.Sleep(3 * time.Second)
		wire.keepBack(isGrant)
		wire.always("renew", swallow)
		granted := time.Now()
		p.release(e, held)
		time.Sleep(time.Second)
		require.Equal(t, 1, wire.deliver())
		// The send time of the check and the server time of the acquire are 3 s apart.
		require.Equal(t, granted.Add(shortLease-drift(shortLease)), leaseOf(t, now(t, got)).Until())
		wire.always("renew", nil)
		m.Unlock()
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		start := time.Now()
		wire.on("acquire", slow(300*time.Millisecond, 400*time.Millisecond))
		wire.always("check", slow(300*time.Millisecond, 400*time.Millisecond))
		got := lockAsync(t.Context(), m)
		time.Sleep(5 * time.Second)
		p.release(e, held)
		// The request may have taken no time on its way: the grant is then 4.7 s after its sending.
		require.Equal(t, start.Add(4700*time.Millisecond+shortLease-drift(shortLease)), leaseOf(t, now(t, got)).Until())
		m.Unlock()
	})
}

func TestAMessageIsTimedByTheLeaseThatItNames(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders", WithLease(time.Hour))
		got := lockAsync(t.Context(), m)
		wire.always("renew", swallow)
		p.release(e, held)
		granted := time.Now()
		ctx := now(t, got)
		require.Equal(t, granted.Add(shortLease-drift(shortLease)), leaseOf(t, ctx).Until())
		<-ctx.Done()
		require.Equal(t, shortLease-drift(shortLease), time.Since(granted))
		require.ErrorIs(t, context.Cause(ctx), ErrLeaseLost)
		wire.always("renew", nil)
		require.ErrorIs(t, m.UnlockContext(ctx), ErrLeaseLost)
	})
}

func TestALostHoldIsFollowedByLeave(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		c := newClient(t, wire)
		ctx, err := c.Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		wire.always("renew", loseReply) // the server renews it, and nobody is told
		<-ctx.Done()
		synctest.Wait()
		require.False(t, b.Exists("orders"), "the server keeps it")
	})
}

func TestARequestThatComesTooLateIsRefused(t *testing.T) {
	// It would take the lock for nobody, after the leave that was to make sure of that.
	t.Run("acquire", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			m := newClient(t, wire).Mutex("orders")
			open := make(chan struct{})
			wire.on("acquire", holdRequest(open))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := m.LockContext(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(time.Minute)
			close(open)
			synctest.Wait()
			require.False(t, b.Exists("orders"))
		})
	})
	t.Run("acquire within its time", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			// The request may be run until 2 s after it was sent; only after that is a leave the last word.
			wire := b.tap()
			m := newClient(t, wire).Mutex("orders")
			open := make(chan struct{})
			wire.on("acquire", func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
				go func() {
					<-open
					run()
				}()
				return valkey.NewErrorResult(errWire)
			}, loseRequest)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := m.LockContext(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			time.Sleep(requestLimit - 20*time.Millisecond)
			require.Positive(t, wire.count("leave"))
			close(open)
			synctest.Wait()
			require.True(t, b.Exists("orders"), "it was run though it was given up")
			time.Sleep(100 * time.Millisecond)
			require.False(t, b.Exists("orders"), "and was taken back")
		})
	})
	t.Run("release with a next attempt", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			m := newClient(t, wire).Mutex("orders")
			m.Lock()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := lockAsync(ctx, m)
			p := b.peer("p", "orders")
			p.acquire(p.entry("1"))
			open := make(chan struct{})
			wire.always("release", holdRequest(open))
			go m.Unlock()
			synctest.Wait()
			cancel()
			require.Error(t, (<-got).err)
			time.Sleep(3 * time.Second)
			wire.always("release", nil)
			close(open)
			time.Sleep(time.Second)
			require.Equal(t, p.entry("1").Ref(), p.holder(), "it was given back")
			require.Zero(t, p.standing().Waiting, "and nobody was put in the queue")
			require.False(t, m.TryLock())
		})
	})
}

func TestAnAttemptThatWasDroppedJoinsAnewUnderAnotherName(t *testing.T) {
	// Under the old name, what was said of the old place could be taken for the new one.
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		e, held := p.hold("1")
		wire := b.tap()
		m := newClient(t, wire).Mutex("orders")
		got := lockAsync(t.Context(), m)
		wire.keepBack(isGrant)
		p.release(e, held) // the grant is kept back
		old := p.holder()
		require.NotEmpty(t, old)
		b.Del("orders") // an operator; the attempt is unknown now
		e2, held2 := p.hold("2")
		wire.cutEar()
		time.Sleep(time.Second) // the waiter has checked
		queue := p.standing().Queue
		require.Len(t, queue, 1)
		waiting, ok := protocol.ParseEntry(queue[0].Value)
		require.True(t, ok)
		require.NotEqual(t, old, waiting.Ref())
		wire.keepBack(nil)
		require.Equal(t, 1, wire.deliver()) // of the old attempt, and of no meaning
		notYet(t, got)
		require.Equal(t, e2.Ref(), p.holder())
		p.release(e2, held2)
		now(t, got)
		m.Unlock()
	})
}

func TestATokenIsGivenWithTheHoldNotWithThePlace(t *testing.T) {
	// A waiter that was passed over would otherwise bring an old one.
	inBubble(t, func(t *testing.T, b *bubble) {
		p := b.peer("p", "orders")
		_, held := p.hold("1")
		got := lockAsync(t.Context(), b.client().Mutex("orders")) // has its place now
		b.Del("orders")
		b.Del("{orders}:queue") // it loses its place to another
		e2, held2 := p.hold("2")
		require.Greater(t, held2.Number, held.Number)
		p.release(e2, held2)
		l := <-got
		require.NoError(t, l.err)
		require.Greater(t, leaseOf(t, l.ctx).Token(), token(held2.Number, 1023))
	})
	inBubble(t, func(t *testing.T, b *bubble) {
		p, q := b.peer("p", "orders"), b.peer("q", "orders")
		e, held := p.hold("1")
		early, late := q.entry("early"), p.entry("late")
		q.acquire(early)
		p.acquire(late)
		// early is passed over: its holder has the lock by a check after late's turn.
		q.leave(early)
		p.release(e, held)
		lateHold := p.check(late)
		require.Equal(t, protocol.Held, lateHold.Outcome)
		q.acquire(early)
		p.release(late, lateHold)
		earlyHold := q.check(early)
		require.Greater(t, earlyHold.Number, lateHold.Number)
	})
}
