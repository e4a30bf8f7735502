package chaos

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// now is CLOCK_MONOTONIC, which all processes of one machine share.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // no such clock: nothing here could be judged
	}
	return ts.Nano()
}

// Mode is how an operation shares with others.
type Mode string

// The modes.
const (
	Exclusive Mode = "x"
	Reader    Mode = "r"
	Permit    Mode = "p"
)

// Key is one lock of a world.
type Key struct {
	Name string
	Kind string // mutex, rwmutex, semaphore
	Size int64  // of a semaphore

	Owned bool // a mutex: some lock it for an owner
}

// event is one line that a worker writes. A line is shorter than what a pipe takes in one piece, so what
// a worker wrote before it was killed arrives whole.
type event struct {
	What string `json:"e"`
	ID   int64  `json:"i,omitempty"`
	T    int64  `json:"t,omitempty"`

	// call
	Key    string `json:"k,omitempty"`
	Mode   Mode   `json:"m,omitempty"`
	Weight int64  `json:"w,omitempty"`
	Owner  string `json:"own,omitempty"`
	Form   form   `json:"form,omitempty"`
	Try    bool   `json:"try,omitempty"`
	After  int64  `json:"a,omitempty"` // a downgrade: the token of the writer

	// got, sure, write: the token, and until when the hold was certain
	Token int64 `json:"tok,omitempty"`
	From  int64 `json:"f,omitempty"`
	Sure  int64 `json:"s,omitempty"`

	// end
	Unlock  int64  `json:"u,omitempty"` // when it was called
	Outcome string `json:"o,omitempty"`
	Lost    string `json:"l,omitempty"`
	Taken   bool   `json:"tk,omitempty"` // it had been given back before, by another's unlock

	// fail, wrong, and what a worker says of itself
	Err        string `json:"err,omitempty"`
	Name       string `json:"n,omitempty"`
	Goroutines int    `json:"g,omitempty"`
	Heap       uint64 `json:"h,omitempty"`
}

// What events say.
const (
	evReady   = "ready"   // the Client is there; Goroutines: before it was made
	evCall    = "call"    // an operation is about to be called
	evGot     = "got"     // it returned with the lock
	evFail    = "fail"    // it returned without
	evSure    = "sure"    // the hold is still certain
	evWrite   = "write"   // the store is asked to take a write with the token; it is answered
	evRefused = "refused" // the store refused it, and the hold was certain after that
	evEnd     = "end"     // the hold was given back, or found lost
	evWrong   = "wrong"   // the worker saw something that must not happen
	evIdle    = "idle"    // all operations have ended, and nothing of the library goes on any more
	evClosed  = "closed"  // the Client is closed; Goroutines: that are left
	evGaveUp  = "gave up" // Close took all its time, so that places of the Client of this Name may remain
)

// Outcomes of an unlock.
const (
	outReleased  = "released"
	outLost      = "lost"
	outUndecided = "undecided" // it goes on in the background
)

// order is one line that the parent writes to a worker.
type order struct {
	Do string `json:"do,omitempty"` // stop, close, swap

	ID int64 `json:"i,omitempty"` // answer to the write of this operation
	OK bool  `json:"ok,omitempty"`
}

// job is what a worker is started with.
type job struct {
	Slot, Life int // which worker, and how often it was replaced
	Seed       uint64
	Addr       string
	Addrs      []string // of the servers of a Quorum, in place of Addr
	Keys       []Key
	Goroutines int
	Holds      string // short, mixed, long
	Queue      bool   // operations wait for their turn: no tries, no limits, no early ends
	Lease      time.Duration
	Grace      time.Duration
	Linger     time.Duration
}

// Every worker is a user of its own, so that the rights of one alone can be narrowed.
func user(slot int) string { return fmt.Sprintf("worker%d", slot) }

const password = "work"

var allRights = []string{"on", ">" + password, "~*", "&*", "+@all"}
