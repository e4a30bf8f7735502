package chaos

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/valkeysync/valkeysync"
)

// sureEvery is how often a hold that lasts says that it is certain, so that the parent knows how far the
// hold of a killed process went.
const sureEvery = 10 * time.Millisecond

// act does one operation, from the call to the end of the hold.
func (w *worker) act(rng *rand.Rand) {
	key := w.Keys[rng.IntN(len(w.Keys))]
	w.mu.Lock()
	h := w.hands[key.Name]
	w.mu.Unlock()
	o := &operation{w: w, rng: rng, id: w.ids.Add(1), hands: h, mode: Exclusive, weight: 1}
	switch key.Kind {
	case "rwmutex":
		if rng.IntN(10) < 7 {
			o.mode = Reader
		}
	case "semaphore":
		o.mode, o.weight = Permit, 1+rng.Int64N(key.Size)
	}
	ctx, cancel := context.Background(), context.CancelFunc(func() {})
	if !w.Queue {
		switch n := rng.IntN(100); {
		case n < 15:
			o.try = true
		case n < 40:
			// From a microsecond to half a second, each magnitude alike.
			ctx, cancel = context.WithTimeout(ctx, time.Duration(float64(time.Microsecond)*math.Pow(10, 5.7*rng.Float64())))
		}
	}
	defer cancel()
	o.run(ctx)
}

// operation is one acquisition, or the try at one.
type operation struct {
	w      *worker
	rng    *rand.Rand
	id     int64
	hands  *hands
	mode   Mode
	weight int64
	try    bool

	held  context.Context
	lease *valkeysync.Lease
	sure  int64
}

func (o *operation) run(ctx context.Context) {
	o.w.tell(event{What: evCall, ID: o.id, T: now(), Key: o.hands.Name, Mode: o.mode, Weight: o.weight, Try: o.try})
	if !o.take(o.acquire(ctx)) {
		return
	}
	o.hold()
	if o.hands.rw != nil && o.mode == Exclusive && o.rng.IntN(4) == 0 {
		o.downgrade()
		return
	}
	o.unlock()
}

// take tells what came of a call. It reports whether the lock is held.
func (o *operation) take(held context.Context, err error) bool {
	w, t := o.w, now()
	if err != nil {
		w.tell(event{What: evFail, ID: o.id, T: t, Err: classify(err)})
		switch { // what is refused at once would make a goroutine spin
		case errors.Is(err, valkeysync.ErrClosed):
			time.Sleep(100 * time.Millisecond)
		case fatal(err):
			time.Sleep(20 * time.Millisecond)
		}
		return false
	}
	o.held = held
	lease, ok := valkeysync.FromContext(held)
	if !ok {
		w.wrong(o.id, "a context without a lease")
		return false
	}
	o.lease = lease
	got := event{What: evGot, ID: o.id, T: t, Token: lease.Token()}
	if o.certain() {
		got.From = o.sure
	}
	w.tell(got)
	return true
}

// downgrade makes a reader of the writer, which is one more operation, and ends that.
func (o *operation) downgrade() {
	o.certain()
	r := &operation{w: o.w, rng: o.rng, id: o.w.ids.Add(1), hands: o.hands, mode: Reader, weight: 1}
	call := now()
	o.w.tell(event{What: evCall, ID: r.id, T: call, Key: o.hands.Name, Mode: r.mode, Weight: r.weight, After: o.lease.Token()})
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
	t := now()
	if o.lease.Valid() {
		o.sure = t
		return true
	}
	if o.held.Err() == nil {
		o.w.wrong(o.id, "the lease is over and its context lives")
	}
	return false
}

// hold is the work under the lock: a write to the store, and some time.
func (o *operation) hold() {
	d, writeAt := o.duration(), time.Duration(0)
	if d > 0 {
		writeAt = time.Duration(o.rng.Int64N(int64(d)))
	}
	wrote := o.mode == Reader // readers write nothing
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
		if left <= 0 || !o.certain() {
			return
		}
		if time.Since(told) >= sureEvery {
			told = time.Now()
			o.w.tell(event{What: evSure, ID: o.id, Sure: o.sure})
		}
		pause := min(left, sureEvery)
		if !wrote {
			pause = min(pause, max(0, writeAt-time.Since(begin)))
		}
		t := time.NewTimer(pause)
		select {
		case <-o.held.Done():
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

func (o *operation) acquire(ctx context.Context) (context.Context, error) {
	h := o.hands
	switch {
	case o.mode == Permit && o.try:
		return h.sem.TryAcquireContext(ctx, o.weight)
	case o.mode == Permit:
		return h.sem.AcquireContext(ctx, o.weight)
	case o.mode == Reader && o.try:
		return h.rw.TryRLockContext(ctx)
	case o.mode == Reader:
		return h.rw.RLockContext(ctx)
	case h.rw != nil && o.try:
		return h.rw.TryLockContext(ctx)
	case h.rw != nil:
		return h.rw.LockContext(ctx)
	case o.try:
		return h.mutex.TryLockContext(ctx)
	}
	return h.mutex.LockContext(ctx)
}

func (o *operation) release(ctx context.Context) error {
	h := o.hands
	switch {
	case o.mode == Permit:
		return h.sem.ReleaseContext(ctx, o.weight)
	case o.mode == Reader:
		return h.rw.RUnlockContext(ctx)
	case h.rw != nil:
		return h.rw.UnlockContext(ctx)
	}
	return h.mutex.UnlockContext(ctx)
}

// unlock gives the lock back. It is called with a context that still lives, that has ended, or that ends
// under way; then once more, until the outcome is known.
func (o *operation) unlock() {
	o.certain()
	e := event{What: evEnd, ID: o.id, Unlock: now(), Sure: o.sure}
	ctx := context.WithoutCancel(o.held)
	if !o.w.Queue && o.rng.IntN(5) == 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+o.rng.Int64N(2000))*time.Microsecond)
		defer cancel()
		ctx = limited
	}
	err := o.release(ctx)
	switch {
	case err == nil:
		e.Outcome = outReleased
	case errors.Is(err, valkeysync.ErrLeaseLost):
		e.Outcome = outLost
		var lost *valkeysync.LostError
		if errors.As(err, &lost) {
			e.Lost = string(lost.Cause)
		}
		if o.lease.Valid() {
			o.w.wrong(o.id, "unlock says lost, the lease says valid")
		}
	case errors.Is(err, valkeysync.ErrNotLocked):
		o.w.wrong(o.id, "unlock of what is held: %v", err)
	default:
		e.Outcome, e.Err = outUndecided, classify(err)
	}
	if o.held.Err() == nil {
		o.w.wrong(o.id, "the context lives after the unlock")
	}
	e.T = now()
	o.w.tell(e)
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
