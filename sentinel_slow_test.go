//go:build slow

package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

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
