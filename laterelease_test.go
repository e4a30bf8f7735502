package valkeysync

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// A release that was delayed may arrive when the attempt that it is to queue has been to the server by
// itself: its Client gave the release up at the end of the lease, which on the server is a little later.

func (p *peer) permit(attempt string, size, weight int64) protocol.Entry {
	e := p.entry(attempt)
	e.Kind, e.Mode, e.Weight = protocol.SemaphoreKind(size), protocol.Permit, weight
	return e
}

func TestLateReleaseTakesNoSecondHoldOrPlaceForItsNextAttempt(t *testing.T) {
	for _, others := range []bool{false, true} {
		inBubble(t, func(t *testing.T, b *bubble) {
			p, other := b.peer("p", "orders"), b.peer("o", "orders")
			first, next := p.permit("1", 3, 1), p.permit("2", 3, 1)
			held := p.acquire(first)
			require.Equal(t, protocol.Held, held.Outcome)
			second := p.acquire(next)
			require.Equal(t, protocol.Held, second.Outcome)
			if others { // so that the next attempt would have to queue
				require.Equal(t, protocol.Queued, other.acquire(other.permit("1", 3, 3)).Outcome)
			}
			r := p.reply(p.Release(t.Context(), &p.keys, first.Hold(held.Number, held.Since), &next, protocol.Queue, 0))
			require.Equal(t, protocol.Held, r.Outcome)
			require.Equal(t, second.Number, r.Number, "the hold that it has")
			st := p.standing()
			require.Len(t, st.Shared, 1)
			for _, m := range st.Queue {
				require.NotContains(t, m.Value, next.Ref())
			}
		})
	}
}

func TestReleaseTooLateToQueueLeavesThePlaceThatIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p, other := b.peer("p", "orders"), b.peer("o", "orders")
		first, held := p.hold("1")
		require.Equal(t, 1, p.acquire(p.entry("2")).Place)
		require.Equal(t, 2, other.acquire(other.entry("1")).Place)
		next := p.entry("2")
		r := p.reply(p.Release(t.Context(), &p.keys, first.Hold(held.Number, held.Since), &next, protocol.Queue, time.Now().UnixMilli()-1))
		require.Equal(t, protocol.Released, r.Outcome)
		require.Equal(t, protocol.Held, p.check(next).Outcome, "it was the first in the queue")
	})
}
