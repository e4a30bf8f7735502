package valkeysync

import (
	"context"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Status is how a lock stood at one moment. See (*Client).Status.
type Status struct {
	Key     string
	State   State
	Holders []HolderStatus // one for an exclusive holder, one for each reader or permit
	Size    int64          // of the semaphore in use; 0 otherwise
	Queue   []WaiterStatus // in order, the first 100
	Waiting int            // how many processes wait
	Last    int64          // the last number given out for the key: tokens to come are higher than Last<<10

	value string // of the lock's key: what ForceUnlockIf compares
}

// State says in a word how a lock stands.
type State string

// The states.
const (
	StateFree     State = "free"
	StateHeld     State = "held"      // exclusively, by a Mutex or a writer
	StateShared   State = "shared"    // by readers or permits
	StateForeign  State = "foreign"   // by another program, with an expiry
	StateNoExpiry State = "no expiry" // by another program (or an operator) that set none: nothing but its own unlock, or ForceUnlock, ends it
)

// HolderStatus is one who holds.
type HolderStatus struct {
	Name      string // as WithName has it; of a foreign holder the value of its key
	Client    string // id of its Client; "" for a foreign holder
	Mode      string // "exclusive", "reader" or "permit"; "owner …" of a Mutex with an owner; "foreign"
	Weight    int64
	Token     int64         // of its first acquisition; 0 for a foreign holder
	Held      time.Duration // for how long already; 0 for a foreign holder
	Remaining time.Duration // of its lease, which it may renew; negative: no expiry
}

// WaiterStatus is one process that waits.
type WaiterStatus struct {
	Name   string
	Client string
	Mode   string
	Weight int64
	Waited time.Duration // for how long it has its place in the queue
}

// statusQueue is how many waiting processes Status lists.
const statusQueue = 100

var modeNames = map[protocol.Mode]string{protocol.Exclusive: "exclusive", protocol.Reader: "reader", protocol.Permit: "permit"}

func modeName(e protocol.Entry) string {
	if owner := e.Kind.Owner(); owner != "" {
		return "owner " + owner
	}
	return modeNames[e.Mode]
}

// Status reads how the lock on a key stands, for a person to look at: by the time it returns it may be
// otherwise, so nothing should be decided by it. It works for all primitives and for keys that other
// programs use. It asks the server once and blocks until it has answered or ctx ends.
//
// Errors: ErrInvalidKey, ErrClosed, ctx's error, the server's own.
func (c *Client) Status(ctx context.Context, key string) (Status, error) {
	keys, err := c.personal(ctx, c.opts.client.prefix, key)
	if err != nil {
		return Status{}, err
	}
	st, err := c.server.Status(ctx, &keys, statusQueue)
	if err != nil {
		return Status{}, err
	}
	s := Status{Key: keys.Lock, State: StateFree, Waiting: st.Waiting, Last: st.Last, value: st.Value}
	switch h := protocol.ParseHolder(st.Value); {
	case st.Value == "" && len(st.Shared) == 0:
	case st.Value == "" || h.Shared:
		if len(st.Shared) > 0 {
			s.State = StateShared
		}
	case h.Foreign:
		s.State = StateForeign
		if st.Remaining == protocol.Forever {
			s.State = StateNoExpiry
		}
		s.Holders = append(s.Holders, HolderStatus{Name: st.Value, Mode: "foreign", Weight: 1, Remaining: st.Remaining})
	default:
		s.State = StateHeld
		s.Holders = append(s.Holders, holderStatus(h, st, st.Remaining))
	}
	for _, m := range st.Shared {
		h := protocol.ParseHolder(m.Value)
		if h.Foreign {
			continue // not a hold
		}
		s.Size = h.Kind.Size()
		s.Holders = append(s.Holders, holderStatus(h, st, time.Duration(m.Score-st.Now)*time.Millisecond))
	}
	if h := protocol.ParseHolder(st.Value); h.Shared {
		s.Size = h.Kind.Size() // who holds may do so by another
	}
	for _, m := range st.Queue {
		if e, ok := protocol.ParseEntry(m.Value); ok {
			s.Queue = append(s.Queue, WaiterStatus{Name: e.Name, Client: e.Client, Mode: modeName(e), Weight: e.Weight, Waited: waited(m, st)})
		}
	}
	return s, nil
}

// waited is for how long an entry has had its place: places are numbers, which follow the server's clock unless it
// was set back.
func waited(m protocol.Member, st protocol.Standing) time.Duration {
	return time.Duration(max(0, st.Now-m.Score/1000)) * time.Millisecond
}

func holderStatus(h protocol.Holder, st protocol.Standing, left time.Duration) HolderStatus {
	return HolderStatus{
		Name: h.Name, Client: h.Client, Mode: modeName(h.Entry), Weight: h.Weight, Token: token(h.Number, 0),
		Held: time.Duration(st.Now-h.Since) * time.Millisecond, Remaining: left,
	}
}
