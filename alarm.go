package valkeysync

import "time"

// alarm wakes a hold when something is due for it. It goes from one hold of a gate to the next, for most holds are
// over long before anything is, and a new timer costs more than one that is set anew. So it may ring for the
// hold after the one that it was set for: that looks for itself whether anything is due.
type alarm struct {
	g     *gate
	h     *hold // nil: nobody's
	timer *time.Timer
}

// alarmFor gives h an alarm that rings after d. The gate's mutex is held.
func (g *gate) alarmFor(h *hold, d time.Duration) *alarm {
	a := g.alarm
	if a == nil {
		a = &alarm{g: g, h: h}
		a.timer = time.AfterFunc(d, a.ring)
		return a
	}
	g.alarm = nil
	a.h = h
	a.timer.Reset(d)
	return a
}

func (a *alarm) ring() {
	a.g.mu.Lock()
	defer a.g.unlock()
	if a.h != nil {
		a.h.wake()
	}
}

// stop ends it for its hold. The gate's mutex is held.
func (a *alarm) stop() {
	a.timer.Stop()
	a.h = nil
	a.g.alarm = a
}
