package valkeysync

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// QuorumError says of a lock on a majority which servers stood in the way, and why each. It comes as the error
// where no majority could be asked, and otherwise inside a *WaitError (Server) or a *LostError (Err). For
// errors.Is and errors.As it is each of its servers' errors.
type QuorumError struct {
	Key     string
	Servers int            // how many there are
	Needed  int            // how many of them make a majority
	Have    int            // how many had it for us
	Errs    []*ServerError // of the others
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "valkeysync: %q: %d of %d servers, %d needed", e.Key, e.Have, e.Servers, e.Needed)
	for i, err := range e.Errs {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString(fault.Bare(err).Error())
	}
	return b.String()
}

// Unwrap: see the type.
func (e *QuorumError) Unwrap() []error {
	errs := make([]error, len(e.Errs))
	for i, err := range e.Errs {
		errs[i] = err
	}
	return errs
}

// severity is what it means for whoever waits: that of a majority.
func (e *QuorumError) severity() severity {
	var worse [fatal + 1]int
	for _, err := range e.Errs {
		worse[judge(err)]++
	}
	spare := e.Servers - e.Needed
	switch {
	case worse[fatal] > spare:
		return fatal
	case worse[fatal]+worse[refused] > spare:
		return refused
	}
	return passing
}

// ServerError is why one server of a Quorum did not do its part: ErrLocked with the name of who has the key there,
// the server's own error, or the network's.
type ServerError struct {
	Server int    // its number: the place of its Client in NewQuorum, from 0
	Name   string // its address
	Err    error
}

func (e *ServerError) Error() string {
	return fault.Errorf("server %d (%s): %w", e.Server, e.Name, e.Err).Error()
}

func (e *ServerError) Unwrap() error { return e.Err }

var (
	errGone     = errors.New("it does not have the key any more")
	errNoAnswer = errors.New("no answer yet")
	errNotAsked = errors.New("not asked")
	errLate     = errors.New("the request came after its latest time; the server's clock has moved")
)

// errRefused is what a server said that the key is not ours.
func errRefused(r protocol.Reply) error {
	switch {
	case r.Holder == "":
		return errGone
	case r.Outcome != protocol.Busy:
		return fault.Errorf("the key was taken by %s", describe(r.Holder))
	case r.Remaining == protocol.Forever:
		return fault.Errorf("%w by %s without expiry", ErrLocked, describe(r.Holder))
	}
	return fault.Errorf("%w by %s for up to %v", ErrLocked, describe(r.Holder), r.Remaining.Round(time.Millisecond))
}
