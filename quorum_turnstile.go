package valkeysync

import (
	"context"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// pass waits at a turnstile: at that of the first server that answers. leave lets the next through. A server that
// stops answering meanwhile is noticed by asking it; then it is the next server's, or none.
func (c *contest) pass(ctx context.Context) (leave func()) {
	turnstiles := c.turnstiles()
	for i, m := range c.q.members {
		if m.away.Load() || ctx.Err() != nil {
			continue
		}
		at, cancel := context.WithCancel(ctx)
		over := make(chan struct{})
		if !c.q.crew.run(func() { m.guard(quorumLimit(c.h.opts.lease), over, cancel) }) {
			cancel()
			break
		}
		held, err := turnstiles[i].LockContext(at)
		close(over)
		if err == nil {
			return func() {
				unlock := func() {
					defer cancel()
					if err := turnstiles[i].UnlockContext(context.WithoutCancel(held)); err != nil {
						events.turnstileFailed.to(c.q.log(), logKey(c.h.keys.Lock), logError(err))
					}
				}
				if !c.q.crew.run(unlock) {
					unlock()
				}
			}
		}
		cancel()
	}
	return func() {}
}

// guard asks a server from time to time whether it is there, until over is closed, and calls gone if it is not.
func (m *member) guard(limit time.Duration, over <-chan struct{}, gone func()) {
	for rest(2*limit, over) {
		_, err := m.run(m.c.ctx, time.Now().Add(limit), 0, func(ctx context.Context, server *protocol.Server, _ int64) (protocol.Reply, error) {
			return protocol.Reply{}, server.Client.Do(ctx, server.Client.B().Ping().Build()).Error()
		})
		if err != nil && !isReply(err) {
			gone()
			return
		}
	}
}
