package valkeysync

import (
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// keptPlace is a place in the server's queue that nobody here wants yet: with WithLinger an unlock for which
// others wait queues this process again in the same request, so that the next Lock needs no request either. What
// the linger keeps where nobody else is there is the lock; where somebody is, it is the place.
type keptPlace struct {
	until time.Time
	timer *time.Timer
}

// keepPlace makes the attempt that a release of h queues with nobody here for it; nil: it is not to be.
func (g *gate) keepPlace(h *hold) *attempt {
	if h.opts.linger == 0 || !h.contended || g.kind != protocol.MutexKind || len(g.waiters) > 0 || len(g.attempts) > 0 || g.closed {
		return nil
	}
	a := newAttempt(g, want{mode: h.entry.Mode, weight: h.entry.Weight, opts: h.opts})
	g.attempts = append(g.attempts, a)
	a.kept = &keptPlace{until: time.Now().Add(h.opts.linger), timer: time.AfterFunc(h.opts.linger, func() {
		g.mu.Lock()
		defer g.unlock()
		if a.unkeep() {
			g.settle()
		}
	})}
	return a
}

// unkeep: the place is for those who wait here, or for nobody. It reports whether it was kept until now.
func (a *attempt) unkeep() bool {
	k := a.kept
	if k == nil {
		return false
	}
	k.timer.Stop()
	a.kept = nil
	return true
}

// resume gives a place that was kept to the first who waits here again; one that does not fit is given up.
func (g *gate) resume(first want) {
	if a := g.attempt(first.mode); a != nil && a.unkeep() && !a.serves(first) {
		a.abandon()
	}
}
