package testserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// sentinelSet is the name under which the sentinels watch the servers.
const sentinelSet = "main"

// Sentinel is a running primary with replicas, watched by three sentinels that
// make a replica the primary a second after it is gone. Its methods end
// the test where they fail, so they belong in the test's own goroutine.
type Sentinel struct {
	t         testing.TB
	nodes     []*Server
	sentinels []*Server
}

// StartSentinel starts them and returns when the replicas are connected and
// the sentinels know all of them and each other. The args are those of Start,
// for the primary and the replicas.
func StartSentinel(t testing.TB, f Flavor, replicas int, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	args = append([]string{"--repl-diskless-sync-delay", "0"}, args...)
	primary := Start(t, f, args...)
	port := strconv.Itoa(primary.port)
	s.nodes = append(s.nodes, primary)
	s.nodes = append(s.nodes, startAll(t, f, replicas, append(args, "--replicaof", loopback, port))...)
	s.await("the replicas to connect", func() bool { return len(replicasOf(primary, s.nodes)) == replicas })
	for range 3 {
		n := &Server{flavor: f, dir: t.TempDir(), args: []string{"--sentinel"}}
		n.config = filepath.Join(n.dir, "sentinel.conf")
		config := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 2\nsentinel down-after-milliseconds %[1]s 1000\nsentinel failover-timeout %[1]s 3000\n",
			sentinelSet, loopback, port)
		if err := os.WriteFile(n.config, []byte(config), 0o600); err != nil {
			t.Fatalf("testserver: %v", err)
		}
		if _, err := launchWith(n); err != nil {
			t.Fatalf("testserver: %v", err)
		}
		n.fatalf = t.Fatalf
		t.Cleanup(n.Close)
		s.sentinels = append(s.sentinels, n)
		// They would look at the servers every 10 s, and tell each other of themselves every 2 s. Other times
		// hang on these: a sentinel that sees a replica turn into a primary, and has not been told by the
		// one that leads the failover, makes a replica of it again after 4 PUBLISH-PERIODs; and the leader
		// itself looks every second meanwhile, whatever INFO-PERIOD says. A replica is promoted only if what
		// is known of it is not older than 5 PING-PERIODs, or 3 INFO-PERIODs where the primary lives.
		if _, err := n.Do("SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "1000", "ASK-PERIOD", "500"); err != nil {
			t.Fatalf("testserver: SENTINEL DEBUG: %v", err)
		}
	}
	s.AwaitSettled()
	return s
}

// Primary returns the server that the sentinels call the primary; it may be
// gone.
func (s *Sentinel) Primary() *Server {
	s.t.Helper()
	if p := s.primaryBy(s.sentinels[0]); p != nil {
		return p
	}
	s.t.Fatal("testserver: the sentinels know no primary")
	return nil
}

// Replicas returns the running replicas of the primary.
func (s *Sentinel) Replicas() []*Server {
	s.t.Helper()
	return replicasOf(s.Primary(), s.nodes)
}

// KillPrimary kills the primary, and returns it.
func (s *Sentinel) KillPrimary() *Server {
	s.t.Helper()
	p := s.Primary()
	p.Kill()
	return p
}

// Failover has the sentinels make another server the primary, while all live,
// and returns both.
func (s *Sentinel) Failover() (from, to *Server) {
	s.t.Helper()
	from = s.Primary()
	s.await("the order to fail over", func() bool {
		_, err := s.sentinels[0].Do("SENTINEL", "FAILOVER", sentinelSet)
		return err == nil
	})
	s.await("the failover", func() bool {
		to = s.primaryBy(s.sentinels[0])
		return to != nil && to != from
	})
	return from, to
}

// AwaitSettled returns when the sentinels agree on a primary that runs, all
// other servers that run are its replicas and connected, and each sentinel has
// seen that, and hears the other two: from then on a failover can succeed.
func (s *Sentinel) AwaitSettled() {
	s.t.Helper()
	s.await("the servers to settle", func() bool {
		var p *Server
		for _, by := range s.sentinels {
			is := s.primaryBy(by)
			if is == nil || is.Pid() == 0 || p != nil && is != p {
				return false
			}
			p = is
		}
		running := 0
		for _, n := range s.nodes {
			if n.Pid() != 0 {
				running++
			}
		}
		for _, by := range s.sentinels {
			if !s.ready(by, p, running-1) {
				return false
			}
		}
		return len(replicasOf(p, s.nodes)) == running-1
	})
}

// ready reports whether a sentinel knows the primary with so many connected
// replicas, and the other sentinels.
func (s *Sentinel) ready(by, primary *Server, replicas int) bool {
	about := func(what string) (all []map[string]string) {
		reply, err := by.Do("SENTINEL", what, sentinelSet)
		if err != nil {
			return nil
		}
		list, err := reply.ToArray()
		if err != nil {
			return nil
		}
		for _, one := range list {
			if fields, err := one.AsStrMap(); err == nil {
				all = append(all, fields)
			}
		}
		return all
	}
	m, err := by.Do("SENTINEL", "MASTER", sentinelSet)
	if err != nil {
		return false
	}
	is, err := m.AsStrMap()
	if err != nil || is["flags"] != "master" || is["role-reported"] != "master" || is["num-slaves"] != strconv.Itoa(len(s.nodes)-1) {
		return false
	}
	for _, r := range about("REPLICAS") {
		if r["flags"] == "slave" && r["role-reported"] == "slave" && r["master-link-status"] == "ok" && r["master-port"] == strconv.Itoa(primary.port) {
			replicas--
		}
	}
	others := 0
	for _, o := range about("SENTINELS") {
		if o["flags"] == "sentinel" {
			others++
		}
	}
	return replicas == 0 && others == len(s.sentinels)-1
}

// Client returns a client that asks the sentinels for the primary, as
// Server.Client does for one server.
func (s *Sentinel) Client(t testing.TB, opts ...func(*valkey.ClientOption)) valkey.Client {
	t.Helper()
	return s.sentinels[0].Client(t, append([]func(*valkey.ClientOption){func(o *valkey.ClientOption) {
		o.Sentinel = valkey.SentinelOption{MasterSet: sentinelSet}
		o.Sentinel.Dialer.KeepAlive = time.Hour
		for _, other := range s.sentinels[1:] {
			o.InitAddress = append(o.InitAddress, other.Addr())
		}
	}}, opts...)...)
}

// URL names them as valkey.ParseURL understands it.
func (s *Sentinel) URL() string {
	return fmt.Sprintf("valkey://%s?master_set=%s&addr=%s", s.sentinels[0].Addr(), sentinelSet, s.sentinels[1].Addr())
}

func (s *Sentinel) primaryBy(by *Server) *Server {
	m, err := by.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelSet)
	if err != nil {
		return nil
	}
	addr, err := m.AsStrSlice()
	if err != nil || len(addr) != 2 {
		return nil
	}
	for _, n := range s.nodes {
		if strconv.Itoa(n.port) == addr[1] {
			return n
		}
	}
	return nil
}

func (s *Sentinel) await(what string, done func() bool) {
	s.t.Helper()
	if err := await(done); err != nil {
		s.t.Fatalf("testserver: %s: %v\n%s", what, err, s.sentinels[0].Log())
	}
}

// replicasOf returns those of the nodes that run and are connected replicas of
// the primary.
func replicasOf(primary *Server, nodes []*Server) []*Server {
	var out []*Server
	for _, n := range nodes {
		if n.Pid() == 0 {
			continue
		}
		repl, err := infoOf(n, "INFO", "replication")
		if err == nil && field(repl, "role") == "slave" && field(repl, "master_port") == strconv.Itoa(primary.port) && field(repl, "master_link_status") == "up" {
			out = append(out, n)
		}
	}
	return out
}
