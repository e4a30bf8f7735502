package valkeysync

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// handle is what the primitives' faces share: the acquisitions that one Mutex (or one side of an RWMutex)
// has given out and not yet got back.
type handle struct {
	c    *Client
	kind protocol.Kind
	keys protocol.Keys
	opts *options
	err  error // the key or an option cannot be used

	mu    sync.Mutex
	out   []*Lease // living
	aside *aside   // nil: there never were any; a program may have very many handles
}

// aside are the acquisitions of a handle with which something is wrong.
type aside struct {
	lost    []*Lease // lost, and their unlock has not come yet
	pending []*Lease // unlocked, and the server has not confirmed it in time

	// Of those that were lost and have a context, how much was counted as unlocked by who came without one while others
	// live that have none.
	unclear map[*Lease]int64
}

func (h *handle) init(c *Client, kind protocol.Kind, key string, opts []Option) {
	h.c, h.kind, h.opts = c, kind, &c.opts
	var err, wrong error
	h.keys, err = protocol.KeysFor(c.opts.client.prefix, key)
	if len(opts) > 0 {
		own := c.opts
		wrong = own.apply(opts)
		h.opts = &own
	}
	h.err = errors.Join(err, wrong)
}

// noOwner refuses WithOwner for what is no Mutex.
func (h *handle) noOwner(what, key string) {
	if h.opts.owner != "" {
		h.err = errors.Join(h.err, fault.Errorf("%w: WithOwner(%q) on %s(%q): only a Mutex has an owner; leave it out", ErrInvalidOption, h.opts.owner, what, key))
	}
}

func (h *handle) acquire(ctx context.Context, w want) (*Lease, error) {
	if h.err != nil {
		return nil, h.err
	}
	if ctx.Err() != nil {
		return nil, &WaitError{Key: h.keys.Lock, Err: contextEnd(ctx)}
	}
	w.opts = h.opts
	if h.opts.contest != nil {
		l, err := h.opts.contest.acquire(ctx, w)
		if err == nil {
			h.keep(l, w.context)
		}
		return l, err
	}
	g, err := h.c.enter(h.kind, &h.keys)
	if err != nil {
		return nil, err
	}
	defer h.c.leave(g)
	if l, err := g.reenter(ctx, w); l != nil || err != nil {
		if l != nil {
			h.keep(l, w.context)
		}
		return l, err
	}
	trace := h.trace(ctx, w)
	pause := minPause
	for {
		l, err := g.acquire(ctx, w)
		if err != nil {
			return nil, trace.failed(err)
		}
		if w.opts.replicas > 0 {
			err = g.replicate(ctx, l)
		}
		if err == nil {
			trace.acquired(ctx, l)
			h.keep(l, w.context)
			return l, nil
		}
		if !errors.Is(err, ErrLeaseLost) && (!w.patient || judge(err) == fatal) {
			return nil, trace.failed(err)
		}
		events.acquireRepeated.to(h.c.opts.client.logger, logKey(h.keys.Lock), logError(err))
		sleep(ctx, pause) // an acquisition with a ctx that has ended says so
		pause = min(2*pause, maxPause)
	}
}

// keep takes note of an acquisition that has been given out; bound: with a context.
func (h *handle) keep(l *Lease, bound bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if bound && !l.bound { // one that is entered again is bound, and may be another handle's as well
		l.bound = true
	}
	h.sort()
	h.out = append(h.out, l)
}

// sort puts the acquisitions whose lease was lost aside.
func (h *handle) sort() {
	keep := h.out[:0]
	for _, l := range h.out {
		if l.isLost() {
			a := h.rare()
			a.lost = append(a.lost, l)
		} else {
			keep = append(keep, l)
		}
	}
	clear(h.out[len(keep):])
	h.out = keep
}

// rare is aside, made where there is none.
func (h *handle) rare() *aside {
	if h.aside == nil {
		h.aside = new(aside)
	}
	return h.aside
}

// take chooses, and takes out, the acquisition that an unlock is for: the one that ctx carries; else one
// that was lost, else one that lives; else one whose unlock was called before and is not confirmed. Of
// several the oldest that no context carries, for whoever has such a context unlocks with it.
func (h *handle) take(ctx context.Context) *Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sort()
	a := h.aside
	if a == nil {
		a = new(aside)
	}
	if own, ok := h.carried(ctx); ok {
		is := func(l *Lease) bool { return l == own }
		return pick(is, &a.lost, &h.out, &a.pending) // nil: given back already, or another handle's
	}
	var l *Lease
	for _, list := range [...]*[]*Lease{&a.lost, &h.out, &a.pending} {
		if l = pick(loose, list); l == nil {
			l = pick(anyone, list)
		}
		if l != nil {
			break
		}
	}
	h.counted(l, 1)
	return l
}

// counted takes note of how much of l, which was taken out (nil: nothing was), a call without a context was counted
// for. The handle's mutex is held.
func (h *handle) counted(l *Lease, n int64) {
	a := h.aside
	switch {
	case a == nil:
	case !slices.ContainsFunc(a.lost, loose) && !slices.ContainsFunc(h.out, loose):
		a.unclear = nil // whoever has no context has come by now
	case l.bound:
		if a.unclear == nil {
			a.unclear = map[*Lease]int64{}
		}
		a.unclear[l] += n
	}
}

// makeGood is for a call for which there is nothing to take: ErrNotLocked. But where ctx carries what was lost, and a call
// without a context was counted for that, it was another holder's: what that one has is given back now.
func (h *handle) makeGood(ctx context.Context) error {
	own, ok := h.carried(ctx)
	h.mu.Lock()
	var other *Lease
	if a := h.aside; ok && a != nil && a.unclear[own] > 0 {
		delete(a.unclear, own)
		other = pick(loose, &a.lost, &h.out)
	}
	h.mu.Unlock()
	if other == nil {
		return ErrNotLocked
	}
	_ = h.end(ctx, other)
	return h.end(ctx, own) // how it was lost
}

// pick takes out the first for which ok holds; nil: there is none.
func pick(ok func(*Lease) bool, lists ...*[]*Lease) *Lease {
	for _, list := range lists {
		if i := slices.IndexFunc(*list, ok); i >= 0 {
			l := (*list)[i]
			*list = slices.Delete(*list, i, i+1)
			return l
		}
	}
	return nil
}

func anyone(*Lease) bool { return true }

// loose: no context carries it.
func loose(l *Lease) bool { return !l.bound }

// carried is the acquisition of this primitive that ctx carries, if it does: exactly that is meant.
func (h *handle) carried(ctx context.Context) (*Lease, bool) {
	l := carried(ctx, h.gave)
	return l, l != nil
}

// gave: the acquisition is of this primitive.
func (h *handle) gave(l *Lease) bool {
	if h.opts.contest != nil {
		return h.opts.contest.gave(l)
	}
	return l.gate != nil && l.gate.c == h.c && l.gate.kind == h.kind && l.gate.keys.Lock == h.keys.Lock
}

func (h *handle) mustLock(mode protocol.Mode) {
	if _, err := h.acquire(context.Background(), want{mode: mode, weight: 1, patient: true}); err != nil {
		panic(err)
	}
}

func (h *handle) tryLock(mode protocol.Mode) bool {
	_, err := h.acquire(context.Background(), want{mode: mode, weight: 1, try: true})
	return h.tried("TryLock", err, ErrLocked)
}

// tried is the result of a try that has no error to return; no is an ordinary reason for false.
func (h *handle) tried(name string, err, no error) bool {
	if several, ok := err.(*QuorumError); ok && several.severity() == fatal {
		panic(err) // though one of them may be locked
	}
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrLocked), errors.Is(err, no):
	case judge(err) == fatal && !errors.Is(err, errOtherSize):
		panic(err)
	default:
		events.tryFailed.to(h.c.opts.client.logger, logCall(name), logKey(h.keys.Lock), logError(err))
	}
	return false
}

func (h *handle) lockContext(ctx context.Context, mode protocol.Mode, try bool) (context.Context, error) {
	l, err := h.acquire(ctx, want{mode: mode, weight: 1, try: try, context: true})
	if err != nil {
		return nil, err
	}
	return l.context(ctx), nil
}

func (h *handle) unlockContext(ctx context.Context) error {
	if h.err != nil {
		return h.err
	}
	l := h.take(ctx)
	if l == nil {
		return h.makeGood(ctx)
	}
	return h.end(ctx, l)
}

// end ends an acquisition. One that is not confirmed in time is kept for another call; those before it that
// have been decided since, and that nobody asked for again, are forgotten.
func (h *handle) end(ctx context.Context, l *Lease) error {
	decided, err := l.on.giveBack(ctx, l)
	if !decided {
		h.mu.Lock()
		defer h.mu.Unlock()
		a := h.rare()
		a.pending = slices.DeleteFunc(a.pending, func(l *Lease) bool { return l.on.decided(l) })
		a.pending = append(a.pending, l)
	}
	return err
}

func (h *handle) mustUnlock(misuse string) {
	switch err := h.unlockContext(context.Background()); {
	case err == nil:
	case err == ErrNotLocked || h.err != nil:
		panic("valkeysync: " + misuse)
	default:
		events.unlockFailed.to(h.c.opts.client.logger, logKey(h.keys.Lock), logError(err))
	}
}

func (h *handle) do(ctx context.Context, mode protocol.Mode, fn func(ctx context.Context) error) error {
	held, err := h.lockContext(ctx, mode, false)
	if err != nil {
		return err
	}
	return h.during(held, fn, func() error { return h.unlockContext(context.WithoutCancel(held)) })
}

// during runs fn and gives the lock back, whatever fn does.
func (h *handle) during(held context.Context, fn func(ctx context.Context) error, unlock func() error) (err error) {
	defer func() {
		switch end := unlock(); {
		case end == nil:
		case errors.Is(end, ErrLeaseLost):
			err = errors.Join(err, end)
		default:
			events.unlockFailed.to(h.c.opts.client.logger, logKey(h.keys.Lock), logError(end))
		}
	}()
	return fn(held)
}
