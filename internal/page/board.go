package page

import (
	"sync"
	"time"

	"github.com/google/uuid"
)

// phase says how well the server is watched.
type phase string

const (
	connecting phase = "connecting"
	looking    phase = "looking" // the first list is being made
	live       phase = "live"    // woken by notifications
	blind      phase = "blind"   // without them
	down       phase = "down"
)

// state is what stands above the list.
type state struct {
	Phase phase  `json:"phase"`
	Text  string `json:"text,omitempty"` // why, and what to do
	Cut   string `json:"cut,omitempty"`  // why there may be more locks than are shown
}

// entry is a line of the log.
type entry struct {
	Seq    int64     `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Words  string    `json:"words"`
	ID     string    `json:"id,omitempty"` // of the lock that it is about
	Key    *text     `json:"key,omitempty"`
	Holder *text     `json:"holder,omitempty"`
	Token  string    `json:"token,omitempty"`
}

// mostEntries is how many lines of the log are kept.
const mostEntries = 500

// board is what the pages show. Whoever writes on it does not wait for those who read: each reader has its own list
// of what it has not seen, and gets the latest of it when it comes for it, however slow it is.
type board struct {
	run string // tells this process's log from that of another

	mu      sync.Mutex
	locks   map[string]*view
	state   state
	log     []entry // the last mostEntries
	seq     int64   // of the last of them
	readers map[*reader]struct{}
}

// reader is one open page.
type reader struct {
	board *board
	kick  chan struct{} // capacity 1: there is something

	// Guarded by the board's mutex.
	whole bool                // it has seen nothing yet
	locks map[string]struct{} // that it has not seen as they are
	state bool                // nor the state
	seq   int64               // the last line of the log that it has seen
}

func newBoard() *board {
	return &board{run: uuid.NewString()[:8], locks: map[string]*view{}, state: state{Phase: connecting}, readers: map[*reader]struct{}{}}
}

// put shows a lock as it stands now; nil: no more.
func (b *board) put(key string, v *view) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if v != nil {
		b.locks[key] = v
	} else {
		delete(b.locks, key)
	}
	for r := range b.readers {
		r.locks[key] = struct{}{}
		r.stir()
	}
}

// keep takes away all locks but those.
func (b *board) keep(rows map[string]*row) {
	b.mu.Lock()
	var gone []string
	for key := range b.locks {
		if rows[key] == nil {
			gone = append(gone, key)
		}
	}
	b.mu.Unlock()
	for _, key := range gone {
		b.put(key, nil)
	}
}

// clear takes all locks away.
func (b *board) clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.locks)
	for r := range b.readers {
		r.whole = true
		r.stir()
	}
}

// say shows how things stand.
func (b *board) say(s state) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == s {
		return
	}
	b.state = s
	for r := range b.readers {
		r.state = true
		r.stir()
	}
}

// note adds a line to the log.
func (b *board) note(e entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seq++
	e.Seq = b.seq
	if len(b.log) == mostEntries {
		b.log = append(b.log[:0], b.log[1:]...)
	}
	b.log = append(b.log, e)
	for r := range b.readers {
		r.stir()
	}
}

// read makes a reader, who has seen the log up to seq. Call close.
func (b *board) read(seq int64) *reader {
	r := &reader{board: b, kick: make(chan struct{}, 1), whole: true, locks: map[string]struct{}{}, seq: seq}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[r] = struct{}{}
	r.stir()
	return r
}

func (r *reader) close() {
	r.board.mu.Lock()
	defer r.board.mu.Unlock()
	delete(r.board.readers, r)
}

// stir is called with the board's mutex.
func (r *reader) stir() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// news is what a reader has not seen.
type news struct {
	whole bool // locks are all there are
	locks []*view
	gone  []string
	state *state
	log   []entry
	seq   int64
}

// take returns what the reader has not seen, and counts it as seen.
func (r *reader) take() news {
	b := r.board
	b.mu.Lock()
	defer b.mu.Unlock()
	n := news{whole: r.whole, seq: b.seq}
	if r.whole {
		for _, v := range b.locks {
			n.locks = append(n.locks, v)
		}
	} else {
		for key := range r.locks {
			if v := b.locks[key]; v != nil {
				n.locks = append(n.locks, v)
			} else {
				n.gone = append(n.gone, key)
			}
		}
	}
	if r.whole || r.state {
		s := b.state
		n.state = &s
	}
	for _, e := range b.log {
		if e.Seq > r.seq {
			n.log = append(n.log, e)
		}
	}
	r.whole, r.state, r.seq = false, false, b.seq
	clear(r.locks)
	return n
}

// empty: there is nothing in it.
func (n *news) empty() bool {
	return !n.whole && len(n.locks) == 0 && len(n.gone) == 0 && n.state == nil && len(n.log) == 0
}
