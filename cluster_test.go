package valkeysync

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// clustered is a cluster and Clients on it.
type clustered struct {
	*testserver.Cluster
	t      testing.TB
	flavor testserver.Flavor
}

// eachCluster runs fn for each flavor on a cluster of 3 primaries and 3 replicas.
func eachCluster(t *testing.T, fn func(t *testing.T, c *clustered)) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			fn(t, &clustered{testserver.StartCluster(t, f, 3, 1, notifying...), t, f})
		})
	}
}

func (c *clustered) client(t testing.TB, opts ...Option) *Client {
	return newClient(t, c.dial(t), opts...)
}

func (c *clustered) dial(t testing.TB) valkey.Client {
	return c.Client(t)
}

// keys are names of locks on every primary, n for each, in turn.
func (c *clustered) keys(prefix string, n int) []string {
	third := protocol.Slots / 3
	var by [3][]string
	for i := 0; len(by[0]) < n || len(by[1]) < n || len(by[2]) < n; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		node := min(protocol.Slot(key)/(third+1), 2)
		by[node] = append(by[node], key)
	}
	var out []string
	for i := range n {
		out = append(out, by[0][i], by[1][i], by[2][i])
	}
	return out
}

// waiting waits until n processes wait for the key on the server.
func (c *clustered) waiting(t testing.TB, by *Client, key string, n int) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		st, err := by.Status(context.Background(), key)
		if err == nil && st.Waiting == n {
			return
		}
		select {
		case <-limit:
			t.Fatalf("%d wait for %q, want %d (%v)", st.Waiting, key, n, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func TestCluster(t *testing.T) {
	eachCluster(t, func(t *testing.T, c *clustered) {
		t.Run("unlock hands over by shard message on every node", c.handOver)
	})
}

func (c *clustered) handOver(t *testing.T) {
	a, b := c.client(t), c.client(t)
	for _, key := range c.keys("hand-over-", 3) {
		ma, mb := a.Mutex(key), b.Mutex(key)
		ma.Lock()
		got := make(chan struct{})
		go func() {
			mb.Lock()
			close(got)
		}()
		c.waiting(t, a, key, 1)
		ma.Unlock()
		within(t, 5*time.Second, "hand-over of "+key, func() { <-got })
		mb.Unlock()
	}
	require.EqualValues(t, 9, b.Stats().ByMessage)
	require.Zero(t, b.Stats().WokenByTimer)
}
