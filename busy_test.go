package valkeysync

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A server that runs somebody's endless script answers everything with BUSY. What was under way then ends
// in order when the script was killed, and nothing panics: an UNSUBSCRIBE at that time would (see
// subscriber).
func TestBusyServerIsWaitedOut(t *testing.T) {
	testserver.Each(t, append([]string{"--busy-reply-threshold", "50"}, notifying...), func(t *testing.T, s *testserver.Server) {
		holder, waiter := newClient(t, s.Client(t)), newClient(t, s.Client(t))
		mu := holder.Mutex("k")
		mu.Lock()
		got := make(chan error, 1)
		go func() {
			_, err := waiter.Mutex("k").LockContext(t.Context())
			got <- err
		}()
		subscribed(t, s, "__keyspace@0__:k", 2) // both watch the key by now

		endless := s.Client(t)
		over := make(chan error, 1)
		go func() {
			over <- endless.Do(context.Background(), endless.B().Eval().Script("while true do end").Numkeys(0).Build()).Error()
		}()
		require.Eventually(t, func() bool {
			_, err := s.Do("GET", "k")
			return err != nil && isReply(err)
		}, 5*time.Second, 10*time.Millisecond)

		unlocked := make(chan struct{})
		go func() {
			mu.Unlock() // ends the watch of the holder
			close(unlocked)
		}()
		select {
		case err := <-got:
			t.Fatal("a busy server grants nothing", err)
		case <-time.After(200 * time.Millisecond):
		}
		_, err := s.Do("SCRIPT", "KILL")
		require.NoError(t, err)
		require.Error(t, <-over)
		<-unlocked
		require.NoError(t, <-got)
	})
}

// subscribed waits until n connections are subscribed to a channel.
func subscribed(t *testing.T, s *testserver.Server, channel string, n int64) {
	t.Helper()
	require.Eventually(t, func() bool {
		reply, err := s.Do("PUBSUB", "NUMSUB", channel)
		require.NoError(t, err)
		counts, err := reply.ToArray()
		require.NoError(t, err)
		count, err := counts[1].ToInt64()
		require.NoError(t, err)
		return count == n
	}, 10*time.Second, 5*time.Millisecond)
}

func TestChannelsThatNobodyWatchesGoInTime(t *testing.T) {
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := newClient(t, s.Client(t))
		for range maxStale + 10 {
			w := c.hub.watch(c.keyspace("k"+time.Now().String()), func(string) {})
			<-w.confirmed()
			w.stop()
		}
		require.Eventually(t, func() bool {
			reply, err := s.Do("PUBSUB", "CHANNELS", "__keyspace@*")
			require.NoError(t, err)
			names, err := reply.AsStrSlice()
			require.NoError(t, err)
			return len(names) < 20
		}, 5*time.Second, 5*time.Millisecond)
		require.Zero(t, c.Stats().Reconnects, "nothing was missed")
	})
}
