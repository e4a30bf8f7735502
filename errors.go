package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Errors of this package, for errors.Is. The server's own errors (NOPERM, OOM, WRONGTYPE …) stay in the
// chain, for errors.As with a *valkey.ValkeyError.
var (
	// ErrLocked: somebody else has the lock, or waits for it before us.
	ErrLocked = fault.New("locked")
	// ErrNotLocked: an unlock of what is not locked.
	ErrNotLocked = fault.New("not locked: unlock once for each lock, with the handle that locked, and with the context that it gave for that")
	// ErrLeaseLost: the lease ended before the unlock. It comes in a *LostError, which says why.
	ErrLeaseLost = fault.New("lease lost")
	// ErrClosed: the Client was closed, or the valkey.Client that it works with.
	ErrClosed = protocol.ErrClosed
	// ErrInvalidKey: a key that cannot be used; the text says why and what to do.
	ErrInvalidKey = protocol.ErrInvalidKey
	// ErrInvalidOption: an option that cannot be used; the text says why and what to do.
	ErrInvalidOption = fault.New("invalid option")
	// ErrMismatch: another kind of primitive, or a semaphore of another size, is in use on the key.
	ErrMismatch = fault.New("key in use by another kind of primitive")
	// ErrNotReplicated: fewer replicas than WithReplicas asks for have the acquisition. It was given back.
	ErrNotReplicated = fault.New("not replicated")
	// ErrDeadlock: the context already carries the lock that it asks for, and would wait for itself.
	ErrDeadlock = fault.New("deadlock")
	// ErrTooLarge: more permits than the semaphore has.
	ErrTooLarge = fault.New("larger than the semaphore")
	// ErrInvalidWeight: a weight below 1.
	ErrInvalidWeight = fault.New("invalid weight")
)

// Cause is why a lease was lost.
type Cause string

// The causes of a lost lease.
const (
	CauseExpired     Cause = "expired"     // it ended before a renewal was confirmed; the server answered, but too late
	CauseTaken       Cause = "taken"       // somebody else has the key: taken by force, or overwritten
	CauseDeleted     Cause = "deleted"     // the key was gone before its time: DEL, FLUSHALL, eviction, lost writes
	CauseUnreachable Cause = "unreachable" // no renewal was answered until the end of the lease
	CauseMaxHold     Cause = "max hold"    // WithMaxHold: it was not renewed any more
	CauseClosed      Cause = "closed"      // the Client was closed
)

// LostError is how a lost lease is told: by the context's cause (context.Cause), by OnLost, by
// UnlockContext. It is ErrLeaseLost for errors.Is.
type LostError struct {
	Key   string
	Cause Cause
	Err   error // the last error of a renewal, where there was one
}

func (e *LostError) Error() string {
	s := fmt.Sprintf("valkeysync: lease of %q lost: %s", e.Key, e.Cause)
	if e.Err != nil {
		s += ": " + fault.Bare(e.Err).Error()
	}
	return s
}

// Unwrap makes the error ErrLeaseLost, and keeps the renewal's own error reachable.
func (e *LostError) Unwrap() []error {
	errs := []error{ErrLeaseLost}
	if e.Cause == CauseClosed {
		errs = append(errs, ErrClosed)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// WaitError is how a wait that did not end with the lock is told, and a try that found it taken. Its text
// says who has the lock and for how long. For errors.Is it is Err (the context's error, or ErrLocked), and
// ErrLocked too where somebody else was seen to have it.
type WaitError struct {
	Key       string
	Holder    string        // for people; "" when unknown
	Remaining time.Duration // of the holder's lease when last seen, which it may renew; negative: no expiry
	Ahead     int           // how many wait before us
	Err       error
	Server    error // the last error of the server or the network, where the wait met one
}

func (e *WaitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "valkeysync: %q", e.Key)
	if e.Holder != "" {
		fmt.Fprintf(&b, " held by %s", e.Holder)
		if e.Remaining < 0 {
			b.WriteString(" without expiry (nothing ends that but its own unlock, or ForceUnlock)")
		} else {
			fmt.Fprintf(&b, " for up to %v", e.Remaining.Round(time.Millisecond))
		}
	}
	if e.Ahead > 0 {
		fmt.Fprintf(&b, ", %d waiting ahead", e.Ahead)
	}
	fmt.Fprintf(&b, ": %v", fault.Bare(e.Err))
	if e.Server != nil {
		fmt.Fprintf(&b, " (last: %v)", fault.Bare(e.Server))
	}
	return b.String()
}

// Unwrap: see the type.
func (e *WaitError) Unwrap() []error {
	errs := []error{e.Err}
	if e.Holder != "" && !errors.Is(e.Err, ErrLocked) {
		errs = append(errs, ErrLocked)
	}
	if e.Server != nil {
		errs = append(errs, e.Server)
	}
	return errs
}

// severity is what an error of a call means for whoever waits.
type severity int

const (
	passing severity = iota // it may pass by itself: repeat
	refused                 // the server answered no: an error for whoever can take one, repeated by Lock
	fatal                   // repeating is no use
)

// passingReplies are first words of error replies.
var passingReplies = []string{"LOADING", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY", "NOREPLICAS", "NOSCRIPT", "UNBLOCKED"}

// isReply: the server answered, with an error. Nothing of the request remains to be run.
func isReply(err error) bool {
	var reply *valkey.ValkeyError
	return errors.As(err, &reply)
}

func judge(err error) severity {
	var several *QuorumError
	if errors.As(err, &several) {
		return several.severity()
	}
	for _, e := range []error{ErrClosed, ErrInvalidKey, ErrInvalidOption, ErrMismatch, ErrDeadlock, ErrTooLarge, ErrInvalidWeight} {
		if errors.Is(err, e) {
			return fatal
		}
	}
	var reply *valkey.ValkeyError
	if !errors.As(err, &reply) {
		return passing // network, time limit
	}
	if protocol.Denied(err) || protocol.WrongType(err) || protocol.Says(err, "NOAUTH", "WRONGPASS", "NOPROTO") {
		return fatal
	}
	for _, word := range passingReplies {
		if strings.HasPrefix(reply.Error(), word) {
			return passing
		}
	}
	return refused
}

// errOtherSize is the mismatch that may come about while a program runs.
var errOtherSize error = otherSize{}

type otherSize struct{}

func (otherSize) Error() string { return fault.New("semaphore in use with another size").Error() }
func (otherSize) Unwrap() error { return ErrMismatch }

// mismatch is the error of a gate whose key is in use by another kind.
func mismatch(g *gate, name string) error {
	kind, err, remedy := protocol.Kind(name), ErrMismatch, "use another key for one of them"
	if kind.Size() > 0 && g.kind.Size() > 0 {
		err, remedy = errOtherSize, "give the same size everywhere, or have Semaphore.Resize put this one in force"
	}
	return fault.Errorf("%w: %q is in use by a %v, this is a %v: %s", err, g.keys.Lock, kind, g.kind, remedy)
}

// quoteShort quotes what may be long.
func quoteShort(s string) string {
	const most = 40
	if len(s) > most {
		s = s[:most] + "…"
	}
	return fmt.Sprintf("%q", s)
}

// contextEnd is ctx's error as the caller should see it.
func contextEnd(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		return fault.Errorf("%w: %w", err, cause)
	}
	return err
}
