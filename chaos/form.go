package chaos

import (
	"context"
	"errors"
	"sync"

	"github.com/valkeysync/valkeysync"
)

// form is the way in which an operation locks.
type form string

const (
	withContext form = "context" // LockContext, UnlockContext
	plain       form = "plain"   // Lock, Unlock: the caller has neither a context nor a lease
	during      form = "do"      // Do
	several     form = "all"     // LockAll, UnlockAll
)

// owners are those of the mutexes that have owners.
var owners = []string{"a", "b"}

// errWork is what the function that is given to Do returns, or panics with.
var errWork = errors.New("the work's own error")

// acquire locks, in whatever form but Do.
func (o *operation) acquire(ctx context.Context) (held context.Context, err error) {
	h := o.hands
	switch {
	case o.form == plain:
		return nil, o.plainly(ctx)
	case o.form == several:
		keys := []string{h.Name}
		for _, other := range o.others {
			keys = append(keys, other.hands.Name)
		}
		return h.client.LockAll(ctx, keys...)
	case o.mode == Permit && o.try:
		return h.sem.TryAcquireContext(ctx, o.weight)
	case o.mode == Permit:
		return h.sem.AcquireContext(ctx, o.weight)
	case h.rw != nil && o.mode == Reader && o.try:
		return h.rw.TryRLockContext(ctx)
	case h.rw != nil && o.mode == Reader:
		return h.rw.RLockContext(ctx)
	case h.rw != nil && o.try:
		return h.rw.TryLockContext(ctx)
	case h.rw != nil:
		return h.rw.LockContext(ctx)
	case o.try:
		return h.mutexes[o.owner].TryLockContext(ctx)
	}
	return h.mutexes[o.owner].LockContext(ctx)
}

// release gives back what acquire has locked with a context.
func (o *operation) release(ctx context.Context) error {
	h := o.hands
	switch {
	case o.form == several:
		return h.client.UnlockAll(ctx)
	case o.mode == Permit:
		return h.sem.ReleaseContext(ctx, o.weight)
	case h.rw != nil && o.mode == Reader:
		return h.rw.RUnlockContext(ctx)
	case h.rw != nil:
		return h.rw.UnlockContext(ctx)
	}
	return h.mutexes[o.owner].UnlockContext(ctx)
}

// do has work done by Do.
func (o *operation) do(ctx context.Context, work func(ctx context.Context) error) error {
	h := o.hands
	switch {
	case o.mode == Permit:
		return h.sem.Do(ctx, o.weight, work)
	case h.rw != nil && o.mode == Reader:
		return h.rw.RDo(ctx, work)
	case h.rw != nil:
		return h.rw.Do(ctx, work)
	}
	return h.mutexes[o.owner].Do(ctx, work)
}

// plainly locks without a context. What Lock panics with, and what a try has logged, is an error here.
func (o *operation) plainly(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			var ok bool
			if err, ok = p.(error); !ok {
				panic(p)
			}
		}
	}()
	h, got := o.hands, true
	if o.mode == Permit && !o.try {
		return h.sem.Acquire(ctx, o.weight)
	}
	defer o.w.asker.asks(o)()
	switch {
	case o.mode == Permit:
		got = h.sem.TryAcquire(o.weight)
	case h.rw != nil && o.mode == Reader && o.try:
		got = h.rw.TryRLock()
	case h.rw != nil && o.mode == Reader:
		h.rw.RLock()
	case h.rw != nil && o.try:
		got = h.rw.TryLock()
	case h.rw != nil:
		h.rw.Lock()
	case o.try:
		got = h.mutexes[o.owner].TryLock()
	default:
		h.mutexes[o.owner].Lock()
	}
	if !got && o.failed == nil {
		o.w.wrong(o.id, "a try is told no, and its Tracer no failure")
		return valkeysync.ErrLocked
	}
	return o.failed
}

// giveBack unlocks without a context. It must not panic: there was one lock for each unlock.
func (o *operation) giveBack() {
	defer func() {
		if p := recover(); p != nil {
			o.w.wrong(o.id, "an unlock without a context: %v", p)
		}
	}()
	h := o.hands
	switch {
	case o.mode == Permit:
		h.sem.Release(o.weight)
	case h.rw != nil && o.mode == Reader:
		h.rw.RUnlock()
	case h.rw != nil:
		h.rw.Unlock()
	default:
		h.mutexes[o.owner].Unlock()
	}
}

// What the caller of a plain form cannot know, which lease it has got, a Tracer is told: on the goroutine that
// asks. So the judge knows as much of it as of the other forms.

// asker knows whose call it is that has no context: one goroutine at a time is between its call and the Tracer.
type asker struct {
	turn sync.Mutex
	op   *operation
}

// asks announces o's call; what it returns is to be called after it.
func (a *asker) asks(o *operation) (done func()) {
	a.turn.Lock()
	a.op = o
	return func() {
		if !o.asked { // it was refused before
			a.turn.Unlock()
		}
	}
}

type askedBy struct{}

// Acquire is the Tracer's. The lease of what was asked for with a context is in the context that comes of it.
func (a *asker) Acquire(ctx context.Context, _ valkeysync.Acquisition) valkeysync.Trace {
	o, ok := ctx.Value(askedBy{}).(*operation)
	if !ok {
		o = a.op
		o.asked = true
		a.turn.Unlock()
	}
	if o.form != plain && o.form != during {
		return nil
	}
	return o
}

// Acquired, Failed and Released are the Trace's.
func (o *operation) Acquired(ctx context.Context, l *valkeysync.Lease, _ valkeysync.Grant) context.Context {
	o.lease = l
	if o.pool != nil {
		o.pool.join(o)
	}
	return ctx
}

func (o *operation) Failed(err error) { o.failed = err }

func (o *operation) Released(err error) {
	o.ended <- err // told twice, it would wait for ever
	if o.pool != nil {
		o.pool.part(o, err)
	}
}

// isLost: the lease was lost, by what the library has told until now.
func isLost(l *valkeysync.Lease) bool {
	select {
	case <-l.Lost():
		return true
	default:
		return false
	}
}

// pool are the acquisitions without a context of one handle that hold together. An unlock ends the oldest, whoever
// has got it, and one that was lost before those that live: so as long as none is lost, each of them holds from
// its lock to its unlock, under the lease of one or another.
type pool struct {
	mu     sync.Mutex
	living map[*operation]bool
	losses int
}

func newPool() *pool { return &pool{living: map[*operation]bool{}} }

func (p *pool) join(o *operation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.living[o] = true
	o.losses = p.losses
}

func (p *pool) part(o *operation, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.living, o)
	if errors.Is(err, valkeysync.ErrLeaseLost) {
		p.losses++
	}
}

// holds: o's part of the pool is certain now.
func (p *pool) holds(o *operation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o.losses != p.losses {
		return false
	}
	for other := range p.living {
		if !other.lease.Valid() {
			return false // lost, or being given back: it will be told
		}
	}
	return true
}

// parts are the errors that were joined to err.
func parts(err error) []error {
	var lost *valkeysync.LostError
	list, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.As(err, &lost) && error(lost) == err {
		return []error{err}
	}
	var all []error
	for _, one := range list.Unwrap() {
		all = append(all, parts(one)...)
	}
	return all
}

// of is what of the error of an unlock is said of the key: its loss; else what is of no key's loss.
func of(key string, err error) error {
	if err == nil {
		return nil
	}
	var rest error
	for _, one := range parts(err) {
		var lost *valkeysync.LostError
		switch {
		case !errors.As(one, &lost):
			rest = one
		case lost.Key == key:
			return one
		}
	}
	return rest
}
