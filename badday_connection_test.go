package valkeysync

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Connections break, or go silent without breaking.

func TestSubscriberKilledWhileTheLockIsReleased(t *testing.T) {
	t.Parallel()
	onBothByDefault(t, notifying, func(t *testing.T, s *testserver.Server, opts ...Option) {
		p := newPair(t, s, "orders", append(opts, WithLease(30*time.Second))...)
		for range 5 {
			// The grant's message goes out while nobody listens, or nobody is there to be granted it.
			command(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
			unlock(t, p.holder, p.held)
			released := time.Now()
			got := p.waits.got(t, soon)
			require.Less(t, p.waits.at.Sub(released), 5*time.Second, "long before any timer")
			unlock(t, p.waiter, got)
			eventually(t, soon, "both hear", func() bool { return p.holder.c.hub.hears() && p.waiter.c.hub.hears() })
			p.held = lock(t, p.holder)
			p.waits = take(context.Background(), p.waiter)
			queued(t, s, p.holder.c, p.key, 1)
		}
		require.Positive(t, p.waiter.c.Stats().Reconnects)
		p.stillHeld()
	})
}

func TestAllConnectionsKilled(t *testing.T) {
	t.Parallel()
	onBothByDefault(t, notifying, func(t *testing.T, s *testserver.Server, opts ...Option) {
		p := newPair(t, s, "orders", append(opts, WithLease(3*time.Second))...)
		l, _ := FromContext(p.held)
		for range 5 {
			for _, kind := range []string{"normal", "pubsub"} {
				command(t, s, "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
			}
			eventually(t, soon, "both hear", func() bool { return p.holder.c.hub.hears() && p.waiter.c.hub.hears() })
		}
		before := l.Until()
		eventually(t, soon, "renewed", func() bool { return l.Until().After(before) })
		p.stillHeld()
	})
}

// The connection breaks again, and again, before it is whole.
func TestConnectionBreaksWhileItIsMadeAnew(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		direct := on(t, s, WithLease(30*time.Second)).Mutex("orders")
		px := proxy.Start(t, s.Addr())
		m := newClient(t, s.Client(t, via(px)), WithLease(30*time.Second)).Mutex("orders")
		held := lock(t, direct)
		waits := take(context.Background(), m)
		queued(t, s, direct.c, "orders", 1)
		px.SetDelayRole(proxy.Messages, 2*time.Millisecond, 2*time.Millisecond)
		for i := range 10 {
			switch i % 3 {
			case 0: // before it can subscribe
				px.Refuse(true)
				px.Cut()
				eventually(t, soon, "noticed", func() bool { return !m.c.hub.hears() })
				px.Refuse(false)
			case 1: // while it subscribes
				eventually(t, soon, "connecting", func() bool { return px.ConnsRole(proxy.Messages) > 0 })
				px.CutRole(proxy.Messages)
			default: // when it has just subscribed
				eventually(t, soon, "hears", m.c.hub.hears)
				px.Reset()
			}
		}
		unlock(t, direct, held)
		got := waits.got(t, soon)
		unlock(t, m, got)
		nothingLeft(t, s, "orders")
	})
}

// A subscriber connection that stays open and says nothing more is found out by what should come on it,
// not by what can be sent, and replaced.
func TestDeafSubscriberIsReplaced(t *testing.T) {
	t.Parallel()
	directions := map[string]proxy.Direction{"replies lost": proxy.ToClient, "both ways lost": proxy.Both}
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for name, direction := range directions {
			cases = append(cases,
				sub{name + ", a waiter", func(t *testing.T) {
					direct := on(t, s, WithLease(2*time.Second)).Mutex("waited for, " + name)
					px := proxy.Start(t, s.Addr())
					m := newClient(t, s.Client(t, via(px)), WithLease(4*time.Second)).Mutex("waited for, " + name)
					held := lock(t, direct)
					waits := take(context.Background(), m)
					queued(t, s, direct.c, m.keys.Lock, 1)
					px.BlackholeRole(proxy.Messages, direction, true)
					unlock(t, direct, held) // the message is lost; the hold that it speaks of lapses
					unlock(t, m, waits.got(t, soon))
					px.BlackholeRole(proxy.Messages, direction, false)
					eventually(t, soon, "hears again", m.c.hub.hears)
					nothingLeft(t, s, m.keys.Lock)
				}},
				sub{name + ", a holder", func(t *testing.T) {
					px := proxy.Start(t, s.Addr())
					c := newClient(t, s.Client(t, via(px)), WithLease(1500*time.Millisecond))
					m := c.Mutex("held, " + name)
					held := lock(t, m)
					px.BlackholeRole(proxy.Messages, direction, true)
					// Renewals ask for an echo.
					eventually(t, soon, "noticed", func() bool { return !c.hub.hears() })
					px.BlackholeRole(proxy.Messages, direction, false)
					eventually(t, soon, "replaced", c.hub.hears)
					require.NoError(t, held.Err(), "commands were never disturbed")
					unlock(t, m, held)
				}},
			)
		}
		together(t, cases...)
	})
}

// Messages that are lost now and then cost time, and nothing else.
func TestLostMessagesAreMadeUpFor(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const rounds = 100
		px := proxy.Start(t, s.Addr())
		var ms []*Mutex
		for range 4 {
			ms = append(ms, newClient(t, s.Client(t, via(px)), WithLease(2*time.Second)).Mutex("orders"))
		}
		var wg sync.WaitGroup
		var inside, total atomic.Int32
		for _, m := range ms {
			wg.Go(func() {
				for range rounds {
					ctx, err := m.LockContext(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					if inside.Add(1) != 1 {
						t.Error("two holders")
					}
					if total.Add(1)%20 == 0 {
						px.CutRole(proxy.Messages)
					}
					inside.Add(-1)
					if err := m.UnlockContext(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		within(t, 40*time.Second, "all rounds", wg.Wait)
		require.EqualValues(t, rounds*len(ms), total.Load())
		nothingLeft(t, s, "orders")
	})
}

// A holder that is cut off is told before anybody else can have the lock.
func TestCutOffHolderIsToldFirst(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for i := range 20 {
			direction := []proxy.Direction{proxy.ToServer, proxy.ToClient, proxy.Both}[i%3]
			lease := time.Duration(300+50*(i%5)) * time.Millisecond
			cases = append(cases, sub{fmt.Sprint(i), func(t *testing.T) {
				px := proxy.Start(t, s.Addr())
				m := newClient(t, s.Client(t, via(px), impatient), WithLease(lease)).Mutex(t.Name())
				other := on(t, s).Mutex(t.Name()) // whose lease a slow machine does not end
				held := lock(t, m)
				cancelled := make(chan time.Time, 1)
				context.AfterFunc(held, func() { cancelled <- time.Now() })
				waits := take(context.Background(), other)
				px.Blackhole(direction, true)
				got := waits.got(t, soon)
				require.Error(t, held.Err())
				l, _ := FromContext(held)
				require.False(t, l.Valid())
				require.True(t, l.hold.until.Before(waits.at), "certain until %v, given away at %v", l.hold.until, waits.at)
				select {
				case at := <-cancelled:
					t.Logf("told %v before", waits.at.Sub(at))
				case <-time.After(soon):
					t.Fatal("the context never ended")
				}
				require.Greater(t, tokenOf(t, got), tokenOf(t, held))
				px.Blackhole(direction, false)
				require.ErrorIs(t, m.UnlockContext(held), ErrLeaseLost)
				require.NoError(t, got.Err(), "the late one touches nothing: %v", context.Cause(got))
				unlock(t, other, got)
				nothingLeft(t, s, t.Name())
			}})
		}
		together(t, cases...)
	})
}

// A client that speaks the older protocol has one more connection, for messages.
func TestRESP2Client(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		resp2 := func(o *valkey.ClientOption) { o.AlwaysRESP2 = true }
		c := newClient(t, s.Client(t, resp2), WithLease(2*time.Second))
		require.True(t, c.Stats().Notifications)
		m, other := c.Mutex("orders"), on(t, s).Mutex("orders")
		for range 3 {
			theirs := lock(t, other)
			waits := take(context.Background(), m)
			queued(t, s, c, "orders", 1)
			command(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
			unlock(t, other, theirs)
			unlock(t, m, waits.got(t, soon))
			eventually(t, soon, "hears", c.hub.hears)
		}
		command(t, s, "SET", "orders", "foreign")
		waits := take(context.Background(), m)
		watched(t, s, "orders", 1)
		command(t, s, "DEL", "orders")
		unlock(t, m, waits.got(t, soon))
		nothingLeft(t, s, "orders")
	})
}
