package chaos

import (
	"fmt"
	"sync"
)

// op is one operation of a worker, as far as the parent was told. Times are of now; 0: never.
type op struct {
	who    string // worker and life
	id     int64
	key    string
	mode   Mode
	weight int64
	owner  string
	form   form
	try    bool
	after  int64 // a downgrade: the writer's token

	call    int64
	ret     int64
	err     string // why it returned without the lock
	token   int64  // 0: it did not return with the lock
	from    int64  // the hold was certain from then …
	sure    int64  // … until then, at least
	unlock  int64  // called
	end     int64  // the unlock returned
	out     string
	lost    string
	taken   bool  // another's unlock had given it back before
	refused int64 // the store had refused it by then, and the hold was certain
}

// with is whom it shares the lock with; "": nobody.
func (o *op) with() string {
	if o.mode == Exclusive {
		return ""
	}
	return "shared " + o.owner
}

// excludes: no two of these at once. (Of permits the weights decide.)
func (o *op) excludes(other *op) bool { return o.mode == Exclusive || o.with() != other.with() }

// held: it returned with the lock, and the hold was certain for some time.
func (o *op) held() bool { return o.from != 0 }

func (o *op) String() string {
	at := func(t int64) string {
		if t == 0 {
			return "-"
		}
		return fmt.Sprintf("%d.%06dms", t/1e6, t%1e6)
	}
	return fmt.Sprintf("%s#%d %s %s %s%d%s token %d: called %s, returned %s %q, certain %s to %s, unlock %s to %s %s %s",
		o.who, o.id, o.form, o.key, o.mode, o.weight, o.owner, o.token, at(o.call), at(o.ret), o.err, at(o.from), at(o.sure), at(o.unlock), at(o.end), o.out, o.lost)
}

// freed is a time in which something took locks from their holders that may do so (FLUSHALL, a restart
// without the data, an operator): who was granted a hold before its end keeps thinking it has one until it
// is told, which is at the end of its lease at the latest. Until then, and from the beginning of the
// freeing on, others may have the lock too. Nothing else is excused: tokens rise all the same.
type freed struct {
	from, to int64  // of now
	since    int64  // server time in µs: it took the holds of lower numbers for certain,
	until    int64  // and none of higher ones than this
	key      string // "": all
	what     Kind
}

// takes: o's hold may have been there, and be gone. The lock key of readers, permits and an owner's processes is a
// marker only: without it their holds go on, and nobody of ours gets in.
func (f freed) takes(o *op) bool {
	return (f.key == "" || f.key == o.key) && o.token>>10 <= f.until && (f.what != DeleteKey || o.mode == Exclusive && o.owner == "")
}

// ends: o's hold was there, and is gone.
func (f freed) ends(o *op) bool {
	return f.takes(o) && o.token>>10 < f.since
}

// record is what happened in a world.
type record struct {
	mu      sync.Mutex
	ops     []*op
	open    map[string]*op // by worker and id
	freed   []freed
	wrong   []string         // what must not happen, seen under way
	stored  map[string]int64 // the fenced store: the highest token by key
	refused int              // writes that the store refused
	ready   map[string]event
	idle    map[string]event
	closed  map[string]event
	gaveUp  map[string]bool // by name: a Client whose Close took all its time
	changed chan struct{}   // closed, and replaced, when something came
}

func newRecord() *record {
	return &record{
		open: map[string]*op{}, stored: map[string]int64{}, changed: make(chan struct{}),
		ready: map[string]event{}, idle: map[string]event{}, closed: map[string]event{}, gaveUp: map[string]bool{},
	}
}

func (r *record) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *record) free(f freed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.freed = append(r.freed, f)
}

func (r *record) hasGivenUp(client string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.gaveUp[client]
}

// take notes what a worker said, and returns the answer to it where there is one.
func (r *record) take(who string, e event) (answer *order) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := fmt.Sprint(who, "#", e.ID)
	o := r.open[id]
	if o == nil && e.What != evCall && e.ID != 0 {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: %s of an operation that is not known", id, e.What))
		return nil
	}
	switch e.What {
	case evCall:
		o = &op{who: who, id: e.ID, key: e.Key, mode: e.Mode, weight: e.Weight, owner: e.Owner, form: e.Form, try: e.Try, after: e.After, call: e.T}
		r.ops = append(r.ops, o)
		r.open[id] = o
	case evGot:
		o.ret, o.token, o.from, o.sure = e.T, e.Token, e.From, e.From
	case evFail:
		o.ret, o.err = e.T, e.Err
		delete(r.open, id)
	case evSure:
		o.sure = max(o.sure, e.Sure)
	case evWrite:
		ok := e.Token >= r.stored[o.key]
		if ok {
			r.stored[o.key] = e.Token
		} else if o.mode == Permit {
			ok = true // several hold it at once, and write in any order
		} else {
			r.refused++
		}
		answer = &order{ID: e.ID, OK: ok}
	case evRefused:
		o.refused = e.T
	case evEnd:
		o.unlock, o.end, o.out, o.lost, o.taken = e.Unlock, e.T, e.Outcome, e.Lost, e.Taken
		o.sure = max(o.sure, e.Sure)
		if o.from == 0 {
			o.sure = 0
		}
		delete(r.open, id)
	case evWrong:
		text := fmt.Sprintf("%s: %s", who, e.Err)
		if o != nil {
			text += " (" + o.String() + ")"
		}
		r.wrong = append(r.wrong, text)
	case evReady:
		r.ready[who] = e
	case evIdle:
		r.idle[who] = e
	case evClosed:
		r.closed[who] = e
	case evGaveUp:
		r.gaveUp[e.Name] = true
	}
	close(r.changed)
	r.changed = make(chan struct{})
	return answer
}
