package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
		require.NotEqual(t, primary, s.Primary())
		for range 20 {
			cycle()
		}
	})
}
