package interop

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// redsync on several servers and a Quorum on the same ones.

type threeServers []*testserver.Server

func three(t *testing.T) threeServers {
	var servers threeServers
	for i := range 3 {
		flavors := testserver.Flavors()
		servers = append(servers, testserver.Start(t, flavors[i%len(flavors)], "--notify-keyspace-events", "Kgxe"))
	}
	return servers
}

func (s threeServers) ours(t *testing.T) *valkeysync.Quorum {
	var clients []*valkeysync.Client
	for _, server := range s {
		clients = append(clients, ours(t, server))
	}
	q, err := valkeysync.NewQuorum(clients...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

func (s threeServers) redsync(t *testing.T) *redsync.Redsync {
	var pools []redis.Pool
	for _, server := range s {
		pools = append(pools, goredis.NewPool(goRedis(t, server)))
	}
	return redsync.New(pools...)
}

func TestAQuorumAndRedsyncExcludeEachOther(t *testing.T) {
	t.Parallel()
	s := three(t)
	q, rs := s.ours(t), s.redsync(t)
	m, theirs := q.Mutex("orders"), rs.NewMutex("orders", redsync.WithExpiry(time.Minute))

	held, err := m.LockContext(t.Context())
	require.NoError(t, err)
	require.Error(t, theirs.TryLockContext(t.Context()))
	require.NoError(t, m.UnlockContext(held))
	require.NoError(t, theirs.LockContext(t.Context()))
	_, err = m.TryLockContext(t.Context())
	require.ErrorIs(t, err, valkeysync.ErrLocked)
	require.ErrorContains(t, err, "another program")

	got := make(chan struct{})
	go func() {
		defer close(got)
		m.Lock()
	}()
	time.Sleep(200 * time.Millisecond)
	ok, err := theirs.UnlockContext(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	start := time.Now()
	select {
	case <-got:
		t.Logf("woken after %v", time.Since(start))
	case <-time.After(soon):
		t.Fatal("not woken by their unlock")
	}
	ok, _ = theirs.UnlockContext(t.Context())
	require.False(t, ok, "their late unlock opens nothing")
	require.Error(t, theirs.TryLockContext(t.Context()))
	m.Unlock()
}

// Both count on one counter that nothing else protects: nothing is lost.
func TestAQuorumAndRedsyncCountTogether(t *testing.T) {
	t.Parallel()
	const turns = 20
	s := three(t)
	count := func() {
		n := int64(0)
		if reply, err := s[0].Do("GET", "counter"); err == nil {
			n, err = reply.AsInt64()
			require.NoError(t, err)
		}
		_, err := s[0].Do("SET", "counter", strconv.FormatInt(n+1, 10))
		require.NoError(t, err)
	}
	var all sync.WaitGroup
	for range 2 {
		m := s.ours(t).Mutex("orders")
		all.Go(func() {
			for range turns {
				m.Lock()
				count()
				m.Unlock()
			}
		})
		rs := s.redsync(t)
		all.Go(func() {
			for range turns {
				theirs := rs.NewMutex("orders", redsync.WithTries(10000), redsync.WithRetryDelay(5*time.Millisecond), redsync.WithExpiry(time.Minute))
				if err := theirs.LockContext(context.Background()); err != nil {
					t.Error(err)
					return
				}
				count()
				if _, err := theirs.UnlockContext(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	reply, err := s[0].Do("GET", "counter")
	require.NoError(t, err)
	n, err := reply.AsInt64()
	require.NoError(t, err)
	require.EqualValues(t, 4*turns, n)
}
