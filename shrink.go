package valkeysync

import (
	"context"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// shrinking tells the server that of a hold's weight a part was released. One is under way at a time: it
// goes on, in the background, until the server has confirmed the weight that is left by then, so whoever
// releases another part waits for the same one.
type shrinking struct {
	h    *hold
	done chan struct{} // closed when err is what became of it
	err  error
}

// shrink has the server know that less of an acquisition is held, and blocks until it does, or ctx ends.
func (g *gate) shrink(ctx context.Context, l *Lease) error {
	g.mu.Lock()
	l.lapseLocked()
	h := l.hold
	switch {
	case l.lost != nil:
		defer g.unlock()
		return l.lostErr()
	case l.ended:
		g.unlock()
		return nil // the rest was released meanwhile
	}
	if h.shrinking == nil {
		s := &shrinking{h: h, done: make(chan struct{})}
		if !g.work(func() { s.run(l) }) {
			g.unlock()
			return ErrClosed
		}
		h.shrinking = s
	}
	s := h.shrinking
	g.unlock()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fault.Errorf("release of a part of %q not confirmed yet; it goes on in the background: %w", g.keys.Lock, contextEnd(ctx))
	}
}

// run sends what is left until the server knows it, or the hold is over.
func (s *shrinking) run(l *Lease) {
	h, g := s.h, s.h.g
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		g.mu.Lock()
		entry, value := h.entry, h.value()
		entry.Weight = l.held.Load()
		if l.over.Load() || entry.Weight == 0 || entry.Weight == h.entry.Weight {
			s.finish(l.lostErr())
			g.unlock()
			return
		}
		g.unlock()
		ctx, cancel := context.WithTimeout(g.c.ctx, requestLimit)
		r, err := g.c.server.Release(ctx, g.keys, value, &entry, protocol.Shrink, 0)
		cancel()
		if err == nil {
			pause = minPause / 2
			g.ear.heard(r.Now)
		}
		g.mu.Lock()
		switch {
		case h.over: // what becomes of it is said above
		case err == nil && r.Outcome == protocol.Held:
			h.entry = entry
		case err == nil:
			h.lose(takenOrDeleted(r.Holder))
		case judge(err) != passing:
			s.finish(err)
			g.unlock()
			return
		}
		over := h.done()
		g.unlock()
		if err != nil {
			rest(pause, over)
		}
	}
}

// finish: err is what became of it. The gate's mutex is held.
func (s *shrinking) finish(err error) {
	s.h.shrinking, s.err = nil, err
	close(s.done)
}
