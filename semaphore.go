package valkeysync

import (
	"context"
	"errors"
	"slices"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Semaphore is a weighted semaphore over processes, with the methods of golang.org/x/sync's
// semaphore.Weighted: at any time the weights of all that hold it add up to its size at most. What [Mutex]
// says of order and lease holds here too. Make it with [Client.Semaphore].
//
// Order is strict: a large request is not overtaken by small ones behind it, so it cannot starve.
//
// Every acquisition is a hold of its own, with its own lease and token: the permits of a process that died
// come back when their leases end.
//
// All who use a key must agree on the size. While it is in use, another size is ErrMismatch, whose text has
// both; as soon as nobody holds it or waits for it, the next size is the first one that is asked for. Resize
// changes the size of one that is in use.
type Semaphore struct {
	handle
	size int64
}

// Semaphore returns a semaphore of that size for the key. See [Client.Mutex] for the key and the options.
// A size below 1 is ErrInvalidOption at the first use.
func (c *Client) Semaphore(key string, size int64, opts ...Option) *Semaphore {
	s := &Semaphore{size: size}
	s.init(c, protocol.SemaphoreKind(size), key, opts)
	s.noOwner("Semaphore", key)
	if s.opts.reentrant && !c.opts.reentrant {
		s.err = errors.Join(s.err, fault.Errorf("%w: WithReentrancy on Semaphore(%q): permits have no owner; leave it out", ErrInvalidOption, key))
	}
	if size < 1 {
		s.err = errors.Join(s.err, fault.Errorf("%w: Semaphore(%q, %d): the size must be at least 1", ErrInvalidOption, key, size))
	}
	return s
}

// Acquire acquires the semaphore with a weight of n, and blocks until it has it or ctx ends. Unlike
// AcquireContext it does not tell when the lease is lost: give a [WithOnLost].
//
// Errors: as of [Mutex.LockContext], and ErrTooLarge, at once, if n is larger than the size;
// ErrInvalidWeight if it is less than 1.
func (s *Semaphore) Acquire(ctx context.Context, n int64) error {
	_, err := s.lease(ctx, want{weight: n})
	return err
}

// TryAcquire tries to acquire the semaphore with a weight of n without waiting and reports whether it
// succeeded. It asks the server as [Mutex.TryLock] does, and panics where that does and if n is less
// than 1. But a key in use with another size, to which a Resize may change it at any time, is only logged,
// and reported as false.
func (s *Semaphore) TryAcquire(n int64) bool {
	_, err := s.lease(context.Background(), want{weight: n, try: true})
	return s.tried("TryAcquire", err, ErrTooLarge)
}

// Release releases a weight of n. It need not be the weight of one acquisition: what is acquired at once
// may be released in parts, and together. What was acquired with a context, and whose context ends with the
// release, is for ReleaseContext: Release takes of that only where less than n is held without, first an
// acquisition of just that weight. It blocks as [Mutex.Unlock] does. It panics if n is less than 1 or more is
// released than is held through s, as semaphore.Weighted does; what belonged to a lost lease counts as held
// until it is released, and is released first; what it was meant for instead ends, should the lost one be released
// with its context after all.
func (s *Semaphore) Release(n int64) {
	err := s.ReleaseContext(context.Background(), n)
	switch {
	case err == nil:
	case errors.Is(err, ErrNotLocked), errors.Is(err, ErrInvalidWeight), s.err != nil:
		panic("valkeysync: semaphore: released more than held, or less than 1: " + fault.Bare(err).Error())
	default:
		events.unlockFailed.to(s.c.opts.client.logger, logKey(s.keys.Lock), logError(err))
	}
}

// AcquireContext is Acquire with a context that ends when the lease is lost, or the acquisition is
// released, or ctx ends. See [Mutex.LockContext].
func (s *Semaphore) AcquireContext(ctx context.Context, n int64) (context.Context, error) {
	l, err := s.lease(ctx, want{weight: n, context: true})
	if err != nil {
		return nil, err
	}
	return l.context(ctx), nil
}

// TryAcquireContext is AcquireContext without the wait. See [Mutex.TryLockContext].
func (s *Semaphore) TryAcquireContext(ctx context.Context, n int64) (context.Context, error) {
	l, err := s.lease(ctx, want{weight: n, try: true, context: true})
	if err != nil {
		return nil, err
	}
	return l.context(ctx), nil
}

// ReleaseContext is Release with an error; of the acquisition that ctx carries, if it carries one of s.
// Errors: ErrNotLocked if less than n is held: then nothing is released; ErrInvalidWeight; and as of
// [Mutex.UnlockContext]. What the server has not confirmed in time goes on in the background, of a part as
// of the whole, and counts as released.
func (s *Semaphore) ReleaseContext(ctx context.Context, n int64) error {
	if s.err != nil {
		return s.err
	}
	if n < 1 {
		return fault.Errorf("%w %d: release at least 1", ErrInvalidWeight, n)
	}
	parts, ok := s.takeWeight(ctx, n)
	if !ok {
		return ErrNotLocked
	}
	var errs []error
	for _, p := range parts {
		var err error
		if p.rest > 0 {
			err = s.shrink(ctx, p)
		} else {
			err = s.end(ctx, p.lease)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Resize puts the size of s in force while the key is in use with another. From then on permits are given
// by this size, and never so that more are held than it allows. Who holds by another size goes on holding
// until it releases; where that is more than the size of s, nobody gets any until enough is released. Who
// waits by another size, and who asks for permits by it from then on, gets ErrMismatch.
//
// To change the size of a semaphore under a running fleet, have the processes with the new size call it
// once, when they start: c.Semaphore("api", 20).Resize(ctx). Those with the old one finish what they do and
// can begin nothing new. Where nobody uses the key at the time, or the size is the same, nothing is to be
// done: the size is then that of the first who acquires. So a process of the old size may come first after
// all, and a program that calls Resize does well to call it again after an ErrMismatch.
//
// It asks the server once, and blocks until it has answered or ctx ends. Errors: ErrMismatch if another kind
// of primitive is in use on the key; ErrInvalidKey, ErrInvalidOption, ErrClosed, ctx's error, the server's
// own. After an error of ctx or the network it may have been done; calling it twice does no harm.
func (s *Semaphore) Resize(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	if ctx.Err() != nil {
		return contextEnd(ctx)
	}
	g, err := s.c.enter(s.kind, &s.keys)
	if err != nil {
		return err
	}
	defer s.c.leave(g)
	r, err := s.c.server.Resize(ctx, &s.keys, s.kind)
	if err != nil {
		return err
	}
	g.ear.heard(r.Now)
	if r.Outcome == protocol.Mismatch {
		return mismatch(g, r.Holder)
	}
	return nil
}

// Do runs fn while holding a weight of n, as [Mutex.Do] does.
func (s *Semaphore) Do(ctx context.Context, n int64, fn func(ctx context.Context) error) (err error) {
	held, err := s.AcquireContext(ctx, n)
	if err != nil {
		return err
	}
	return s.during(held, fn, func() error { return s.ReleaseContext(context.WithoutCancel(held), n) })
}

func (s *Semaphore) lease(ctx context.Context, w want) (*Lease, error) {
	if w.weight < 1 {
		return nil, fault.Errorf("%w %d: acquire at least 1", ErrInvalidWeight, w.weight)
	}
	if s.err == nil && w.weight > s.size {
		return nil, fault.Errorf("%w: %d of %d permits of %q", ErrTooLarge, w.weight, s.size, s.keys.Lock)
	}
	w.mode = protocol.Permit
	return s.acquire(ctx, w)
}

// part is what a release takes of one acquisition.
type part struct {
	lease *Lease
	took  int64
	rest  int64 // stays acquired
}

// takeWeight chooses, and takes out, the acquisitions that a release of n is for: the one that ctx carries;
// else lost ones before those that live, and of either those that no context carries before those that one does; where
// none was lost, and of the rank that is enough, one of just that weight, else the oldest.
func (s *Semaphore) takeWeight(ctx context.Context, n int64) ([]part, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sort()
	a := s.rare()
	if l, ok := s.carried(ctx); ok {
		return s.takeOwn(l, n)
	}
	looseLost, boundLost := byContext(a.lost)
	loose, bound := byContext(s.out)
	var from []*Lease
	if len(a.lost) == 0 {
		from = justThat(n, loose, bound)
	}
	if from == nil {
		from = slices.Concat(looseLost, boundLost, loose, bound)
	}
	parts, ok := s.takeOf(from, n)
	for _, p := range parts {
		s.counted(p.lease, p.took)
	}
	return parts, ok
}

// takeOwn is takeWeight for who has the context of l. Of what calls without one were counted for as much is taken
// that was acquired without one: it was theirs. See [handle.makeGood].
func (s *Semaphore) takeOwn(l *Lease, n int64) ([]part, bool) {
	a := s.aside
	if i := slices.Index(a.pending, l); i >= 0 { // called again, to wait for it
		a.pending = slices.Delete(a.pending, i, i+1)
		return []part{{lease: l}}, true
	}
	left := int64(0)
	if slices.Contains(a.lost, l) || slices.Contains(s.out, l) {
		left = l.held.Load()
	}
	owed := n - left
	if owed <= 0 {
		return s.takeOf([]*Lease{l}, n)
	}
	if owed > a.unclear[l] {
		return nil, false
	}
	looseLost, _ := byContext(a.lost)
	loose, _ := byContext(s.out)
	parts, ok := s.takeOf(slices.Concat(looseLost, loose), owed)
	if !ok {
		return nil, false
	}
	a.unclear[l] -= owed
	own, _ := s.takeOf([]*Lease{l}, left)
	if own == nil {
		own = []part{{lease: l}} // how it was lost
	}
	return append(own, parts...), true
}

// takeOf takes a weight of n out of those, in that order; nothing if they hold less.
func (s *Semaphore) takeOf(from []*Lease, n int64) (parts []part, ok bool) {
	for _, l := range from {
		if n == 0 {
			break
		}
		held := l.held.Load()
		took := min(n, held)
		n -= took
		parts = append(parts, part{lease: l, took: took, rest: held - took})
	}
	if n > 0 {
		return nil, false
	}
	a := s.aside
	for _, p := range parts {
		p.lease.held.Store(p.rest)
		if p.rest == 0 {
			gone := func(l *Lease) bool { return l == p.lease }
			a.lost, s.out = slices.DeleteFunc(a.lost, gone), slices.DeleteFunc(s.out, gone)
		}
	}
	return parts, true
}

// byContext parts the acquisitions that no context carries from those that one does.
func byContext(list []*Lease) (loose, bound []*Lease) {
	for _, l := range list {
		if l.bound {
			bound = append(bound, l)
		} else {
			loose = append(loose, l)
		}
	}
	return loose, bound
}

// justThat is the acquisition of just that weight, of the first that hold as much together; nil if there is none.
func justThat(n int64, ranks ...[]*Lease) []*Lease {
	for _, rank := range ranks {
		sum := int64(0)
		for _, l := range rank {
			held := l.held.Load()
			if held == n {
				return []*Lease{l}
			}
			sum += held
		}
		if sum >= n {
			return nil
		}
	}
	return nil
}

// shrink releases a part of an acquisition, and blocks as an unlock does.
func (s *Semaphore) shrink(ctx context.Context, p part) error {
	if ctx.Done() == nil || ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
		defer cancel()
	}
	return p.lease.gate.shrink(ctx, p.lease)
}
