package valkeysync

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// contest is how one QuorumMutex gets its lock. Those who ask for a lock on several servers at the same time may
// each get some and none a majority. So whoever is refused waits at a turnstile, an ordinary Mutex on one of the
// servers, and only the one who is through it asks again: when it is told that enough of the servers that refused
// it are free. Nothing depends on the turnstile but order and speed: a majority decides.
type contest struct {
	q          *Quorum
	h          *handle
	turnstiles func() []*Mutex // by server

	contended atomic.Bool             // others were seen to want the lock
	asking    atomic.Int64            // goroutines that ask for it here
	seen      atomic.Pointer[refusal] // why the last attempt was refused, for people
}

func newContest(q *Quorum, h *handle) *contest {
	return &contest{q: q, h: h, turnstiles: sync.OnceValue(func() (all []*Mutex) { // most are never needed
		for _, m := range q.members {
			t := m.c.Mutex("turnstile", WithLease(h.opts.lease), WithLinger(0), WithReplicas(0), WithMaxHold(0), WithOnLost(nil), WithTracer(nil))
			t.keys, t.err = protocol.KeysFor("", h.keys.Turnstile()) // which has the prefix already
			all = append(all, t)
		}
		return all
	})}
}

// gave: the acquisition is of this lock.
func (c *contest) gave(l *Lease) bool {
	s, ok := l.on.(*stake)
	return ok && s.q == c.q && s.keys.Lock == c.h.keys.Lock
}

// reenter is gate.reenter for a lock on several servers.
func (c *contest) reenter(ctx context.Context, w want) (*Lease, error) {
	l := carried(ctx, func(l *Lease) bool { return c.gave(l) && l.Valid() })
	switch {
	case l == nil:
		return nil, nil
	case !w.opts.reentrant:
		return nil, errCarried(c.h.keys.Lock)
	case l.enter():
		return l, nil
	}
	return nil, nil // it ended just now, and ctx with it
}

// acquire blocks until the lock is had, or cannot be had, or ctx ends.
func (c *contest) acquire(ctx context.Context, w want) (*Lease, error) {
	if l, err := c.reenter(ctx, w); l != nil || err != nil {
		return l, err
	}
	trace := c.h.trace(ctx, w)
	l, err := c.win(ctx, w)
	if err != nil {
		return nil, trace.failed(err)
	}
	trace.acquired(ctx, l)
	return l, nil
}

// win is acquire for what ctx does not carry.
func (c *contest) win(ctx context.Context, w want) (*Lease, error) {
	if !c.q.enter() {
		return nil, ErrClosed
	}
	defer c.q.crew.leave()
	b := &bid{contest: c, want: w, caller: ctx}
	var stop func()
	b.ctx, stop = c.q.unlessClosed(ctx)
	defer stop()
	first := c.asking.Add(1) == 1
	defer c.asking.Add(-1)
	if w.try || first && !c.contended.Load() && !c.heldHere() {
		if l, err := b.ask(); l != nil || err != nil {
			return l, err
		}
		if w.try {
			return nil, b.waitError(ErrLocked)
		}
	}
	defer b.vigil.stop()
	for {
		l, err := b.contend(c.pass(b.ctx))
		if l != nil || err != nil {
			return l, err
		}
	}
}

// heldHere: this process has it, through the same QuorumMutex.
func (c *contest) heldHere() bool {
	c.h.mu.Lock()
	defer c.h.mu.Unlock()
	c.h.sort()
	return len(c.h.out) > 0
}

// bid is one goroutine's wish for the lock.
type bid struct {
	*contest
	want
	caller context.Context // its own
	ctx    context.Context // that, and the Quorum is not closed
	vigil  vigil
	now    *refusal // of the last attempt
	logged bool
}

// ask makes one attempt. Both results are nil where it was refused and another one may not be.
func (b *bid) ask() (*Lease, error) {
	s := newStake(b.contest, &b.h.keys, b.opts)
	if !b.q.remember(s) {
		return nil, ErrClosed
	}
	if s.take(b.ctx.Done()) && b.ctx.Err() == nil {
		if l := s.hold(); l != nil {
			return l, nil
		}
		return nil, ErrClosed
	}
	r := s.refused()
	s.quit()
	b.now = r
	if b.ctx.Err() == nil || r.answered > 0 || b.seen.Load() == nil { // one that was cut off knows no better
		b.seen.Store(r)
	}
	if b.ctx.Err() != nil {
		return nil, b.end()
	}
	switch sev := r.err.severity(); {
	case sev == fatal, sev == refused && !b.patient, b.try && r.holder == "":
		return nil, r.err
	case r.answered < b.q.need && !b.logged:
		b.logged = true
		events.noMajority.to(b.q.log(), logKey(b.h.keys.Lock), logError(r.err))
	}
	return nil, nil
}

// refusal is how the servers stood when an attempt was given up.
type refusal struct {
	err       *QuorumError
	answered  int
	lack      int             // so many more would have made a majority
	servers   []int           // those that refused
	left      []time.Duration // and for how long their holders have the key at most; sorted
	holder    string          // the one on most of them
	remaining time.Duration
}

func (s *stake) refused() *refusal {
	s.lock()
	defer s.unlock()
	r := &refusal{err: s.errLocked(), lack: s.q.need}
	holders := map[string]int{}
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.yes:
			r.answered++
			r.lack--
		case p.no:
			r.answered++
			r.servers = append(r.servers, i)
			left := p.reply.Remaining
			holders[p.reply.Holder]++
			if r.holder == "" || holders[p.reply.Holder] > holders[r.holder] {
				r.holder, r.remaining = p.reply.Holder, left
			}
			if left == protocol.Forever {
				left = s.opts.lease
			}
			r.left = append(r.left, left)
		}
	}
	slices.Sort(r.left)
	return r
}

// end is why the wait is over.
func (b *bid) end() error {
	if b.caller.Err() == nil {
		return ErrClosed
	}
	return b.waitError(contextEnd(b.caller))
}

// waitError says what is known of why it was not had.
func (b *bid) waitError(err error) error {
	e := &WaitError{Key: b.h.keys.Lock, Err: err}
	if r := b.seen.Load(); r != nil {
		e.Holder, e.Remaining, e.Server = describe(r.holder), r.remaining, r.err
	}
	return e
}

// contend tries until it has the lock, and then lets the next through the turnstile; also, with nothing, when no
// majority of the servers has answered it for a lease, for others may reach them.
func (b *bid) contend(leave func()) (*Lease, error) {
	defer leave()
	b.vigil.begin(b)
	reached := time.Now()
	for tries := 0; ; tries++ {
		if b.ctx.Err() != nil {
			return nil, b.end()
		}
		b.vigil.forget()
		if l, err := b.ask(); l != nil || err != nil {
			return l, err
		}
		if b.now.answered >= b.q.need {
			reached = time.Now()
		} else if time.Since(reached) > b.opts.lease {
			return nil, nil
		}
		began := time.Now()
		b.vigil.wait(b.ctx, b.now, b.opts.lease, tries)
		if time.Since(began) > 2*maxJitter {
			tries = -1 // that was somebody who had it, and not a crowd
		}
	}
}
