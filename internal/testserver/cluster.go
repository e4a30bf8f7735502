package testserver

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

const (
	slots = 16384
	// settleLimit is how long the nodes of a cluster may take to agree.
	settleLimit = 90 * time.Second
)

// Cluster is a running cluster: primaries that share the slots evenly, in
// order, and replicas. Its methods end the test where they fail, so they
// belong in the test's own goroutine.
type Cluster struct {
	t     testing.TB
	nodes []*Server
	ids   map[*Server]string
}

// StartCluster starts a cluster of that many primaries, each with as many
// replicas, and returns when all nodes agree that it is up. A primary that is
// gone is noticed after a second. The args are those of Start, for every node.
func StartCluster(t testing.TB, f Flavor, primaries, replicas int, args ...string) *Cluster {
	t.Helper()
	args = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "1000",
		"--repl-diskless-sync-delay", "0",
	}, args...)
	c := &Cluster{t: t, nodes: startAll(t, f, primaries*(1+replicas), args), ids: map[*Server]string{}}
	for i, n := range c.nodes {
		c.ids[n] = c.text(n, "CLUSTER", "MYID")
		c.do(n, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < primaries {
			first, last := i*slots/primaries, (i+1)*slots/primaries-1
			c.do(n, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		}
		if i > 0 {
			c.do(c.nodes[0], "CLUSTER", "MEET", loopback, strconv.Itoa(n.port))
		}
	}
	c.await("the nodes to meet", func() bool {
		return !slices.ContainsFunc(c.nodes, func(n *Server) bool {
			info, err := infoOf(n, "CLUSTER", "INFO")
			return err != nil || field(info, "cluster_known_nodes") != strconv.Itoa(len(c.nodes))
		})
	})
	for i, n := range c.nodes[primaries:] {
		primary := c.ids[c.nodes[i%primaries]]
		// A node that has only just met the others may not know this one yet.
		c.await("a replica", func() bool {
			_, err := n.Do("CLUSTER", "REPLICATE", primary)
			return err == nil
		})
	}
	c.AwaitSettled()
	return c
}

// startAll starts servers side by side.
func startAll(t testing.TB, f Flavor, n int, args []string) []*Server {
	t.Helper()
	servers, errs := make([]*Server, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range servers {
		dir := t.TempDir()
		wg.Go(func() { servers[i], errs[i] = launch(f, dir, args) })
	}
	wg.Wait()
	for _, s := range servers {
		if s != nil {
			s.fatalf = t.Fatalf
			t.Cleanup(s.Close)
		}
	}
	for _, err := range errs {
		if err != nil {
			t.Fatalf("testserver: %v", err)
		}
	}
	return servers
}

// Nodes returns all nodes, also those that were killed.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// AwaitSettled returns when all nodes that run agree that all slots are
// served, and their replicas are connected.
func (c *Cluster) AwaitSettled() {
	c.t.Helper()
	c.await("the cluster to settle", func() bool {
		views := map[string]bool{}
		for _, n := range c.running() {
			info, err := infoOf(n, "CLUSTER", "INFO")
			if err != nil || field(info, "cluster_state") != "ok" || field(info, "cluster_slots_ok") != strconv.Itoa(slots) {
				return false
			}
			repl, err := infoOf(n, "INFO", "replication")
			if err != nil || field(repl, "role") == "slave" && field(repl, "master_link_status") != "up" {
				return false
			}
			var view strings.Builder
			for slot := 0; slot < slots; slot += slots / 128 {
				p := c.primaryBy(n, slot)
				if p == nil {
					return false
				}
				view.WriteString(p.Addr() + " ")
			}
			views[view.String()] = true
		}
		return len(views) == 1
	})
}

// Primary returns the node that owns the slot, by the word of those that run.
func (c *Cluster) Primary(slot int) *Server {
	c.t.Helper()
	for _, n := range c.running() {
		if p := c.primaryBy(n, slot); p != nil && p.Pid() != 0 {
			return p
		}
	}
	c.t.Fatalf("testserver: slot %d has no primary", slot)
	return nil
}

// Replicas returns the running replicas of a primary.
func (c *Cluster) Replicas(primary *Server) []*Server {
	var out []*Server
	for _, n := range c.running() {
		repl, err := infoOf(n, "INFO", "replication")
		if err == nil && field(repl, "role") == "slave" && field(repl, "master_port") == strconv.Itoa(primary.port) {
			out = append(out, n)
		}
	}
	return out
}

// Slot returns the slot of a key or channel, by the server's word.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	m := c.do(c.running()[0], "CLUSTER", "KEYSLOT", key)
	n, err := m.ToInt64()
	if err != nil {
		c.t.Fatalf("testserver: CLUSTER KEYSLOT: %v", err)
	}
	return int(n)
}

// Client returns a cluster client, as Server.Client does for one server.
func (c *Cluster) Client(t testing.TB, opts ...func(*valkey.ClientOption)) valkey.Client {
	t.Helper()
	n := c.running()[0]
	return n.Client(t, append([]func(*valkey.ClientOption){func(o *valkey.ClientOption) {
		for _, other := range c.running()[1:] {
			o.InitAddress = append(o.InitAddress, other.Addr())
		}
	}}, opts...)...)
}

// MoveSlot migrates a slot, with its keys, to another primary, as valkey-cli
// --cluster reshard does.
func (c *Cluster) MoveSlot(slot int, to *Server) {
	c.t.Helper()
	from, name := c.Primary(slot), strconv.Itoa(slot)
	if from == to {
		return
	}
	c.do(to, "CLUSTER", "SETSLOT", name, "IMPORTING", c.ids[from])
	c.do(from, "CLUSTER", "SETSLOT", name, "MIGRATING", c.ids[to])
	for {
		reply := c.do(from, "CLUSTER", "GETKEYSINSLOT", name, "100")
		keys, err := reply.AsStrSlice()
		if err != nil {
			c.t.Fatalf("testserver: CLUSTER GETKEYSINSLOT: %v", err)
		}
		if len(keys) == 0 {
			break
		}
		c.do(from, append([]string{"MIGRATE", loopback, strconv.Itoa(to.port), "", "0", "5000", "KEYS"}, keys...)...)
	}
	c.do(to, "CLUSTER", "SETSLOT", name, "NODE", c.ids[to])
	c.do(from, "CLUSTER", "SETSLOT", name, "NODE", c.ids[to])
}

// KillPrimary kills the node that owns the slot, and returns it.
func (c *Cluster) KillPrimary(slot int) *Server {
	c.t.Helper()
	p := c.Primary(slot)
	p.Kill()
	return p
}

// Failover has a replica of the slot's primary take over in an orderly way,
// and returns both.
func (c *Cluster) Failover(slot int) (from, to *Server) {
	c.t.Helper()
	from = c.Primary(slot)
	replicas := c.Replicas(from)
	if len(replicas) == 0 {
		c.t.Fatalf("testserver: %s has no replica", from.Addr())
	}
	to = replicas[0]
	// The replica gives up after 5 s where its primary is too busy.
	var ordered time.Time
	c.await("the failover", func() bool {
		if time.Since(ordered) > 6*time.Second {
			if _, err := to.Do("CLUSTER", "FAILOVER"); err == nil {
				ordered = time.Now()
			}
		}
		return c.primaryBy(to, slot) == to
	})
	return from, to
}

func (c *Cluster) running() []*Server {
	var out []*Server
	for _, n := range c.nodes {
		if n.Pid() != 0 {
			out = append(out, n)
		}
	}
	return out
}

// primaryBy is who owns the slot by the word of one node; nil where it does
// not say.
func (c *Cluster) primaryBy(n *Server, slot int) *Server {
	reply, err := n.Do("CLUSTER", "SLOTS")
	if err != nil {
		return nil
	}
	entries, _ := reply.ToArray()
	for _, e := range entries {
		fields, err := e.ToArray()
		if err != nil || len(fields) < 3 {
			return nil
		}
		first, _ := fields[0].ToInt64()
		last, _ := fields[1].ToInt64()
		if int64(slot) < first || int64(slot) > last {
			continue
		}
		node, err := fields[2].ToArray()
		if err != nil || len(node) < 2 {
			return nil
		}
		port, _ := node[1].ToInt64()
		for _, p := range c.nodes {
			if int64(p.port) == port {
				return p
			}
		}
	}
	return nil
}

func (c *Cluster) do(n *Server, args ...string) valkey.ValkeyMessage {
	c.t.Helper()
	m, err := n.Do(args...)
	if err != nil {
		c.t.Fatalf("testserver: %s: %v: %v", n.Addr(), args, err)
	}
	return m
}

func (c *Cluster) text(n *Server, args ...string) string {
	c.t.Helper()
	m := c.do(n, args...)
	s, err := m.ToString()
	if err != nil {
		c.t.Fatalf("testserver: %s: %v: %v", n.Addr(), args, err)
	}
	return s
}

func (c *Cluster) await(what string, done func() bool) {
	c.t.Helper()
	if err := await(done); err != nil {
		view, _ := infoOf(c.running()[0], "CLUSTER", "NODES")
		c.t.Fatalf("testserver: %s: %v\n%s", what, err, view)
	}
}

// await asks until it is so: servers do not tell of themselves when it is.
func await(done func() bool) error {
	limit := time.After(settleLimit)
	for !done() {
		select {
		case <-limit:
			return fmt.Errorf("not within %v", settleLimit)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

func infoOf(n *Server, args ...string) (string, error) {
	m, err := n.Do(args...)
	if err != nil {
		return "", err
	}
	text, err := m.ToString()
	return strings.TrimPrefix(text, "txt:"), err // as verbatim strings begin
}

// field is the value of a name:value line; "" where there is none.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
