// Package proxy is a TCP proxy in front of one Valkey server, for fault tests:
// it delays, cuts, swallows and refuses, for all connections or by role, and it
// loses one chosen request or reply.
//
// It reads what clients send as RESP commands and forwards only whole ones, so
// a fault never leaves half a command behind. What the server sends it passes
// on as it comes.
//
//	proxy.go    the proxy and the faults of the whole network
//	conn.go     one connection: its two directions, its end
//	line.go     a direction's delay line
//	command.go  where a command ends, and what it makes of a connection
//	rule.go     faults that wait for one command
package proxy

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is where bytes go.
type Direction int

// The directions.
const (
	ToServer Direction = 1 << iota
	ToClient
	Both = ToServer | ToClient
)

// Role is what a connection is used for.
type Role int

// The roles. A connection carries commands until a SUBSCRIBE, PSUBSCRIBE or
// SSUBSCRIBE is sent on it; from then on, that command included, it carries
// messages. In RESP3 it may carry commands as well; it still counts as one that
// carries messages.
const (
	Commands Role = iota
	Messages
)

var roles = []Role{Commands, Messages}

// Proxy stands in front of one server. Its methods may be called from any
// goroutine and return without waiting for the network.
type Proxy struct {
	target   string
	listener net.Listener
	wg       sync.WaitGroup // every goroutine of the proxy

	mu     sync.Mutex
	closed bool
	refuse bool
	conns  map[*conn]struct{}
	faults map[Role]*faults
	rules  []*Rule // not yet fired, oldest first
}

// faults are in force on all connections of a role, open and new.
type faults struct {
	delay map[Direction]time.Duration
	hole  Direction // the directions that are swallowed
}

// Start starts a proxy on a free loopback port in front of target, host:port,
// which need not answer yet. It ends with the test: every connection is closed
// and every goroutine has ended when the test's clean-ups are through.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	t.Cleanup(p.Close)
	return p
}

// Listen is Start for a program that is no test: the caller must Close the
// proxy.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target:   target,
		listener: l,
		conns:    make(map[*conn]struct{}),
		faults:   make(map[Role]*faults),
	}
	for _, r := range roles {
		p.faults[r] = &faults{delay: make(map[Direction]time.Duration)}
	}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's own address, host:port, which clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Conns returns how many connections are open. One that its client has closed
// still counts while a hole keeps the server from hearing of it.
func (p *Proxy) Conns() int { return len(p.pick(roles...)) }

// ConnsRole is Conns for the connections of one role.
func (p *Proxy) ConnsRole(r Role) int { return len(p.pick(r)) }

// SetDelay holds every byte back for that long, on open and new connections, in
// order and without limiting how much is under way. Bytes that are under way
// already keep the delay that was in force when they arrived. It is kept to
// within about 0.3 ms, where there is a processor free to keep it, and is never
// shorter.
func (p *Proxy) SetDelay(toServer, toClient time.Duration) {
	p.setDelay(toServer, toClient, roles...)
}

// SetDelayRole is SetDelay for the connections of one role.
func (p *Proxy) SetDelayRole(r Role, toServer, toClient time.Duration) {
	p.setDelay(toServer, toClient, r)
}

func (p *Proxy) setDelay(toServer, toClient time.Duration, rs ...Role) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rs {
		p.faults[r].delay[ToServer] = toServer
		p.faults[r].delay[ToClient] = toClient
	}
}

// Cut closes every open connection, on both sides, together with what is under
// way on it. New ones are accepted as before.
func (p *Proxy) Cut() { closeAll(p.pick(roles...)) }

// CutRole is Cut for the connections of one role.
func (p *Proxy) CutRole(r Role) { closeAll(p.pick(r)) }

// Reset is Cut with a TCP reset instead of an orderly end.
func (p *Proxy) Reset() {
	conns := p.pick(roles...)
	for _, c := range conns {
		c.lingerZero()
	}
	closeAll(conns)
}

// Refuse makes the proxy close new connections at once, without asking the
// server, until it is called with false. Open ones are not touched.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Blackhole swallows what goes in that direction, on open and new connections,
// until it is called with false: also what is under way already, and the news
// that a side has closed its connection, so that the other side keeps half of
// one, as behind a network that is gone.
//
// A connection that has lost bytes is never heard on again, in either
// direction, once the hole is closed, for its stream has a gap; but then each
// side hears that the other has closed it.
func (p *Proxy) Blackhole(d Direction, on bool) { p.blackhole(d, on, roles...) }

// BlackholeRole is Blackhole for the connections of one role. A connection that
// changes its role leaves the holes of the one behind and falls into those of
// the other.
func (p *Proxy) BlackholeRole(r Role, d Direction, on bool) { p.blackhole(d, on, r) }

func (p *Proxy) blackhole(d Direction, on bool, rs ...Role) {
	p.mu.Lock()
	for _, r := range rs {
		if on {
			p.faults[r].hole |= d
		} else {
			p.faults[r].hole &^= d
		}
	}
	var over []*conn
	for c := range p.conns {
		if c.holeChanged() {
			over = append(over, c)
		}
	}
	p.mu.Unlock()
	closeAll(over)
}

// Close ends the proxy and everything that goes through it, and returns when
// the last of its goroutines has ended. It may be called twice. Start calls it
// at the end of the test.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close() // ends accept; the only error is that it is closed
	p.Cut()
	p.wg.Wait()
}

// accept serves until the listener is closed.
func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// The client may have given up before it was accepted, or the
			// process is out of descriptors: both pass.
			time.Sleep(time.Millisecond)
			continue
		}
		c := newConn(p, client.(*net.TCPConn))
		if c == nil {
			_ = client.Close()
			continue
		}
		p.wg.Go(c.serve)
	}
}

// pick returns the open connections of these roles.
func (p *Proxy) pick(rs ...Role) []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	var picked []*conn
	for c := range p.conns {
		for _, r := range rs {
			if c.role == r {
				picked = append(picked, c)
			}
		}
	}
	return picked
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
