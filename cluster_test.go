package valkeysync

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
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
	turn   int
}

// eachCluster runs fn for each flavor on a cluster of 3 primaries and 3 replicas.
func eachCluster(t *testing.T, fn func(t *testing.T, c *clustered)) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			fn(t, &clustered{Cluster: testserver.StartCluster(t, f, 3, 1, notifying...), t: t, flavor: f})
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
		for _, sub := range []struct {
			name string
			run  func(t *testing.T)
		}{
			{"an unlock hands over by shard message on every node", c.handOver},
			{"every primitive works for every name that may be a key", c.names},
			{"events come from the node that owns the slot", c.events},
			{"nothing is published to all nodes", c.quiet},
			{"waiters on 50 slots come back when their connections are killed", c.killedConnections},
			{"a dead holder is replaced within the grace", c.deadHolder},
			{"a slot may move under a holder and under waiters", c.movedSlot},
			{"waiters go over to a replica that takes over in order", c.orderlyFailover},
			{"a subscription ends after its last use, and with the Client", c.restingEars},
			{"the rights that README.md names suffice", c.rights},
			{"over RESP2", c.resp2},
			{"an acquisition is on the replica of its node", c.replicated},
			{"notifications are switched on on every node", c.switchOn},
			{"several locks over slots and nodes, and in one slot", c.several},
			{"latest times go by the key's own node", c.clocks},
			{"the nodes' addresses may be unknown to the cluster", c.unknownEndpoints},
		} {
			t.Run(sub.name, sub.run)
		}
	})
}

func (c *clustered) handOver(t *testing.T) {
	a, b := c.client(t), c.client(t)
	require.True(t, a.Stats().Notifications)
	for _, key := range c.keys("hand-over-", 3) {
		ma, mb := a.Mutex(key), b.Mutex(key)
		ma.Lock()
		got := inBackground(t.Context(), mb)
		c.waiting(t, a, key, 1)
		ma.Unlock()
		arrives(t, got)
		mb.Unlock()
	}
	require.EqualValues(t, 9, b.Stats().ByMessage)
	require.Zero(t, b.Stats().WokenByTimer)
}

func (c *clustered) several(t *testing.T) {
	a, b := c.client(t), c.client(t)
	var shared []string
	for _, key := range []string{"z", "y", "x"} {
		shared = append(shared, key+"{several}")
	}
	for _, keys := range [][]string{c.keys("several-", 2), shared} {
		held, err := a.LockAll(t.Context(), keys...)
		require.NoError(t, err)
		require.Len(t, Leases(held), len(keys))
		got := make(chan locked, 1)
		go func() {
			ctx, err := b.LockAll(t.Context(), keys[1], keys[0])
			got <- locked{ctx, err, time.Now()}
		}()
		c.waiting(t, a, min(keys[0], keys[1]), 1)
		require.NoError(t, a.UnlockAll(held))
		require.NoError(t, b.UnlockAll(arrives(t, got)))
	}
}

// arrives is what an asynchronous lock gives, which must not take long.
func arrives(t testing.TB, got <-chan locked) context.Context {
	t.Helper()
	select {
	case l := <-got:
		require.NoError(t, l.err)
		return l.ctx
	case <-time.After(10 * time.Second):
		t.Fatal("not locked within 10 s")
		return nil
	}
}

func (c *clustered) names(t *testing.T) {
	a, b := c.client(t), c.client(t)
	for _, key := range []string{"a", "{", "a{b", "{a}b", "{a}{b}c", "a{{b}c", "{a}}", "x{y z}", "schlüssel", "a\x00b", "tab\tnew\nline", "*?[]"} {
		ma, mb := a.Mutex(key), b.Mutex(key)
		ma.Lock()
		got := inBackground(t.Context(), mb)
		c.waiting(t, a, key, 1)
		ma.Unlock()
		arrives(t, got)
		mb.Unlock()

		rw := a.RWMutex(key + "-rw")
		rw.RLock()
		other := b.RWMutex(key + "-rw")
		other.RLock()
		rw.RUnlock()
		require.False(t, rw.TryLock())
		other.RUnlock()

		sem := a.Semaphore(key+"-sem", 2)
		require.NoError(t, sem.Acquire(t.Context(), 1))
		require.True(t, b.Semaphore(key+"-sem", 2).TryAcquire(1))
		require.False(t, sem.TryAcquire(1))
		sem.Release(1)
	}
	for _, key := range []string{"}", "{}", "a{}b", "a}b{c}{", "{}{a}"} {
		_, err := a.Mutex(key).LockContext(t.Context())
		if protocolRefuses(key) {
			require.ErrorIs(t, err, ErrInvalidKey, key)
		} else {
			require.NoError(t, err, key)
		}
	}
}

// protocolRefuses: the key has a '}' and nothing that a cluster would take for a tag.
func protocolRefuses(key string) bool {
	_, err := protocol.KeysFor("", key)
	return err != nil
}

func (c *clustered) events(t *testing.T) {
	c.client(t) // connections are made
	waiter, v := c.client(t, WithLease(time.Minute)), c.dial(t)
	keys := c.keys("events-", 10)
	got := make([]<-chan locked, len(keys))
	for i, key := range keys {
		require.NoError(t, v.Do(t.Context(), v.B().Set().Key(key).Value("a stranger").Nx().Px(time.Minute).Build()).Error())
		got[i] = inBackground(t.Context(), waiter.Mutex(key))
	}
	for i, key := range keys {
		c.watched(t, key)
		require.NoError(t, v.Do(t.Context(), v.B().Del().Key(key).Build()).Error())
		arrives(t, got[i])
	}
	s := waiter.Stats()
	require.GreaterOrEqual(t, s.WokenByEvent, uint64(len(keys)))
	require.Zero(t, s.WokenByTimer)
}

// watched waits until somebody watches the key on the node that owns its slot.
func (c *clustered) watched(t *testing.T, key string) {
	t.Helper()
	p := c.Primary(protocol.Slot(key))
	channel := "__keyspace@0__:" + key
	require.Eventually(t, func() bool {
		m, err := p.Do("PUBSUB", "NUMSUB", channel)
		require.NoError(t, err)
		n, err := m.AsIntMap()
		require.NoError(t, err)
		return n[channel] > 0
	}, 10*time.Second, time.Millisecond, "nobody watches %s on %s", key, p.Addr())
}

func (c *clustered) quiet(t *testing.T) {
	a, b := c.client(t, WithTurn(0)), c.client(t, WithTurn(0))
	keys := c.keys("quiet-", 1)
	var wg sync.WaitGroup
	for _, cl := range []*Client{a, b} {
		for _, key := range keys {
			wg.Go(func() {
				m := cl.Mutex(key)
				for range 100 {
					m.Lock()
					m.Unlock()
				}
			})
		}
	}
	wg.Wait()
	require.Greater(t, a.Stats().ByMessage+b.Stats().ByMessage, uint64(100))
	for _, n := range c.Nodes() {
		m, err := n.Do("CLUSTER", "INFO")
		require.NoError(t, err)
		info, err := m.ToString()
		require.NoError(t, err)
		require.NotContains(t, info, "messages_publish_sent", "on the bus of %s", n.Addr())
	}
}

func (c *clustered) killedConnections(t *testing.T) {
	a, b := c.client(t, WithLease(time.Minute)), c.client(t, WithLease(time.Minute))
	keys := c.keys("killed-", 17) // 51, each in a slot of its own
	slots := map[int]bool{}
	got := make([]<-chan locked, len(keys))
	for i, key := range keys {
		slots[protocol.Slot(key)] = true
		a.Mutex(key).Lock()
		got[i] = inBackground(t.Context(), b.Mutex(key))
	}
	require.GreaterOrEqual(t, len(slots), 50)
	for _, key := range keys {
		c.waiting(t, a, key, 1)
	}
	for range 3 {
		was := b.Stats()
		for _, n := range c.Nodes() {
			_, err := n.Do("CLIENT", "KILL", "TYPE", "pubsub")
			require.NoError(t, err)
		}
		require.Eventually(t, func() bool {
			s := b.Stats()
			return s.WokenByGap >= was.WokenByGap+uint64(len(keys)) && s.Reconnects >= was.Reconnects+3
		}, 10*time.Second, time.Millisecond, "every waiter looks again")
	}
	for i, key := range keys {
		c.waiting(t, a, key, 1)
		forceFree(t, a, key)
		arrives(t, got[i])
	}
	// The look after the gap may be under way still, and its reply be first.
	require.GreaterOrEqual(t, b.Stats().ByMessage, uint64(len(keys)/2))
	require.Zero(t, b.Stats().WokenByTimer)
}

// forceFree unlocks what a handle that is not kept has locked.
func forceFree(t *testing.T, c *Client, key string) {
	t.Helper()
	require.NoError(t, c.ForceUnlock(t.Context(), key))
}

func (c *clustered) deadHolder(t *testing.T) {
	const grace = 500 * time.Millisecond
	opts := []Option{WithLease(30 * time.Second), WithCrashDetection(grace)}
	l := &line{}
	v := c.Client(t, func(o *valkey.ClientOption) {
		o.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			conn, err := d.DialContext(ctx, "tcp", addr)
			if err != nil {
				return nil, err
			}
			return l.wrap(conn), nil
		}
	})
	holder, waiter := newClient(t, v, opts...), c.client(t, opts...)
	defer l.cut(false, false) // closing takes no time then
	keys := c.keys("dead-", 1)
	held, got := make([]context.Context, len(keys)), make([]<-chan locked, len(keys))
	for i, key := range keys {
		var err error
		held[i], err = holder.Mutex(key).LockContext(t.Context())
		require.NoError(t, err)
		former := held[i]
		got[i] = inBackground(t.Context(), waiter.Mutex(key), func() { require.Error(t, former.Err(), "two holders") })
		c.waiting(t, waiter, key, 1)
	}
	alive := time.NewTimer(3 * grace)
	<-alive.C
	died := time.Now()
	for i := range keys {
		require.NoError(t, held[i].Err(), "a living holder keeps it: %v", context.Cause(held[i]))
		require.Empty(t, got[i])
	}
	l.cut(true, false)
	for i := range keys {
		arrives(t, got[i])
		require.Less(t, time.Since(died), 5*time.Second, "with the lease of 30 s")
	}
}

func (c *clustered) movedSlot(t *testing.T) {
	lease := WithLease(20 * time.Second)
	// The holder beats; the waiters have no timer that would make up for a gap.
	holder, first, second := c.client(t, lease, WithCrashDetection(2*time.Second)), c.client(t, lease), c.client(t, lease)
	key := c.keys("moved-", 1)[0]
	slot := protocol.Slot(key)
	m := holder.Mutex(key)
	held, err := m.LockContext(t.Context())
	require.NoError(t, err)
	one := inBackground(t.Context(), first.Mutex(key))
	c.waiting(t, holder, key, 1)
	two := inBackground(t.Context(), second.Mutex(key))
	c.waiting(t, holder, key, 2)

	for i := range 6 {
		gaps := [2]uint64{first.Stats().WokenByGap, second.Stats().WokenByGap}
		to := c.elsewhere(slot)
		c.MoveSlot(slot, to)
		require.Eventually(t, func() bool {
			return first.Stats().WokenByGap > gaps[0] && second.Stats().WokenByGap > gaps[1]
		}, mapAge*2/3, time.Millisecond, "waiters are told of move %d, and not by the next look at the map", i)
		c.waiting(t, holder, key, 2)
		c.watched(t, key)
		require.NoError(t, held.Err(), "%v", context.Cause(held))
	}
	require.NoError(t, m.UnlockContext(held))
	// The order may have changed where a waiter was not subscribed for a moment.
	for range 2 {
		select {
		case l := <-one:
			require.NoError(t, l.err)
			require.NoError(t, first.Mutex(key).c.ForceUnlock(t.Context(), key))
			one = nil
		case l := <-two:
			require.NoError(t, l.err)
			require.NoError(t, second.ForceUnlock(t.Context(), key))
			two = nil
		case <-time.After(10 * time.Second):
			t.Fatal("a waiter was left behind")
		}
	}
}

// elsewhere is a primary that does not own the slot, another one each time.
func (c *clustered) elsewhere(slot int) *testserver.Server {
	is := c.Primary(slot)
	c.turn++
	for i := range 3 {
		if p := c.Primary(((c.turn+i)%3)*protocol.Slots/3 + 1); p != is {
			return p
		}
	}
	panic("one primary owns it all")
}

func (c *clustered) orderlyFailover(t *testing.T) {
	for _, grace := range []time.Duration{0, 3 * defaultGrace} { // a shorter one may be over sooner than the failover, on a loaded machine
		opts := []Option{WithLease(time.Minute), WithCrashDetection(grace)}
		holder, waiter := c.client(t, opts...), c.client(t, opts...)
		key := c.keys(fmt.Sprintf("failover-%v-", grace), 1)[1]
		m := holder.Mutex(key)
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		got := inBackground(t.Context(), waiter.Mutex(key))
		c.waiting(t, holder, key, 1)
		from, to := c.Failover(protocol.Slot(key))
		require.NotEqual(t, from, to)
		channel := waiter.ears["{"+key+"}"].watch.topic.channel
		require.Eventually(t, func() bool {
			m, err := to.Do("PUBSUB", "SHARDNUMSUB", channel)
			require.NoError(t, err)
			n, err := m.AsIntMap()
			require.NoError(t, err)
			return n[channel] > 0
		}, 15*time.Second, 5*time.Millisecond, "the waiter is subscribed where the scripts run now")
		require.NoError(t, held.Err(), "%v", context.Cause(held))
		c.waiting(t, holder, key, 1)
		require.NoError(t, m.UnlockContext(held))
		arrives(t, got)
		c.AwaitSettled()
	}
}

func (c *clustered) restingEars(t *testing.T) {
	cl := c.client(t)
	for _, key := range c.keys("resting-", 2) {
		cl.Mutex(key).Lock()
		cl.Mutex(key + "-not-used").TryLock()
	}
	cl.mu.Lock()
	n := len(cl.ears)
	cl.mu.Unlock()
	require.GreaterOrEqual(t, n, 12)

	m := cl.Mutex("resting")
	m.Lock()
	m.Unlock()
	resting := func() *listener {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		e := cl.ears["{resting}"]
		if e != nil && e.idle == nil {
			return nil
		}
		return e
	}
	require.Eventually(t, func() bool { return resting() != nil }, 5*time.Second, time.Millisecond)
	e := resting()
	m.Lock()
	require.Nil(t, resting(), "in use again")
	m.Unlock()
	require.Eventually(t, func() bool { return resting() == e }, 5*time.Second, time.Millisecond, "the same subscription")
	cl.mu.Lock()
	e.idle.Reset(0) // in 30 s
	cl.mu.Unlock()
	require.Eventually(t, func() bool {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.ears["{resting}"] == nil
	}, 5*time.Second, time.Millisecond)
	held := lock(t, m)
	cl.mu.Lock()
	e = cl.ears["{resting}"]
	cl.mu.Unlock()
	require.Same(t, e, leaseOf(t, held).gate.ear, "it hears again, although its gate had been kept")
	unlock(t, m, held)
	require.NoError(t, cl.Close())
	require.Eventually(t, func() bool {
		for _, node := range c.Nodes() {
			m, err := node.Do("PUBSUB", "SHARDCHANNELS", "*"+cl.id)
			require.NoError(t, err)
			left, err := m.AsStrSlice()
			require.NoError(t, err)
			if len(left) > 0 {
				return false
			}
		}
		return true
	}, 10*time.Second, time.Millisecond, "a closed Client leaves no subscription")
}

func (c *clustered) resp2(t *testing.T) {
	v := c.Client(t, func(o *valkey.ClientOption) { o.AlwaysRESP2 = true })
	a, b := newClient(t, v), newClient(t, v)
	key := c.keys("resp2-", 1)[2]
	m := a.Mutex(key)
	m.Lock()
	got := inBackground(t.Context(), b.Mutex(key))
	c.waiting(t, a, key, 1)
	m.Unlock()
	arrives(t, got)
	require.EqualValues(t, 1, b.Stats().ByMessage)
}

func (c *clustered) switchOn(t *testing.T) {
	for _, n := range c.Nodes() {
		_, err := n.Do("CONFIG", "SET", "notify-keyspace-events", "")
		require.NoError(t, err)
	}
	require.False(t, c.client(t).Stats().Notifications)
	require.True(t, c.client(t, WithKeyspaceNotifications()).Stats().Notifications)
	for _, n := range c.Nodes() {
		m, err := n.Do("CONFIG", "GET", "notify-keyspace-events")
		require.NoError(t, err)
		is, err := m.AsStrMap()
		require.NoError(t, err)
		require.ElementsMatch(t, []rune("Kgxe"), []rune(is["notify-keyspace-events"]), n.Addr())
	}
}

func (c *clustered) unknownEndpoints(t *testing.T) {
	kind := func(k string) {
		for _, n := range c.Nodes() {
			_, err := n.Do("CONFIG", "SET", "cluster-preferred-endpoint-type", k)
			require.NoError(t, err)
		}
	}
	kind("unknown-endpoint") // as asked: through a proxy, say
	defer kind("ip")
	a, b := c.client(t), c.client(t)
	for _, key := range c.keys("unknown-", 1) {
		ma, mb := a.Mutex(key), b.Mutex(key)
		ma.Lock()
		got := inBackground(t.Context(), mb)
		c.waiting(t, a, key, 1)
		c.MoveSlot(protocol.Slot(key), c.elsewhere(protocol.Slot(key)))
		c.waiting(t, a, key, 1)
		ma.Unlock()
		arrives(t, got)
		mb.Unlock()
	}
}

func (c *clustered) rights(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	line := regexp.MustCompile("(?m)^ACL SETUSER app on >secret (.*)$").FindSubmatch(readme)
	more := regexp.MustCompile(`(?m)^ACL SETUSER app (\+cluster.*)$`).FindSubmatch(readme)
	require.NotNil(t, line)
	require.NotNil(t, more)
	for _, n := range c.Nodes() {
		_, err := n.Do(append([]string{"ACL", "SETUSER", "app", "reset", "on", ">secret"}, strings.Fields(string(line[1])+" "+string(more[1]))...)...)
		require.NoError(t, err)
	}
	client := func() *Client {
		return newClient(t, c.Client(t, func(o *valkey.ClientOption) { o.Username, o.Password = "app", "secret" }), WithPrefix("app:"), WithCrashDetection(defaultGrace))
	}
	a, b := client(), client()
	for _, key := range c.keys("app:", 2) {
		ma, mb := a.Mutex(strings.TrimPrefix(key, "app:")), b.Mutex(strings.TrimPrefix(key, "app:"))
		ma.Lock()
		got := inBackground(t.Context(), mb)
		c.waiting(t, a, strings.TrimPrefix(key, "app:"), 1)
		ma.Unlock()
		arrives(t, got)
		mb.Unlock()
	}
	require.EqualValues(t, 6, b.Stats().ByMessage)
	require.True(t, a.Stats().Notifications)
}

func (c *clustered) clocks(t *testing.T) {
	cl := c.client(t)
	keys := c.keys("clocks-", 2)
	cl.Mutex(keys[0]).Lock()
	ear := func(key string) *listener {
		cl.mu.Lock()
		defer cl.mu.Unlock()
		return cl.ears["{"+key+"}"]
	}
	first := ear(keys[0])
	is := first.latest(time.Now())
	// Another node whose clock is an hour ahead, or behind, has been asked last.
	for _, hours := range []int64{1, -1} {
		cl.offset.Store(first.offset.Load() + hours*3600_000)
		require.InDelta(t, is, first.latest(time.Now()), 5_000, "an answer from another node changes nothing")

		// The first request for a key goes by what there is, and gets through all the same.
		key := keys[hours+2]
		m := cl.Mutex(key)
		began := time.Now()
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
		require.InDelta(t, is, ear(key).latest(time.Now()), 10_000, "it learns from the answer")
		require.NoError(t, m.UnlockContext(held))
	}
}

func (c *clustered) replicated(t *testing.T) {
	cl := c.client(t, WithReplicas(1))
	for _, key := range c.keys("replicated-", 1) {
		held, err := cl.Mutex(key).LockContext(t.Context())
		require.NoError(t, err)
		l, _ := FromContext(held)
		replicas := c.Replicas(c.Primary(protocol.Slot(key)))
		require.NotEmpty(t, replicas)
		v := replicas[0].Client(t, func(o *valkey.ClientOption) { o.ForceSingleClient = true })
		conn, release := v.Dedicate()
		require.NoError(t, conn.Do(t.Context(), conn.B().Readonly().Build()).Error())
		value, err := conn.Do(t.Context(), conn.B().Get().Key(key).Build()).ToString()
		release()
		require.NoError(t, err)
		require.Equal(t, l.Token(), token(protocol.ParseHolder(value).Number, 0))

		_, err = cl.Mutex(key+"-2", WithReplicas(2), WithLease(300*time.Millisecond)).LockContext(t.Context())
		require.ErrorContains(t, err, "1 of the 2")
	}
}

// inBackground locks m on a goroutine of its own, and calls then as soon as it has it.
func inBackground(ctx context.Context, m *Mutex, then ...func()) <-chan locked {
	got := make(chan locked, 1)
	go func() {
		held, err := m.LockContext(ctx)
		for _, f := range then {
			f()
		}
		got <- locked{held, err, time.Now()}
	}()
	return got
}

// hears reports whether a Client of one server is subscribed.
func (h *hub) hears() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		if t.own {
			return t.number != 0
		}
	}
	return false
}
