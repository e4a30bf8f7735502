package valkeysync

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// several is what LockAll has locked: it travels in the context that it gave.
type several struct {
	mutexes []*Mutex // in the order in which everybody locks them
}

type severalKey struct{}

// LockAll locks the mutexes of all keys, and blocks until it has them all or ctx ends: all or nothing. Calls
// with the same keys in whatever order never wait for each other in a circle, for all of them lock in the
// order of the keys' names; a key that is given twice is locked once. Where all are free and one script may
// use them (one server, or a cluster in which they share a hash tag) it is one command. Otherwise those that
// are had are held while the rest is waited for.
//
// The context it returns ends when the lease of any is lost, with the *LostError as its cause, and with
// UnlockAll. [FromContext] finds the lease of the last in order, [Leases] those of all. The locks are those of
// [Client.Mutex], with the Client's options.
//
// Errors: as of [Mutex.LockContext]; ErrInvalidKey where no key is given, or one that cannot be used. A
// context that carries one of them is ErrDeadlock (or re-entered: WithReentrancy). After an error nothing is
// held. What is locked around it, with this context or another, can still make a circle: lock in one order.
func (c *Client) LockAll(ctx context.Context, keys ...string) (context.Context, error) {
	s, err := c.several(keys)
	if err != nil {
		return nil, err
	}
	held := ctx
	all := false
	defer func() {
		if !all { // an error, or a Tracer has panicked
			_ = s.unlock(context.WithoutCancel(held))
		}
	}()
	began := time.Now()
	if leases := s.together(ctx); leases != nil {
		for i, l := range leases {
			s.mutexes[i].keep(l, true)
		}
		for i, l := range leases {
			s.mutexes[i].traceSince(held, want{weight: 1}, began).acquired(held, l)
			held = l.context(held)
		}
		all = true
		return context.WithValue(held, severalKey{}, s), nil
	}
	for _, m := range s.mutexes {
		next, err := m.LockContext(held)
		if err != nil {
			if lost := context.Cause(held); errors.Is(lost, ErrLeaseLost) && ctx.Err() == nil {
				err = lost // of one that was held already
			}
			return nil, err
		}
		held = next
	}
	all = true
	return context.WithValue(held, severalKey{}, s), nil
}

// UnlockAll unlocks what LockAll locked; ctx is the context that it gave, or one made from it. It works with a
// ctx that has ended, and blocks as [Mutex.UnlockContext] does.
//
// Errors: ErrNotLocked if ctx carries nothing that LockAll locked, or it was unlocked before; those of
// UnlockContext for each key, joined.
func (c *Client) UnlockAll(ctx context.Context) error {
	s, ok := ctx.Value(severalKey{}).(*several)
	if !ok || s.mutexes[0].c != c {
		return ErrNotLocked
	}
	return s.unlock(ctx)
}

// several makes the mutexes.
func (c *Client) several(keys []string) (*several, error) {
	if len(keys) == 0 {
		return nil, fault.Errorf("%w: LockAll without a key; name what is locked", ErrInvalidKey)
	}
	var s several
	for _, key := range keys {
		m := c.Mutex(key)
		if m.err != nil {
			return nil, m.err
		}
		s.mutexes = append(s.mutexes, m)
	}
	by := func(m, n *Mutex) int { return strings.Compare(m.keys.Lock, n.keys.Lock) }
	slices.SortFunc(s.mutexes, by)
	s.mutexes = slices.CompactFunc(s.mutexes, func(m, n *Mutex) bool { return by(m, n) == 0 })
	return &s, nil
}

// unlock gives all back at the same time, so that it takes one round trip.
func (s *several) unlock(ctx context.Context) error {
	errs := make([]error, len(s.mutexes))
	var all sync.WaitGroup
	for i, m := range s.mutexes {
		all.Go(func() { errs[i] = m.UnlockContext(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// together takes all locks with one command. It returns nil where that cannot be, or some are not free.
func (s *several) together(ctx context.Context) []*Lease {
	c := s.mutexes[0].c
	if len(s.mutexes) < 2 || c.opts.replicas > 0 || ctx.Err() != nil {
		return nil
	}
	j := &joint{c: c}
	for _, m := range s.mutexes {
		j.keys = append(j.keys, &m.keys)
	}
	if !c.server.SameSlot(j.keys) {
		return nil
	}
	for _, m := range s.mutexes {
		g, err := c.enter(protocol.MutexKind, &m.keys)
		if err != nil {
			j.drop(err)
			return nil
		}
		defer c.leave(g)
		if !j.add(ctx, g, m.opts) {
			j.drop(ErrLocked)
			return nil
		}
	}
	if !c.crew.run(j.ask) {
		j.drop(ErrClosed)
		return nil
	}
	return j.wait(ctx)
}

// joint is one request for several locks: an attempt at each, which only tries.
type joint struct {
	c        *Client
	keys     []*protocol.Keys
	attempts []*attempt
}

// add makes the attempt at one more lock, and reports false where this process is at it already.
func (j *joint) add(ctx context.Context, g *gate, opts *options) bool {
	if carried(ctx, func(l *Lease) bool { return l.gate == g }) != nil {
		return false
	}
	g.mu.Lock()
	defer g.unlock()
	if g.closed || !g.empty() {
		return false
	}
	g.begin()
	w := &waiter{want: want{mode: protocol.Exclusive, weight: 1, opts: opts, try: true}}
	j.attempts = append(j.attempts, g.try(w))
	return true
}

// drop ends attempts that were never sent.
func (j *joint) drop(err error) {
	for _, a := range j.attempts {
		a.g.mu.Lock()
		if !a.over {
			a.finish()
			a.alone.tell(nil, err)
		}
		a.g.unlock()
	}
}

// ask sends the request, and tells each attempt what came of it.
func (j *joint) ask() {
	ear := j.attempts[0].g.ear
	sent := ear.now()
	latest := ear.latest(sent.at)
	entries := make([]*protocol.Entry, len(j.attempts))
	for i, a := range j.attempts {
		a.g.mu.Lock()
		a.begin(sent, latest)
		entries[i] = &a.entry
		a.g.unlock()
	}
	ctx := withDeadline(j.c.ctx, sent.at.Add(requestLimit))
	replies, err := j.c.server.AcquireAll(ctx, j.keys, entries, latest)
	ctx.end()
	for i, a := range j.attempts {
		a.g.mu.Lock()
		now := time.Now()
		a.end(err)
		switch {
		case a.over:
		case err != nil:
			a.fail(err, fatal) // and leave, for one of them may have been written
		case len(replies) == len(j.attempts):
			ear.heardAt(replies[i].Now, now)
			a.take(sent, replies[i], now)
		default: // busy, or late
			ear.heardAt(replies[0].Now, now)
			a.finish()
			a.alone.tell(nil, ErrLocked)
		}
		a.g.unlock()
	}
}

// wait blocks until it is known what became of all attempts, or ctx ends. Where one of them failed, the
// others are given back.
func (j *joint) wait(ctx context.Context) []*Lease {
	var leases []*Lease
	for _, a := range j.attempts {
		if l, _ := a.g.await(ctx, a.alone); l != nil {
			leases = append(leases, l)
		}
	}
	if len(leases) == len(j.attempts) && ctx.Err() == nil {
		return leases
	}
	for _, l := range leases {
		l.gate.mu.Lock()
		l.gate.giveBack(l)
		l.gate.unlock()
	}
	return nil
}
