package valkeysync

import (
	"context"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// replicasLimit is how long the replicas may take to acknowledge an acquisition; a third of the lease where
// that is less.
const replicasLimit = 2 * time.Second

// replicate sees to it that a hold counts only once as many replicas have it as WithReplicas asks for. The
// caller has not been told of the acquisition yet; the lease is certain or lost as any other's meanwhile.
// Where it fails the acquisition is given back, and the error says why; a *LostError: it was lost already.
func (g *gate) replicate(ctx context.Context, l *Lease) error {
	n := l.opts.replicas
	began := time.Now()
	limit := min(l.opts.lease/3, replicasLimit)
	pause := minPause
	for {
		g.mu.Lock()
		h := l.hold
		l.lapseLocked()
		lost, have, value, lease := l.lost, h.copies, h.value(), h.term
		g.unlock()
		switch {
		case lost != nil:
			return lost
		case have >= n:
			return nil
		}
		left := limit - time.Since(began)
		var copies int
		var err error
		if left > 0 {
			copies, err = g.spread(ctx, h, value, lease, n, left)
		}
		left = limit - time.Since(began)
		switch {
		case err == nil && copies >= n:
			continue
		case ctx.Err() != nil:
			err = &WaitError{Key: g.keys.Lock, Err: contextEnd(ctx)}
		case err == nil:
			err = fault.Errorf("%w: %q: %d of the %d replicas that WithReplicas asks for acknowledged it within %v", ErrNotReplicated, g.keys.Lock, copies, n, limit)
		case judge(err) == passing && left > pause && sleep(ctx, pause):
			pause = min(2*pause, maxPause)
			continue
		default:
			err = fault.Errorf("%w: %q: the replicas could not be asked: %w", ErrNotReplicated, g.keys.Lock, err)
		}
		g.mu.Lock()
		g.giveBack(l)
		g.unlock()
		return err
	}
}

// spread renews a hold and waits until n replicas have that, and with it all that came before.
func (g *gate) spread(ctx context.Context, h *hold, value string, lease time.Duration, n int, limit time.Duration) (copies int, err error) {
	limited, cancel := context.WithTimeout(ctx, limit+requestLimit)
	defer cancel()
	sent := g.ear.now()
	r, copies, err := g.c.server.Replicate(limited, g.keys, value, lease, n, limit)
	if err != nil {
		return 0, err
	}
	g.ear.heard(r.Now)
	g.mu.Lock()
	defer g.unlock()
	if h.over {
		return copies, nil // as the caller will see
	}
	if r.Outcome != protocol.Held {
		h.lose(takenOrDeleted(r.Holder))
		return copies, nil
	}
	h.extend(reading{sent, r.Now}, r.Remaining)
	h.copies = max(h.copies, copies)
	return copies, nil
}
