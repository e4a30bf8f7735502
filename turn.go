package valkeysync

import (
	"slices"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// The turn: goroutines of one process hand a lock over to each other, without the server, as long as no
// other process waits, and for a bounded time after one does. (Lock cohorting: Dice, Marathe, Shavit 2012;
// the bound is what the starvation mode of Go's sync.Mutex does with 1 ms.) And the linger: a lock that
// nobody holds is kept for a while.

// maxHanded is how many acquisitions one hold can tell apart: the low ten bits of their tokens.
const maxHanded = 1 << 10

// contend takes note that another process waits.
func (h *hold) contend() {
	if !h.contended {
		h.contended = true
		h.turnEnds = time.Now().Add(h.opts.turn)
	}
	if h.lingering() {
		h.g.endLinger()
	}
}

// serves: the hold is what w wants, and stays so.
func (h *hold) serves(w want) bool {
	return h.entry.Mode == w.mode && h.entry.Weight == w.weight && h.entry.Lease == w.opts.lease && h.grace == w.opts.grace && h.shrinking == nil && h.valid()
}

// handOver gives a hold that was just unlocked to the next goroutine here, if the turn allows.
func (g *gate) handOver(h *hold) bool {
	if h.entry.Mode == protocol.Reader || g.kind == protocol.RWMutexKind || len(g.waiters) == 0 || h.opts.turn == 0 || h.handed >= maxHanded {
		return false
	}
	if h.contended && !time.Now().Before(h.turnEnds) {
		return false
	}
	w := g.waiters[0]
	if !h.serves(w.want) {
		return false
	}
	now := time.Now()
	g.waiters = g.waiters[1:]
	h.begin(w.opts, now)
	w.tell(g.lend(h, w.opts, now), nil)
	g.c.stats.handedOver.Add(1)
	g.settle()
	return true
}

// linger keeps a hold that nobody here wants for d, if it may, and reports whether it does.
func (h *hold) linger(d time.Duration) bool {
	if d <= 0 || h.contended || len(h.g.waiters) > 0 || h.handed >= maxHanded || h.shrinking != nil || !h.valid() {
		return false
	}
	h.lingerUntil = time.Now().Add(d)
	switch {
	case h.lingerTimer == nil:
		h.lingerTimer = time.AfterFunc(d, h.lingerOver)
		h.lingerAt = h.lingerUntil
	case h.lingerAt.IsZero() || h.lingerAt.After(h.lingerUntil):
		h.lingerTimer.Reset(d)
		h.lingerAt = h.lingerUntil
	}
	return true
}

// lingerOver runs when the time may be over: it is not set anew by every unlock, which costs more than all the
// rest of one.
func (h *hold) lingerOver() {
	h.g.mu.Lock()
	defer h.g.unlock()
	h.lingerAt = time.Time{}
	if !h.lingering() {
		return
	}
	if left := time.Until(h.lingerUntil); left > 0 {
		h.lingerTimer.Reset(left)
		h.lingerAt = h.lingerUntil
		return
	}
	h.g.endLinger()
}

func (h *hold) lingering() bool { return !h.lingerUntil.IsZero() }

func (h *hold) stopLinger() { h.lingerUntil = time.Time{} }

// endLinger gives back what lingers here, and queues in the same request for whoever waits.
func (g *gate) endLinger() (under []*release) {
	for _, h := range slices.Backward(g.holds) {
		if h.lingering() {
			h.stop()
			r := newRelease(h, nil, protocol.Queue)
			under = append(under, r)
			r.begin()
		}
	}
	return under
}
