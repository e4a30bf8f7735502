package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/valkeysync/valkeysync"
)

// sureEvery is how often a hold that lasts says that it is certain, so that the parent knows how far the
// hold of a killed process went.
const sureEvery = 10 * time.Millisecond

// act does one operation, from the call to the end of the hold.
func (w *worker) act(rng *rand.Rand) {
	o := w.draw(rng)
	ctx, cancel := context.WithValue(context.Background(), askedBy{}, o), context.CancelFunc(func() {})
	if !w.Queue {
		switch n := rng.IntN(100); {
		case n < 15:
			o.try = o.form == withContext || o.form == plain
		case n < 40:
			// From a microsecond to half a second, each magnitude alike.
			ctx, cancel = context.WithTimeout(ctx, time.Duration(float64(time.Microsecond)*math.Pow(10, 5.7*rng.Float64())))
		}
	}
	defer cancel()
	o.run(ctx)
}

// draw draws what is locked, for whom, and in which form.
func (w *worker) draw(rng *rand.Rand) *operation {
	w.mu.Lock()
	hands := w.hands
	w.mu.Unlock()
	key := w.Keys[rng.IntN(len(w.Keys))]
	o := &operation{w: w, rng: rng, hands: hands[key.Name], mode: Exclusive, weight: 1, form: withContext}
	switch n := rng.IntN(100); {
	case n < 35:
		o.form = plain
	case n < 60:
		o.form = during
	case n < 64 && key.Kind == "mutex" && len(w.Addrs) == 0: // a Quorum has no LockAll
		o.form = several
		for _, k := range w.Keys {
			if k.Kind == "mutex" && k.Name != key.Name && rng.IntN(3) > 0 {
				o.others = append(o.others, &operation{w: w, hands: hands[k.Name], mode: Exclusive, weight: 1, form: several})
			}
		}
		return o
	}
	switch key.Kind {
	case "mutex":
		if n := rng.IntN(4); key.Owned && n < len(owners) {
			o.mode, o.owner = Reader, owners[n]
		}
	case "rwmutex":
		if rng.IntN(10) < 7 {
			o.mode = Reader
		}
	case "semaphore":
		o.mode, o.weight = Permit, 1+rng.Int64N(key.Size)
	}
	if o.form == plain && o.mode != Exclusive {
		o.pool = o.hands.pools[o.owner]
	}
	return o
}

// operation is one acquisition, or the try at one; of LockAll the one of the first key.
type operation struct {
	w      *worker
	rng    *rand.Rand
	id     int64
	hands  *hands
	mode   Mode
	weight int64
	owner  string
	form   form
	try    bool
	others []*operation // of the same LockAll

	held  context.Context // nil: there is none
	lease *valkeysync.Lease
	sure  int64

	// What a Tracer is told.
	asked  bool
	failed error
	ended  chan error
	pool   *pool // nil: the hold is its lease's alone
	losses int
}

// each are all of the same call.
func (o *operation) each() []*operation { return append([]*operation{o}, o.others...) }

func (o *operation) run(ctx context.Context) {
	o.begin(0)
	if o.form == during {
		o.runDo(ctx)
		return
	}
	if !o.take(o.acquire(ctx)) {
		return
	}
	o.hold()
	switch {
	case o.form == plain:
		o.unlockPlainly()
	case o.hands.rw != nil && o.mode == Exclusive && o.rng.IntN(4) == 0:
		o.downgrade()
	default:
		o.unlock()
	}
}

// begin tells of the call; after is a downgrade's.
func (o *operation) begin(after int64) (call int64) {
	call = now()
	for _, p := range o.each() {
		p.id, p.ended = o.w.ids.Add(1), make(chan error, 1)
		o.w.tell(event{
			What: evCall, ID: p.id, T: call, Key: p.hands.Name, Mode: p.mode, Weight: p.weight, Owner: p.owner, Form: p.form, Try: p.try, After: after,
		})
	}
	return call
}

// take tells what came of a call. It reports whether the lock is held.
func (o *operation) take(held context.Context, err error) bool {
	t := now()
	if err != nil {
		o.fails(t, err)
		return false
	}
	o.held = held
	if !o.find() {
		return false
	}
	o.certain()
	for _, p := range o.each() {
		o.w.tell(event{What: evGot, ID: p.id, T: t, Token: p.lease.Token(), From: p.sure})
	}
	return true
}

// fails tells of a call without the lock.
func (o *operation) fails(t int64, err error) {
	for _, p := range o.each() {
		o.w.tell(event{What: evFail, ID: p.id, T: t, Err: classify(err)})
	}
	switch { // what is refused at once would make a goroutine spin
	case errors.Is(err, valkeysync.ErrClosed):
		time.Sleep(100 * time.Millisecond)
	case fatal(err):
		time.Sleep(20 * time.Millisecond)
	}
}

// find finds the leases of what is held, in its context. (Of what has none the Tracer has been told.)
func (o *operation) find() bool {
	if o.held == nil {
		return true
	}
	leases, all := valkeysync.Leases(o.held), o.each()
	for _, p := range all {
		i := slices.IndexFunc(leases, func(l *valkeysync.Lease) bool { return l.Key() == p.hands.Name })
		if i < 0 || len(leases) != len(all) {
			o.w.wrong(o.id, "%d leases for %d keys, or none of %q", len(leases), len(all), p.hands.Name)
			return false
		}
		p.lease = leases[i]
	}
	return true
}

// runDo is run for Do: the hold is what its function does.
func (o *operation) runDo(ctx context.Context) {
	var e event
	how, ran := o.rng.IntN(3), false
	work := func(held context.Context) error {
		ran = true
		if !o.take(held, nil) {
			return nil
		}
		o.hold()
		e = o.endsNow()
		switch how {
		case 0:
			return nil
		case 1:
			return errWork
		}
		panic(errWork)
	}
	err := func() (err error) {
		defer func() {
			if p := recover(); p != nil {
				if how != 2 || p != errWork {
					panic(p)
				}
				err = errWork
			}
		}()
		return o.do(ctx, work)
	}()
	switch {
	case !ran && err == nil:
		o.w.wrong(o.id, "Do returns without an error and without having called its function")
		return
	case !ran:
		o.fails(now(), err)
		return
	case e.ID == 0:
		return
	}
	e.T = now()
	if errors.Is(err, errWork) != (how > 0) || how < 2 && isLost(o.lease) && !errors.Is(err, valkeysync.ErrLeaseLost) {
		o.w.wrong(o.id, "Do's function ended with %d (1: an error, 2: a panic), its lease was lost %v, and Do says: %v", how, isLost(o.lease), err)
	}
	for _, one := range parts(err) {
		if one != nil && one != errWork && !errors.Is(one, valkeysync.ErrLeaseLost) {
			o.w.wrong(o.id, "Do says what is neither its function's error nor a *LostError: %v", one)
		}
	}
	o.over(&e)
}

// downgrade makes a reader of the writer, which is one more operation, and ends that.
func (o *operation) downgrade() {
	o.certain()
	r := &operation{w: o.w, rng: o.rng, hands: o.hands, mode: Reader, weight: 1, form: withContext}
	call := r.begin(o.lease.Token())
	held, err := o.hands.rw.Downgrade(o.held)
	e := event{What: evEnd, ID: o.id, Unlock: call, Sure: o.sure, T: now(), Outcome: outReleased}
	if err != nil {
		e.Outcome = outUndecided
	}
	got := r.take(held, err)
	o.w.tell(e)
	if got {
		r.hold()
		r.unlock()
	}
}

// certain notes that the hold is certain now. The time is read first: a process may be stopped between.
func (o *operation) certain() bool {
	all := true
	for _, p := range o.each() {
		t := now()
		switch {
		case p.pool != nil && p.pool.holds(p), p.pool == nil && p.lease.Valid():
			p.sure = t
		default:
			all = false
		}
	}
	if !all && o.held != nil && o.held.Err() == nil {
		o.w.wrong(o.id, "the lease is over and its context lives")
	}
	return all
}

// hold is the work under the lock: a write to the store, and some time.
func (o *operation) hold() {
	d, writeAt := o.duration(), time.Duration(0)
	if d > 0 {
		writeAt = time.Duration(o.rng.Int64N(int64(d)))
	}
	wrote := o.mode == Reader // readers write nothing
	// Who has no context does not know of a loss, and some who have one do not look: they unlock late.
	heeds := o.held != nil && o.rng.IntN(4) > 0
	var done <-chan struct{}
	if heeds {
		done = o.held.Done()
	}
	begin := time.Now()
	told := begin
	for {
		if !wrote && time.Since(begin) >= writeAt {
			wrote = true
			ok := o.w.write(o.id, o.lease.Token())
			if !ok && o.certain() {
				o.w.tell(event{What: evRefused, ID: o.id, T: o.sure})
			}
		}
		left := d - time.Since(begin)
		if certain := o.certain(); left <= 0 || !certain && heeds {
			return
		}
		if time.Since(told) >= sureEvery {
			told = time.Now()
			for _, p := range o.each() {
				o.w.tell(event{What: evSure, ID: p.id, Sure: p.sure})
			}
		}
		pause := min(left, sureEvery)
		if !wrote {
			pause = min(pause, max(0, writeAt-time.Since(begin)))
		}
		t := time.NewTimer(pause)
		select {
		case <-done:
			t.Stop()
			o.certain() // it may be the caller's own context that has ended
			return
		case <-o.w.stop:
			t.Stop()
			o.certain() // the others want to be served
			return
		case <-t.C:
		}
	}
}

// duration is how long the lock is held, by what the world is like.
func (o *operation) duration() time.Duration {
	r := o.rng
	switch n := r.IntN(1000); {
	case o.w.Queue:
		return 30*time.Millisecond + time.Duration(r.Int64N(int64(60*time.Millisecond)))
	case o.w.Holds == "long" && n < 300, o.w.Holds == "mixed" && n < 8:
		return time.Duration(float64(o.w.Lease) * 2 * r.Float64())
	case o.w.Holds != "short" && n < 500:
		return time.Duration(r.Int64N(int64(20 * time.Millisecond)))
	case n < 700:
		return time.Duration(r.Int64N(int64(time.Millisecond)))
	}
	return 0
}

// unlock gives the lock back. It is called with a context that still lives, that has ended, or that ends
// under way; then once more, until the outcome is known.
func (o *operation) unlock() {
	o.certain()
	call := now()
	ctx := context.WithoutCancel(o.held)
	if !o.w.Queue && o.rng.IntN(5) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+o.rng.Int64N(2000))*time.Microsecond)
		defer cancel()
		ctx = limited
	}
	err := o.release(ctx)
	t := now()
	if o.held.Err() == nil {
		o.w.wrong(o.id, "the context lives after the unlock")
	}
	for _, p := range o.each() {
		e := event{What: evEnd, ID: p.id, Unlock: call, Sure: p.sure, T: t}
		p.ends(&e, of(p.hands.Name, err))
		o.w.tell(e)
	}
}

// ends notes what came of an unlock, of which err is said.
func (o *operation) ends(e *event, err error) {
	var lost *valkeysync.LostError
	switch {
	case err == nil:
		e.Outcome = outReleased
	case errors.As(err, &lost):
		e.Outcome, e.Lost = outLost, string(lost.Cause)
		if o.form != several { // its mutexes are none of these handles
			o.hands.lost.Add(1)
		}
		if o.lease.Valid() {
			o.w.wrong(o.id, "unlock says lost, the lease says valid")
		}
	case errors.Is(err, valkeysync.ErrNotLocked):
		o.w.wrong(o.id, "unlock of what is held: %v", err)
	default:
		e.Outcome, e.Err = outUndecided, classify(err)
	}
}

// unlockPlainly gives the lock back without a context.
func (o *operation) unlockPlainly() {
	e := o.endsNow()
	o.giveBack()
	e.T = now()
	o.over(&e)
}

// endsNow begins to tell of the end, before the unlock. Taken: another's unlock was the end of what nobody else has part in.
func (o *operation) endsNow() event {
	certain := o.certain()
	e := event{What: evEnd, ID: o.id, Unlock: now(), Sure: o.sure}
	if o.pool == nil && !certain {
		select {
		case err := <-o.ended:
			o.ended <- err
			e.Taken = !errors.Is(err, valkeysync.ErrLeaseLost)
		default: // its end is not told yet
		}
	}
	return e
}

// over tells the end of a hold of which the Tracer is told what came.
func (o *operation) over(e *event) {
	var err error
	if isLost(o.lease) {
		err = <-o.ended // it is told, or will be at once
	} else {
		select {
		case err = <-o.ended:
		default:
			e.Outcome = outUndecided // another's unlock is to come for it
		}
	}
	switch {
	case e.Outcome != "":
	case err == nil && o.pool != nil:
		e.Outcome = outUndecided // whose unlock ended which is not known
	default:
		o.ends(e, err)
	}
	if o.held != nil && o.held.Err() == nil {
		o.w.wrong(o.id, "the context lives after the unlock")
	}
	o.w.tell(*e)
}

// fatal: the server or the library refuses; repeating at once would be refused again.
func fatal(err error) bool {
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, valkeysync.ErrLocked)
}

// classify names a failure for the record.
func classify(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context"
	case errors.Is(err, valkeysync.ErrLocked):
		return "locked"
	}
	return fmt.Sprintf("%.200s", err.Error())
}
