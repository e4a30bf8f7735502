package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

func TestClusterGoesOnWhenPrimariesDie(t *testing.T) {
	eachCluster(t, func(t *testing.T, c *clustered) {
		opts := []Option{WithLease(3 * time.Second), WithCrashDetection(time.Second)}
		clients := []*Client{c.client(t, opts...), c.client(t, opts...), c.client(t, opts...)}
		keys := c.keys("herd-", 2)
		h := startHerd(clients, keys)
		h.goesOn(t, 20*time.Second)
		for range 2 {
			var held []context.Context
			for _, key := range c.keys("held-", 3) {
				held = append(held, keepLocked(t, clients[0], key))
			}
			dead := c.KillPrimary(protocol.Slot(keys[0]))
			h.goesOn(t, 30*time.Second)
			for _, ctx := range held {
				confirmedOrLost(t, clients[1], ctx)
				l, _ := FromContext(ctx)
				_ = clients[0].ForceUnlock(t.Context(), l.Key())
			}
			dead.Restart()
			c.AwaitSettled()
			h.goesOn(t, 20*time.Second)
		}
		h.end(t)
	})
}
