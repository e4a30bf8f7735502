package valkeysync

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// eachSentinel runs fn for each flavor on a primary with a replica, watched by sentinels.
func eachSentinel(t *testing.T, fn func(t *testing.T, s *testserver.Sentinel)) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			fn(t, testserver.StartSentinel(t, f, 1, notifying...))
		})
	}
}

func TestSentinelClientsGoOnWhenThePrimaryDies(t *testing.T) {
	eachSentinel(t, func(t *testing.T, s *testserver.Sentinel) {
		opts := []Option{WithLease(3 * time.Second), WithCrashDetection(time.Second)}
		clients := []*Client{newClient(t, s.Client(t), opts...), newClient(t, s.Client(t), opts...), newClient(t, s.Client(t), opts...)}
		keys := []string{"herd-1", "herd-2", "herd-3"}
		h := startHerd(clients, keys)
		h.goesOn(t, 20*time.Second)
		held := []context.Context{keepLocked(t, clients[0], "held-1"), keepLocked(t, clients[1], "held-2")}
		dead := s.KillPrimary()
		s.AwaitSettled() // the sentinels may need more than one vote
		h.goesOn(t, 30*time.Second)
		for _, ctx := range held {
			confirmedOrLost(t, clients[2], ctx)
		}
		dead.Restart()
		s.AwaitSettled()
		h.goesOn(t, 20*time.Second)
		s.Failover() // in order, and the other way round
		h.goesOn(t, 30*time.Second)
		for _, ctx := range held {
			confirmedOrLost(t, clients[2], ctx)
		}
		h.end(t)
	})
}

func TestTokensRiseWhereAFailoverLosesWrites(t *testing.T) {
	eachSentinel(t, func(t *testing.T, s *testserver.Sentinel) {
		c := newClient(t, s.Client(t), WithLease(2*time.Second))
		m := c.Mutex("k")
		var last int64
		cycle := func() {
			held, err := m.LockContext(t.Context())
			require.NoError(t, err)
			l, _ := FromContext(held)
			require.Greater(t, l.Token(), last)
			last = l.Token()
			_ = m.UnlockContext(held) // may be lost
		}
		cycle()
		// The replica hears nothing of what follows.
		primary, replica := s.Primary(), s.Replicas()[0]
		_, err := replica.Do("REPLICAOF", "NO", "ONE")
		require.NoError(t, err)
		_, err = primary.Do("CLIENT", "KILL", "TYPE", "replica")
		require.NoError(t, err)
		for range 200 {
			cycle()
		}
		primary.Kill()
		_, err = replica.Do("FLUSHALL")
		require.NoError(t, err)
		cycle()
		require.NotSame(t, primary, s.Primary())
		for range 20 {
			cycle()
		}
	})
}

// split sends commands to one server and, as long as it is asked for there, its messages from another.
type split struct {
	valkey.Client
	ears  valkey.Client
	apart atomic.Bool
	made  atomic.Int64 // subscriber connections to the other server
}

func (s *split) Dedicate() (valkey.DedicatedClient, func()) {
	if s.apart.Load() {
		s.made.Add(1)
		return s.ears.Dedicate()
	}
	return s.Client.Dedicate()
}

func TestSubscriberOnADemotedServerIsNoticed(t *testing.T) {
	replicated(t, func(t *testing.T, p, r *testserver.Server) {
		// What is published on the primary reaches the subscribers of its replica, so nothing is missing to
		// them; but nobody counts them among the living.
		ears := r.Client(t)
		client := func(opts ...Option) (*Client, *split) {
			s := &split{Client: p.Client(t), ears: ears}
			s.apart.Store(true)
			c := newClient(t, s, append(opts, WithLease(time.Minute))...)
			s.apart.Store(false)
			return c, s
		}
		whole := func(c *Client) {
			t.Helper()
			channel := protocol.ChannelFor(c.id)
			require.Eventually(t, func() bool {
				m, err := p.Do("PUBSUB", "NUMSUB", channel)
				require.NoError(t, err)
				n, err := m.AsIntMap()
				require.NoError(t, err)
				return n[channel] == 1
			}, 10*time.Second, time.Millisecond, "the subscription is where the scripts run")
		}
		holder, s := client(WithCrashDetection(defaultGrace))
		require.EqualValues(t, 1, s.made.Load())
		held := keepLocked(t, holder, "k")
		whole(holder) // by its beats
		require.NoError(t, held.Err(), "%v", context.Cause(held))

		waiter, _ := client()
		other := newClient(t, p.Client(t))
		got := inBackground(t.Context(), waiter.Mutex("k"))
		queued(t, p, other, "k", 1)
		// Somebody's check drops who is not heard.
		ctx, cancel := context.WithCancel(t.Context())
		behind := inBackground(ctx, other.Mutex("k"))
		queued(t, p, other, "k", 2)
		require.NoError(t, holder.ForceUnlock(t.Context(), "k"))
		arrives(t, behind)
		cancel()
		waiter.each(nil, func(g *gate) { g.gap(false) }) // it looks, by whatever reason
		whole(waiter)
		require.NoError(t, other.ForceUnlock(context.Background(), "k"))
		arrives(t, got)
	})
}
