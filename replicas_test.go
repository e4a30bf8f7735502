package valkeysync

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// replicated is a primary and a replica of it.
func replicated(t *testing.T, fn func(t *testing.T, primary, replica *testserver.Server)) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			p, r := testserver.Start(t, f, append(notifying, "--repl-diskless-sync-delay", "0")...), testserver.Start(t, f)
			follow(t, r, p)
			fn(t, p, r)
		})
	}
}

// follow makes r a replica of p and waits until it is in step.
func follow(t *testing.T, r, p *testserver.Server) {
	t.Helper()
	host, port, err := net.SplitHostPort(p.Addr())
	require.NoError(t, err)
	_, err = r.Do("REPLICAOF", host, port)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return copies(t, p) == 1 }, 15*time.Second, 5*time.Millisecond)
}

// copies is how many replicas have what has just been written.
func copies(t *testing.T, p *testserver.Server) int64 {
	t.Helper()
	_, err := p.Do("SET", "copies", "x", "PX", "1000")
	require.NoError(t, err)
	m, err := p.Do("WAIT", "1", "50")
	require.NoError(t, err)
	n, err := m.ToInt64()
	require.NoError(t, err)
	return n
}

func TestReplicatedLockIsOnTheReplica(t *testing.T) {
	replicated(t, func(t *testing.T, p, r *testserver.Server) {
		a, b := newClient(t, p.Client(t), WithReplicas(1)), newClient(t, p.Client(t), WithReplicas(1))
		ma, mb := a.Mutex("k"), b.Mutex("k")
		token := func(held context.Context) int64 {
			l, _ := FromContext(held)
			m, err := r.Do("GET", "k")
			require.NoError(t, err)
			value, err := m.ToString()
			require.NoError(t, err)
			require.Equal(t, l.Token(), protocol.ParseHolder(value).Number<<10)
			return l.Token()
		}
		for range 20 {
			held, err := ma.LockContext(t.Context())
			require.NoError(t, err)
			first := token(held)
			got := inBackground(t.Context(), mb)
			queued(t, p, a, "k", 1)
			require.NoError(t, ma.UnlockContext(held))
			held = arrives(t, got) // by message
			require.Greater(t, token(held), first)
			require.NoError(t, mb.UnlockContext(held))
		}
		require.EqualValues(t, 20, b.Stats().ByMessage)
		rw := a.RWMutex("rw")
		held, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		held, err = rw.Downgrade(held)
		require.NoError(t, err)
		require.NoError(t, rw.RUnlockContext(held))
		require.NoError(t, a.Semaphore("sem", 3).Acquire(t.Context(), 2))
	})
}

func TestLockThatTooFewReplicasHaveIsGivenBack(t *testing.T) {
	replicated(t, func(t *testing.T, p, r *testserver.Server) {
		c := newClient(t, p.Client(t), WithReplicas(1), WithLease(900*time.Millisecond))
		r.Freeze()
		m := c.Mutex("k")
		began := time.Now()
		_, err := m.LockContext(t.Context())
		require.ErrorIs(t, err, ErrNotReplicated)
		require.ErrorContains(t, err, "0 of the 1")
		require.GreaterOrEqual(t, time.Since(began), 300*time.Millisecond)
		require.Eventually(t, func() bool {
			m, err := p.Do("EXISTS", "k")
			require.NoError(t, err)
			n, err := m.ToInt64()
			return err == nil && n == 0
		}, 5*time.Second, time.Millisecond, "it was given back, though its lease goes on")
		require.Equal(t, ErrNotLocked, m.UnlockContext(t.Context()))
		require.False(t, m.TryLock())

		two := c.Mutex("k", WithReplicas(2)) // there is but one
		got := make(chan struct{})
		go func() {
			m.Lock() // goes on until the replica is back
			close(got)
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = c.Mutex("other").LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		select {
		case <-got:
			t.Fatal("locked without the replica")
		default:
		}
		r.Thaw()
		within(t, 10*time.Second, "the lock", func() { <-got })
		m.Unlock()
		_, err = two.LockContext(t.Context())
		require.ErrorContains(t, err, "1 of the 2")
	})
}

func TestReplicasNeedNoInfo(t *testing.T) {
	replicated(t, func(t *testing.T, p, _ *testserver.Server) {
		_, err := p.Do("ACL", "SETUSER", "few", "on", ">x", "~*", "&*", "+@all", "-info", "-role", "-config", "-wait")
		require.NoError(t, err)
		v := p.Client(t, func(o *valkey.ClientOption) { o.Username, o.Password = "few", "x" })
		c := newClient(t, v, WithReplicas(1))
		m := c.Mutex("k")
		_, err = m.LockContext(t.Context())
		require.ErrorIs(t, err, ErrNotReplicated)
		require.ErrorContains(t, err, "NOPERM")
		require.Panics(t, m.Lock)

		_, err = p.Do("ACL", "SETUSER", "few", "+wait")
		require.NoError(t, err)
		m.Lock()
		m.Unlock()
	})
}
