package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// herd is a load of lock cycles, one worker for each Client and key, that goes on while servers fail. It is
// the judge: every cycle must end with a confirmed unlock or a reported loss, and every token be higher
// than all that were given out before it was asked for.
type herd struct {
	ctx    context.Context
	stop   context.CancelFunc
	work   sync.WaitGroup
	cycles []*atomic.Int64
	lost   atomic.Int64
	unsure atomic.Int64

	mu    sync.Mutex
	high  map[string]int64
	wrong []string
}

func startHerd(clients []*Client, keys []string) *herd {
	h := &herd{high: map[string]int64{}}
	h.ctx, h.stop = context.WithCancel(context.Background())
	for _, c := range clients {
		for _, key := range keys {
			n := new(atomic.Int64)
			h.cycles = append(h.cycles, n)
			h.work.Go(func() {
				m := c.Mutex(key)
				for h.ctx.Err() == nil {
					h.cycle(m, key)
					n.Add(1)
				}
			})
		}
	}
	return h
}

func (h *herd) cycle(m *Mutex, key string) {
	h.mu.Lock()
	before := h.high[key]
	h.mu.Unlock()
	held, err := m.LockContext(h.ctx)
	if err != nil {
		if h.ctx.Err() == nil {
			h.blame("lock of %s: %v", key, err)
		}
		return
	}
	l, _ := FromContext(held)
	h.mu.Lock()
	h.high[key] = max(h.high[key], l.Token())
	h.mu.Unlock()
	if l.Token() <= before {
		h.blame("token %d of %s after %d", l.Token(), key, before)
	}
	select {
	case <-held.Done():
	case <-time.After(2 * time.Millisecond): // the work
	}
	switch err := m.UnlockContext(context.WithoutCancel(held)); {
	case err == nil:
	case errors.Is(err, ErrLeaseLost):
		h.lost.Add(1)
	case judge(err) == passing: // not confirmed until the lease was over, and said so
		h.unsure.Add(1)
	default:
		h.blame("unlock of %s: %v", key, err)
	}
}

func (h *herd) blame(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wrong = append(h.wrong, fmt.Sprintf(format, args...))
}

// goesOn waits until every worker has been through some more cycles.
func (h *herd) goesOn(t *testing.T, limit time.Duration) {
	t.Helper()
	was := make([]int64, len(h.cycles))
	for i, n := range h.cycles {
		was[i] = n.Load()
	}
	require.Eventually(t, func() bool {
		for i, n := range h.cycles {
			if n.Load() < was[i]+3 {
				return false
			}
		}
		return true
	}, limit, 5*time.Millisecond, "everybody goes on")
}

// end stops the load and says what went wrong.
func (h *herd) end(t *testing.T) {
	t.Helper()
	h.stop()
	within(t, 20*time.Second, "the herd's end", h.work.Wait)
	h.mu.Lock()
	defer h.mu.Unlock()
	require.Empty(t, h.wrong)
	var cycles int64
	for _, n := range h.cycles {
		cycles += n.Load()
	}
	t.Logf("%d cycles, %d leases lost, %d unlocks not confirmed", cycles, h.lost.Load(), h.unsure.Load())
}

// confirmedOrLost: a hold that was taken before a failover is either held on the server, or was reported lost.
func confirmedOrLost(t *testing.T, c *Client, held context.Context) {
	t.Helper()
	l, _ := FromContext(held)
	require.Eventually(t, func() bool {
		if held.Err() != nil {
			var lost *LostError
			require.ErrorAs(t, context.Cause(held), &lost)
			return true
		}
		st, err := c.Status(context.Background(), l.Key())
		return err == nil && len(st.Holders) == 1 && st.Holders[0].Token == l.Token()
	}, 15*time.Second, 5*time.Millisecond, "%s: neither held nor reported lost", l.Key())
}

// keepLocked locks a key and leaves it locked.
func keepLocked(t *testing.T, c *Client, key string) context.Context {
	t.Helper()
	held, err := c.Mutex(key).LockContext(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	return held
}
