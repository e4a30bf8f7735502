package valkeysync

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A Quorum on real servers of both kinds, some of which are killed, frozen, slow, or come back empty.

// rack is several independent servers, each behind a proxy.
type rack struct {
	servers []*testserver.Server
	proxies []*proxy.Proxy
}

func newRack(t testing.TB, n int) *rack {
	r := new(rack)
	for i := range n {
		s := testserver.Start(t, testserver.Flavors()[i%2], notifying...)
		r.servers = append(r.servers, s)
		r.proxies = append(r.proxies, proxy.Start(t, s.Addr()))
	}
	return r
}

// quorum is another process; proxied: through the proxies.
func (r *rack) quorum(t testing.TB, proxied bool, opts ...Option) *Quorum {
	t.Helper()
	var clients []*Client
	for i, s := range r.servers {
		if proxied {
			clients = append(clients, through(t, s, r.proxies[i], opts...))
		} else {
			clients = append(clients, on(t, s, opts...))
		}
	}
	q, err := NewQuorum(clients...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, q.Close()) })
	return q
}

func (r *rack) has(t testing.TB, i int, key string) bool {
	t.Helper()
	return exists(t, r.servers[i], key)
}

// harms are what happens to a minority, and what ends it.
var harms = []struct {
	name     string
	do, undo func(r *rack, i int)
}{
	{"killed", func(r *rack, i int) { r.servers[i].Kill() }, func(r *rack, i int) { r.servers[i].Restart() }},
	{"frozen", func(r *rack, i int) { r.servers[i].Freeze() }, func(r *rack, i int) { r.servers[i].Thaw() }},
	{"slow", func(r *rack, i int) { r.proxies[i].SetDelay(time.Second, time.Second) }, func(r *rack, i int) { r.proxies[i].SetDelay(0, 0) }},
	{"restarted empty", func(r *rack, i int) { r.servers[i].Restart() }, func(*rack, int) {}},
}

func TestQuorumServersAreLostWhileHeldAndWhileAcquiring(t *testing.T) {
	t.Parallel()
	for _, n := range []int{3, 5} {
		for _, harm := range harms {
			t.Run(fmt.Sprintf("%d servers, a minority %s", n, harm.name), func(t *testing.T) {
				t.Parallel()
				r := newRack(t, n)
				const lease = 6 * time.Second // much against what a busy machine makes of a moment
				opts := []Option{WithLease(lease), WithLogger(quiet)}
				a, z := r.quorum(t, true, opts...).Mutex("orders"), r.quorum(t, true, opts...).Mutex("orders")
				held, err := a.LockContext(t.Context())
				require.NoError(t, err)
				got := make(chan context.Context, 1)
				go func() {
					ctx, err := z.LockContext(context.Background())
					if err == nil {
						got <- ctx
					}
				}()
				time.Sleep(100 * time.Millisecond)
				for i := range n / 2 { // also the one with the turnstile
					harm.do(r, i)
				}
				time.Sleep(lease + time.Second)
				require.NoError(t, held.Err(), "held on, past its lease")
				require.Empty(t, got, "and nobody else has it")
				if harm.name == "restarted empty" {
					for i := range n {
						require.True(t, r.has(t, i, "orders"), "given to server %d again", i)
					}
				}
				start := time.Now()
				require.NoError(t, a.UnlockContext(held))
				require.Less(t, time.Since(start), requestLimit, "they are not waited for")
				var next context.Context
				select {
				case next = <-got:
				case <-time.After(soon):
					t.Fatal("the next one waits in vain")
				}
				t.Logf("handed over after %v", time.Since(start))
				require.Greater(t, leaseOf(t, next).Token(), leaseOf(t, held).Token())
				require.NoError(t, z.UnlockContext(next))

				start = time.Now()
				held, err = a.LockContext(t.Context())
				require.NoError(t, err)
				took := time.Since(start)
				t.Logf("got anew after %v", took)
				require.Less(t, took, lease, "without them")
				require.NoError(t, a.UnlockContext(held))
				for i := range n / 2 {
					harm.undo(r, i)
				}
			})
		}
	}
}

func TestQuorumIsWokenByEvents(t *testing.T) {
	t.Parallel()
	r := newRack(t, 5)
	m := r.quorum(t, false, WithLease(time.Minute)).Mutex("orders")
	for _, s := range r.servers {
		command(t, s, "SET", "orders", "somebody else", "NX", "PX", "600000")
	}
	for name, free := range map[string]func(s *testserver.Server){
		"DEL":              func(s *testserver.Server) { command(t, s, "DEL", "orders") },
		"their own unlock": func(s *testserver.Server) { command(t, s, "EVAL", compareAndDelete, "1", "orders", "foreign") },
		"the end":          func(s *testserver.Server) { command(t, s, "PEXPIRE", "orders", "20") },
	} {
		for _, s := range r.servers {
			command(t, s, "SET", "orders", "foreign", "PX", "600000")
		}
		got := make(chan time.Time, 1)
		go func() {
			if _, err := m.LockContext(t.Context()); err == nil {
				got <- time.Now()
			}
		}()
		time.Sleep(200 * time.Millisecond)
		require.Empty(t, got, name)
		for _, s := range r.servers[2:] {
			free(s)
		}
		start := time.Now()
		select {
		case at := <-got:
			t.Logf("%s: %v", name, at.Sub(start))
			require.Less(t, at.Sub(start), aRoundTrip)
		case <-time.After(soon):
			t.Fatalf("%s: not woken", name)
		}
		m.Unlock()
	}
}

func TestQuorumHolderHearsOfALossAtOnce(t *testing.T) {
	t.Parallel()
	r := newRack(t, 3)
	q := r.quorum(t, false, WithLease(time.Minute))
	m := q.Mutex("orders")
	held, err := m.LockContext(t.Context())
	require.NoError(t, err)
	time.Sleep(watchAfter + 200*time.Millisecond)
	st, err := q.members[0].c.Status(t.Context(), "orders")
	require.NoError(t, err)
	require.Equal(t, StateForeign, st.State)
	require.Contains(t, st.Holders[0].Name, q.members[0].c.opts.client.name)
	command(t, r.servers[1], "DEL", "orders")
	time.Sleep(100 * time.Millisecond)
	require.NoError(t, held.Err(), "that is a minority")
	require.False(t, r.has(t, 1, "orders"), "and left as it is until the next renewal")
	require.NoError(t, q.members[0].c.ForceUnlock(t.Context(), "orders"))
	start := time.Now()
	select {
	case <-held.Done():
	case <-time.After(soon):
		t.Fatal("not told")
	}
	t.Logf("told after %v", time.Since(start))
	require.Less(t, time.Since(start), aRoundTrip)
	require.Equal(t, CauseDeleted, causeOf(held))
	require.ErrorIs(t, m.UnlockContext(held), ErrLeaseLost)
}

// A server that comes back empty is given the key as soon as it is heard again, not only with the next renewal.
func TestQuorumGivesARestartedServerTheKeyAtOnce(t *testing.T) {
	t.Parallel()
	r := newRack(t, 3)
	m := r.quorum(t, false, WithLease(5*time.Minute), WithLogger(quiet)).Mutex("orders")
	held, err := m.LockContext(t.Context())
	require.NoError(t, err)
	time.Sleep(watchAfter + 200*time.Millisecond)
	r.servers[0].Restart()
	require.Eventually(t, func() bool { return r.has(t, 0, "orders") }, soon, 5*time.Millisecond)
	require.NoError(t, m.UnlockContext(held))
}

// Twenty processes and five servers: everybody is served, nobody starves, no two are in at once.
// Not parallel: it needs both cores.
func TestQuorumOfFiveServesTwenty(t *testing.T) {
	r := newRack(t, 5)
	const crowd = 20
	var in, total atomic.Int64
	served := make([]atomic.Int64, crowd)
	var all sync.WaitGroup
	var mutexes []*QuorumMutex
	for range crowd {
		mutexes = append(mutexes, r.quorum(t, false, WithLogger(quiet)).Mutex("orders"))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	var last atomic.Int64 // the token
	for i, m := range mutexes {
		all.Go(func() {
			for {
				held, err := m.LockContext(ctx)
				if err != nil {
					return
				}
				if in.Add(1) != 1 {
					t.Error("two at once")
				}
				if l, _ := FromContext(held); last.Swap(l.Token()) >= l.Token() {
					t.Error("a token that does not rise")
				}
				served[i].Add(1)
				total.Add(1)
				in.Add(-1)
				if err := m.UnlockContext(held); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	var counts []int64
	for i := range served {
		counts = append(counts, served[i].Load())
	}
	slices.Sort(counts)
	t.Logf("%d acquisitions in 4 s: %v", total.Load(), counts)
	require.Positive(t, counts[0])
	if total.Load() >= 10*crowd {
		require.GreaterOrEqual(t, 2*counts[0], counts[crowd/2], "the least served, against the middle: %v", counts)
		require.LessOrEqual(t, counts[crowd-1], 2*counts[crowd/2]+2, "the most served, against the middle: %v", counts)
	}
}

func TestNewQuorumRefusesDependentRealServers(t *testing.T) {
	t.Parallel()
	r := newRack(t, 4)
	rule := aclRule(t)
	var clients, limited []*Client
	for _, s := range r.servers {
		clients = append(clients, on(t, s))
		c, err := restricted(t, s, rule)
		require.NoError(t, err)
		limited = append(limited, c)
	}
	again, err := restricted(t, r.servers[1], rule)
	require.NoError(t, err)
	_, err = NewQuorum(clients[0], clients[1], on(t, r.servers[1]))
	require.ErrorIs(t, err, ErrInvalidOption)
	require.ErrorContains(t, err, "count twice")
	_, err = NewQuorum(limited[0], limited[1], again)
	require.ErrorIs(t, err, ErrInvalidOption)
	require.ErrorContains(t, err, "of one server")

	host, port, _ := strings.Cut(r.servers[0].Addr(), ":")
	command(t, r.servers[2], "REPLICAOF", host, port)
	_, err = NewQuorum(clients[0], clients[1], clients[2])
	require.ErrorIs(t, err, ErrInvalidOption)
	require.ErrorContains(t, err, "replica")
	command(t, r.servers[2], "REPLICAOF", "NO", "ONE")

	// A user with no more rights than the README gives can do all of it.
	command(t, r.servers[2], rule...)
	q, err := NewQuorum(limited[0], limited[1], limited[3])
	require.NoError(t, err)
	defer q.Close()
	m := q.Mutex("orders")
	held, err := m.LockContext(t.Context())
	require.NoError(t, err)
	got := make(chan struct{})
	go func() {
		defer close(got)
		m.Lock()
	}()
	time.Sleep(watchAfter + 100*time.Millisecond)
	require.NoError(t, held.Err())
	start := time.Now()
	require.NoError(t, m.UnlockContext(held))
	within(t, soon, "the next", func() { <-got })
	require.Less(t, time.Since(start), aRoundTrip)
	m.Unlock()
}
