package protocol

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Kind names a primitive: a key serves one kind at a time.
type Kind string

// The kinds. A semaphore's has its size in it: [SemaphoreKind].
const (
	MutexKind   Kind = "m"
	RWMutexKind Kind = "w"
)

// SemaphoreKind is the kind of a semaphore of that size.
func SemaphoreKind(size int64) Kind { return Kind("s" + strconv.FormatInt(size, 10)) }

// OwnerKind is the kind of a mutex of that owner.
func OwnerKind(owner string) Kind { return Kind("o" + url.PathEscape(owner)) }

// Owner is the owner of a mutex that has one; "" for other kinds.
func (k Kind) Owner() string {
	if !strings.HasPrefix(string(k), "o") {
		return ""
	}
	owner, _ := url.PathUnescape(string(k[1:]))
	return owner
}

// Size is the size of a semaphore; 0 for other kinds.
func (k Kind) Size() int64 {
	if !strings.HasPrefix(string(k), "s") {
		return 0
	}
	n, _ := strconv.ParseInt(string(k[1:]), 10, 64)
	return n
}

// String names the kind for people.
func (k Kind) String() string {
	switch {
	case k == MutexKind:
		return "Mutex"
	case k == RWMutexKind:
		return "RWMutex"
	case k.Owner() != "":
		return fmt.Sprintf("Mutex of owner %q", k.Owner())
	case k.Size() > 0:
		return "Semaphore of size " + string(k[1:])
	}
	return strconv.Quote(string(k))
}

// Mode is how a hold shares with others.
type Mode byte

// The modes.
const (
	Exclusive Mode = 'x' // mutex, writer
	Reader    Mode = 'r'
	Permit    Mode = 'p'
)

// Entry is one attempt of one Client to get a lock: what stands in the queue, and inside a hold.
type Entry struct {
	Client  string // id
	Attempt string
	Kind    Kind
	Mode    Mode
	Weight  int64
	Lease   time.Duration // of a hold that the reply of a script tells
	First   time.Duration // of a hold that a message tells
	Grace   time.Duration // after which the hold of a dead Client ends; 0: only its lease ends it
	Name    string        // of the Client, for people
}

// Ref is the name of the attempt.
func (e Entry) Ref() string { return e.Client + "#" + e.Attempt }

// String is the entry as the server keeps it.
func (e Entry) String() string {
	s, _ := e.text()
	return s
}

// text is the entry as the server keeps it, and the lease in it.
func (e *Entry) text() (entry, lease string) {
	b := make([]byte, 0, 128)
	b = append(b, e.Client...)
	b = append(b, '#')
	b = append(b, e.Attempt...)
	b = append(b, ' ')
	b = append(b, e.Kind...)
	b = append(b, ' ', byte(e.Mode), ' ')
	b = strconv.AppendInt(b, e.Weight, 10)
	b = append(b, ' ')
	from := len(b)
	b = strconv.AppendInt(b, e.Lease.Milliseconds(), 10)
	to := len(b)
	b = append(b, ' ')
	b = strconv.AppendInt(b, e.First.Milliseconds(), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, e.Grace.Milliseconds(), 10)
	b = append(b, ' ')
	entry = string(append(b, e.Name...))
	return entry, entry[from:to]
}

// Hold is the hold of an attempt as the server keeps it: the proof of ownership in release and renew.
func (e Entry) Hold(number, since int64) string {
	return "vs1 " + strconv.FormatInt(number, 10) + " " + strconv.FormatInt(since, 10) + " " + e.String()
}

// Proof is so much of the Hold as release needs: of a mutex, whose number no other hold of the key has, its
// beginning, with some of the Client's id for a server that has lost its numbers and whose clock went back. It is short
// because the server works by the length of strings.
func (e *Entry) Proof(number, since int64) string {
	if e.Kind != MutexKind {
		return e.Hold(number, since)
	}
	b := make([]byte, 0, 48)
	b = append(b, "vs1 "...)
	b = strconv.AppendInt(b, number, 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, since, 10)
	b = append(b, ' ')
	return string(append(b, e.Client[:min(8, len(e.Client))]...))
}

// Holder is what a lock's value says of who has it.
type Holder struct {
	Entry
	Number  int64
	Since   int64 // server ms
	Foreign bool  // not one of ours: Value is all there is
	Shared  bool  // the marker of shared holds; only Kind is set
	Value   string
}

// ParseEntry reads what Entry.String wrote.
func ParseEntry(s string) (Entry, bool) {
	f := strings.SplitN(s, " ", 8)
	if len(f) != 8 || len(f[2]) != 1 {
		return Entry{}, false
	}
	client, attempt, ok := strings.Cut(f[0], "#")
	weight, err1 := strconv.ParseInt(f[3], 10, 64)
	lease, err2 := strconv.ParseInt(f[4], 10, 64)
	first, err3 := strconv.ParseInt(f[5], 10, 64)
	grace, err4 := strconv.ParseInt(f[6], 10, 64)
	if !ok || err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return Entry{}, false
	}
	return Entry{
		Client: client, Attempt: attempt, Kind: Kind(f[1]), Mode: Mode(f[2][0]), Weight: weight,
		Lease: time.Duration(lease) * time.Millisecond, First: time.Duration(first) * time.Millisecond,
		Grace: time.Duration(grace) * time.Millisecond, Name: f[7],
	}, true
}

// ParseHolder reads the value of a lock, or of a member of its shared holds. It never fails: what is
// not ours is foreign.
func ParseHolder(value string) Holder {
	f := strings.SplitN(value, " ", 4)
	if len(f) >= 3 && f[0] == "vs1" {
		if f[1] == "shared" {
			return Holder{Shared: true, Entry: Entry{Kind: Kind(f[2])}, Value: value}
		}
		number, err1 := strconv.ParseInt(f[1], 10, 64)
		since, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 == nil && err2 == nil && len(f) == 4 {
			if e, ok := ParseEntry(f[3]); ok {
				return Holder{Entry: e, Number: number, Since: since, Value: value}
			}
		}
	}
	return Holder{Foreign: true, Value: value}
}
