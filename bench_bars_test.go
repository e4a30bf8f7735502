package valkeysync

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The bars that are counts. They are no matter of the machine's speed, so going over one is a failure.
// Crash detection is off where it is not the point: its beats and looks come by the clock.

func TestWireCountsWhatTheServerRuns(t *testing.T) {
	t.Parallel()
	s := newSituation(t, testserver.Start(t, testserver.Valkey))
	c := s.clients(1)[0]
	s.server.ResetStats()
	_, sent := s.spent(func() {
		times(c.Mutex("a"))(10)
		client := s.dial()
		times(newRecipe(client, "b"))(7)
		require.NoError(t, client.Do(context.Background(), client.B().Ping().Message("*1\r\n$3\r\nGET\r\n").Build()).Error())
	})
	ran := s.server.Calls()
	require.EqualValues(t, ran["evalsha"], sent["evalsha"])
	require.EqualValues(t, ran["eval"], sent["eval"])
	require.EqualValues(t, 20+7, sent["evalsha"])
	require.EqualValues(t, 3, sent["eval"], "acquire, release and the recipe's script were not there")
	require.EqualValues(t, 7, sent["set"])
	require.EqualValues(t, 1, sent["ping"])
	require.Zero(t, sent["get"])
}

func TestUncontendedCostsTwoCommands(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, server *testserver.Server) {
		s := newSituation(t, server)
		c := s.clients(1, WithCrashDetection(0))[0]
		for _, p := range uncontended {
			t.Run(p.name, func(t *testing.T) {
				l := p.make(c, 0, t.Name())
				times(l)(50) // loads the scripts, and opens all connections: valkey-go takes one at random
				total, names := s.spent(func() { times(l)(100) })
				require.Equal(t, 200, total, names)
			})
		}
	})
}

// waitings are how many Clients wait in a crowd.
var waitings = []int{2, 16, 64, 200}

// In a bubble no time passes while there is work, so nothing is renewed, watched or looked at again in
// between: the count is that of the acquisitions alone.
func TestCommandsPerAcquisitionStayFlat(t *testing.T) {
	for _, p := range primitives {
		t.Run(p.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				w := newWire()
				shared := b.dial(w.wrap)
				few := waitings[:3] // the server in a bubble is slow; 200 wait on real ones below
				var clients []*Client
				for range few[len(few)-1] + 1 {
					clients = append(clients, newQuietClient(t, shared, WithCrashDetection(0)))
				}
				times(p.make(clients[0], 0, "warm"))(1) // loads the scripts
				for _, waiting := range few {
					lockers := p.crowd(clients[:waiting+1], fmt.Sprint(waiting))
					n := 2 * len(lockers)
					before := w.total()
					contend(lockers, n)
					require.Equal(t, 2*n, w.total()-before, "waiting=%d", waiting)
				}
			})
		})
	}
}

// The same on real servers, where time passes: what the half second brings that a waiter at the front waits
// before it watches the key is left out by taking no longer.
// Not parallel: it needs both cores.
func TestCommandsPerAcquisitionStayFlatOnServers(t *testing.T) {
	testserver.Each(t, nil, func(t *testing.T, server *testserver.Server) {
		s := newSituation(t, server)
		clients := s.clients(waitings[len(waitings)-1]+1, WithCrashDetection(0))
		times(clients[0].Mutex("warm"))(1)
		for _, p := range primitives {
			for _, waiting := range waitings {
				t.Run(fmt.Sprintf("%s/waiting=%d", p.name, waiting), func(t *testing.T) {
					lockers := p.crowd(clients[:waiting+1], t.Name())
					for n := 2 * len(lockers); ; n /= 2 {
						var took time.Duration
						total, names := s.spent(func() { took = contend(lockers, n) })
						if took < settleTime {
							require.LessOrEqual(t, float64(total)/float64(n), 2.1, "%d acquisitions: %v", n, names)
							return
						}
						require.Greater(t, n, waiting/8, "%d acquisitions took %v", n, took)
					}
				})
			}
		}
	})
}

// Not parallel: it needs both cores.
func TestReleaseWithManyWaitersCostsNoMore(t *testing.T) {
	testserver.Each(t, nil, func(t *testing.T, server *testserver.Server) {
		const waiting = 200
		s := newSituation(t, server)
		before := s.wire.counts()
		r := newRow(s, waiting, WithLease(time.Minute), WithCrashDetection(0))
		defer r.end()
		// The one at the front begins to watch the key, and looks once more then: wait for it, so that it
		// does not fall into the count.
		news := waiting + 1
		s.await("subscribe", before["subscribe"]+2*news+1)
		s.await("evalsha", before["evalsha"]+news+1+waiting+1)
		for range 5 {
			total, names := s.spent(r.next)
			require.LessOrEqual(t, total, 3, names)
			require.Equal(t, 1, names["evalsha"], names)
		}
	})
}

func TestReadersThatWaitComeInTogether(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, server *testserver.Server) {
		s := newSituation(t, server)
		r := newReaders(s, 20, WithCrashDetection(0))
		for range 5 {
			r.gather()
			total, names := s.spent(r.letIn)
			r.leave()
			require.LessOrEqual(t, total, 3, names)
		}
	})
}

// One holds, a hundred wait, nothing happens. The bubble's clock makes it an hour.
func TestIdleWaitersCostNextToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		w := newWire()
		shared := b.dial(w.wrap)
		const waiting = 100
		held := newClient(t, shared).Mutex("orders")
		held.Lock()
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range waiting {
			m := newClient(t, shared).Mutex("orders")
			wg.Go(func() {
				_, err := m.LockContext(ctx)
				require.ErrorIs(t, err, context.Canceled)
			})
			synctest.Wait()
		}
		before := w.total()
		const idle = 10 * time.Minute
		time.Sleep(idle)
		total := w.total() - before
		require.LessOrEqual(t, float64(total)/idle.Seconds(), 1.0)
		require.NotZero(t, total) // the holder renews
		stop()
		wg.Wait()
		held.Unlock()
	})
}
