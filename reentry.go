package valkeysync

import (
	"context"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Re-entry: a context that carries a hold may ask for it again, where WithReentrancy allows it. Ownership
// travels in the context, over function calls and goroutines; there is nothing like a goroutine's identity.

// reenter counts one more entry into a hold that ctx carries, or says that it would wait for itself. Both
// results are nil where ctx carries none that stands in the way.
func (g *gate) reenter(ctx context.Context, w want) (*Lease, error) {
	if w.mode == protocol.Permit {
		return nil, nil
	}
	l := carried(ctx, func(l *Lease) bool { return l.gate == g && l.Valid() })
	switch {
	case l == nil:
		return nil, nil
	case w.opts.reentrant && (w.mode == protocol.Reader || l.hold.entry.Mode == protocol.Exclusive):
		if l.enter() {
			return l, nil
		}
		return nil, nil // it ended just now, and ctx with it
	case w.mode == protocol.Reader && l.hold.entry.Mode == protocol.Reader:
		return nil, nil // another reader, as in sync
	}
	return nil, errCarried(g.keys.Lock)
}

// errCarried: who asks has the lock already.
func errCarried(key string) error {
	return fault.Errorf("%w: the context carries %q already: unlock that first, or see WithReentrancy", ErrDeadlock, key)
}

// enter counts one more entry, and reports false when the acquisition is over.
func (l *Lease) enter() bool {
	l.on.lock()
	defer l.on.unlock()
	if l.lapseLocked(); l.lost != nil || l.ended {
		return false
	}
	l.entries++
	return true
}

// exit takes one entry back, and reports false when only the first is left. The keeper's mutex is held.
func (l *Lease) exit() bool {
	if l.entries == 0 {
		return false
	}
	l.entries--
	return true
}

// errEntered: a write lock that was entered more than once cannot become a read lock under those outside.
func (l *Lease) errEntered() error {
	return fault.Errorf("downgrade of %q, which is entered %d times more: unlock those first: %w", l.Key(), l.entries, ErrDeadlock)
}
