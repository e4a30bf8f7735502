package valkeysync

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// TestProcessesAreServedInTheOrderInWhichTheyQueued: whoever has the lock waits until all others stand in
// the queue, and looks who is the first of them; so who must come next is known, for 99 rounds of 8.
func TestProcessesAreServedInTheOrderInWhichTheyQueued(t *testing.T) {
	t.Parallel()
	const clients, turns = 8, 100
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		watcher := on(t, s)
		var next string // guarded by the lock itself
		var wrong []string
		served := 0
		var all sync.WaitGroup
		for i := range clients {
			name := string(rune('a' + i))
			m := on(t, s, WithName(name)).Mutex("orders")
			all.Go(func() {
				for range turns {
					m.Lock()
					if next != "" && name != next {
						wrong = append(wrong, name+" instead of "+next)
					}
					// Towards the end those whose turns are through do not come any more, so who has
					// his last turn expects nobody in particular.
					next = ""
					if served++; served <= clients*(turns-1) {
						queued(t, s, watcher, "orders", clients-1)
						st, err := watcher.Status(t.Context(), "orders")
						if err == nil && len(st.Queue) > 0 {
							next = st.Queue[0].Name
						}
					}
					m.Unlock()
				}
			})
		}
		within(t, 2*time.Minute, "all turns", all.Wait)
		require.Equal(t, clients*turns, served)
		require.Empty(t, wrong)
	})
}

// TestAGrantThatIsLostInAGapIsFoundBehindIt: the messages that make a waiter the first, and then tell it of
// its lock, go out while nothing reaches it, and nobody sends them again. It thinks that it is the second
// still, so no timer of its own is due, and it watches nothing.
func TestAGrantThatIsLostInAGapIsFoundBehindIt(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		p := proxy.Start(t, s.Addr())
		a, b := on(t, s).Mutex("orders"), on(t, s).Mutex("orders")
		far := through(t, s, p, WithLease(time.Minute))
		held := lock(t, a)
		second := take(t.Context(), b)
		queued(t, s, a.c, "orders", 1)
		third := take(t.Context(), far.Mutex("orders"))
		queued(t, s, a.c, "orders", 2)

		p.BlackholeRole(proxy.Messages, proxy.ToClient, true)
		unlock(t, a, held)
		unlock(t, b, second.got(t, soon))
		require.True(t, exists(t, s, "orders"), "granted: the server knows of no gap")
		select {
		case <-third.done:
			t.Fatal("the message was to be lost")
		default:
		}
		p.CutRole(proxy.Messages)
		p.BlackholeRole(proxy.Messages, proxy.ToClient, false)
		third.got(t, soon)
	})
}
