package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Waits that are given up, and locks that are given back, at every moment: nothing of them stays.

// Whatever moment the context ends at, either the lock is held or nothing is.
func TestLockGivenUpAtAnyMoment(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		a, b := on(t, s), on(t, s)
		var held, given int
		for i := range 300 {
			m := []*Client{a, b}[i%2].Mutex("orders")
			ctx, cancel := context.WithCancel(context.Background())
			timer := time.AfterFunc(rand.N(time.Duration(1+i%40)*100*time.Microsecond), cancel)
			got, err := m.LockContext(ctx)
			switch {
			case err == nil:
				held++
				if err := m.UnlockContext(got); err != nil {
					require.ErrorIs(t, err, context.Canceled) // and it goes on in the background
				}
			default:
				given++
				require.ErrorIs(t, err, context.Canceled)
				var wait *WaitError
				require.ErrorAs(t, err, &wait)
			}
			timer.Stop()
			cancel()
		}
		t.Logf("%d held, %d given up", held, given)
		nothingLeft(t, s, "orders")
		m := a.Mutex("orders")
		unlock(t, m, lock(t, m))
	})
}

// Thousands of waits that end by their contexts leave neither entries nor channels.
func TestManyWaitsGivenUp(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := on(t, s)
		const keys, each = 40, 25
		baseline := subscribersLike(t, s, "*")
		var wg sync.WaitGroup
		for i := range keys {
			key := fmt.Sprint("key ", i)
			command(t, s, "SET", key, "foreign")
			wg.Go(func() {
				for range each {
					ctx, cancel := context.WithTimeout(context.Background(), rand.N(4*time.Millisecond))
					if _, err := c.Mutex(key).LockContext(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v", err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		for i := range keys {
			key := fmt.Sprint("key ", i)
			command(t, s, "DEL", key)
			nothingLeft(t, s, key)
		}
		require.LessOrEqual(t, subscribersLike(t, s, "*"), baseline+keys)
		require.Positive(t, c.Stats().GaveUp)
		require.Zero(t, gatesOf(c), "nor is anything left here")
	})
}

// gatesOf is how many keys a Client has to do with.
func gatesOf(c *Client) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, g := range c.gates {
		if g.users > 0 {
			n++
		}
	}
	return n
}

// The context of a lock ends with the one that it was asked with; a lock can be given back all the same.
func TestUnlockAfterTheContextHasEnded(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		m := on(t, s).Mutex("orders")
		ctx, cancel := context.WithCancel(context.Background())
		held, err := m.LockContext(ctx)
		require.NoError(t, err)
		cancel()
		<-held.Done()
		require.True(t, exists(t, s, "orders"), "a context that ends unlocks nothing by itself")
		require.NoError(t, m.UnlockContext(held))
		require.False(t, exists(t, s, "orders"))

		ctx, cancel = context.WithCancel(context.Background())
		_, err = m.LockContext(ctx)
		require.NoError(t, err)
		cancel()
		m.Unlock()
		require.False(t, exists(t, s, "orders"))

		// Do ends with its function, and that with its context.
		ctx, cancel = context.WithCancel(context.Background())
		err = m.Do(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		require.False(t, exists(t, s, "orders"))
		nothingLeft(t, s, "orders")
	})
}

// The reply to an acquire is lost, and the caller gives up: what the server has given is taken back as soon
// as there is a connection, long before the lease ends.
func TestAcquireWithoutAReplyIsTakenBack(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		px := proxy.Start(t, s.Addr())
		m := through(t, s, px, WithLease(time.Minute)).Mutex("orders")
		unlock(t, m, lock(t, m)) // it has its connections
		px.BlackholeRole(proxy.Commands, proxy.ToClient, true)
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err := m.LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, exists(t, s, "orders"), "the server has run it")
		px.BlackholeRole(proxy.Commands, proxy.ToClient, false)
		nothingLeft(t, s, "orders")
	})
}

// A network that breaks all the time, callers without patience: in the end all is as it was.
func TestNothingIsLeftByABadNetwork(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		px := proxy.Start(t, s.Addr())
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for range 3 {
			c := newClient(t, s.Client(t, via(px), impatient, func(o *valkey.ClientOption) { o.PipelineMultiplex = 2 }), WithLease(time.Second))
			m := c.Mutex("orders")
			for range 3 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						ctx, cancel := context.WithTimeout(context.Background(), rand.N(300*time.Millisecond))
						if held, err := m.LockContext(ctx); err == nil {
							_ = m.UnlockContext(held) // anything may come of it
						}
						cancel()
					}
				})
			}
		}
		for range 40 {
			<-time.After(rand.N(80 * time.Millisecond))
			switch rand.IntN(4) {
			case 0:
				px.CutRole(proxy.Messages)
			case 1:
				px.Reset()
			case 2:
				px.Blackhole([]proxy.Direction{proxy.ToServer, proxy.ToClient}[rand.IntN(2)], true)
				<-time.After(20 * time.Millisecond)
				px.Blackhole(proxy.Both, false)
			default:
				px.Cut()
			}
		}
		close(stop)
		wg.Wait()
		nothingLeft(t, s, "orders")
		m := on(t, s).Mutex("orders")
		unlock(t, m, lock(t, m))
	})
}
