package proxy

import (
	"bytes"
	"context"
	"net"
	"time"
)

// conn is one client's connection, with the one to the server that belongs to
// it. Each direction has a goroutine that reads and one that delivers.
type conn struct {
	p        *Proxy
	client   *net.TCPConn
	ctx      context.Context // ends with close
	end      context.CancelFunc
	up, down *line // to the server, to the client

	// Guarded by p.mu.
	server  *net.TCPConn // nil until dialled
	closed  bool
	role    Role
	dead    Direction // the directions on which nothing is delivered any more
	holed   Direction // those of them that a hole made dead
	gone    Direction // those whose sender has closed, while a hole hides it
	awaited []awaited // oldest first
	ends    []func()  // what close calls
}

// awaited is a text that the server is to send, and what to do then.
type awaited struct {
	token  []byte
	answer func()
}

// newConn registers a connection, or returns nil where none is wanted.
func newConn(p *Proxy, client *net.TCPConn) *conn {
	c := &conn{p: p, client: client}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.up, c.down = newLine(c.ctx.Done()), newLine(c.ctx.Done())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		c.end()
		return nil
	}
	p.conns[c] = struct{}{}
	return c
}

// serve dials the server and starts the four goroutines; it is the connection's
// reader of commands.
func (c *conn) serve() {
	server, ok := c.dial()
	if !ok {
		c.senderGone(ToClient)
		return
	}
	c.p.wg.Go(func() { c.down.run(func(b []byte) { c.deliver(ToClient, c.client, b) }) })
	c.p.wg.Go(func() { c.up.run(func(b []byte) { c.deliver(ToServer, server, b) }) })
	c.p.wg.Go(func() { c.readReplies(server) })
	c.readCommands()
}

// dial connects to the server. Whoever closes c meanwhile ends the wait.
func (c *conn) dial() (*net.TCPConn, bool) {
	var d net.Dialer
	s, err := d.DialContext(c.ctx, "tcp", c.p.target)
	if err != nil {
		return nil, false
	}
	server := s.(*net.TCPConn)
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.closed {
		_ = server.Close()
		return nil, false
	}
	c.server = server
	return server, true
}

// readCommands takes what the client sends apart into commands and puts them
// into the line up, several at once where no rule is interested in them.
func (c *conn) readCommands() {
	var split splitter
	lost := false // by a rule, with all that follows
	readChunks(c.client, func(chunk []byte) bool {
		if lost {
			return true
		}
		var plain []byte
		for _, cmd := range split.feed(chunk) {
			due, rule := c.inspect(cmd)
			if rule == nil {
				plain = append(plain, cmd...)
				continue
			}
			if len(plain) > 0 && !c.up.put(item{due: due, data: plain}) {
				return false
			}
			plain = nil
			it, more := rule.apply(c, cmd, due)
			if !c.up.put(it) {
				return false
			}
			if !more {
				lost = true
				return true
			}
		}
		return len(plain) == 0 || c.up.put(item{due: c.due(ToServer), data: plain})
	})
	c.up.put(item{due: c.due(ToServer), after: func() { c.senderGone(ToServer) }})
}

// readReplies puts what the server sends into the line down.
func (c *conn) readReplies(server *net.TCPConn) {
	var tail []byte // of what came before: an awaited token may be cut in two
	readChunks(server, func(chunk []byte) bool {
		tail = c.lookForToken(tail, chunk)
		return c.down.put(item{due: c.due(ToClient), data: chunk})
	})
	c.down.put(item{due: c.due(ToClient), after: func() { c.senderGone(ToClient) }})
}

// inspect looks at one command: when it is due, and which rule it fires.
func (c *conn) inspect(cmd []byte) (due time.Time, fired *Rule) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	if c.role != Messages && subscribes(cmd) {
		c.role = Messages
		if c.holeChanged() {
			c.p.wg.Go(c.close) // it takes p.mu
		}
	}
	due = time.Now().Add(c.p.faults[c.role].delay[ToServer])
	for i, r := range c.p.rules {
		if bytes.Contains(cmd, r.match) {
			c.p.rules = append(c.p.rules[:i:i], c.p.rules[i+1:]...)
			return due, r
		}
	}
	return due, nil
}

// due is when what arrives now is to be delivered.
func (c *conn) due(d Direction) time.Time {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	return time.Now().Add(c.p.faults[c.role].delay[d])
}

// deliver writes, unless the bytes are to be lost.
func (c *conn) deliver(d Direction, to *net.TCPConn, b []byte) {
	c.p.mu.Lock()
	if c.p.faults[c.role].hole&d != 0 {
		c.dead |= d
		c.holed |= d
	}
	swallow := c.dead&d != 0
	c.p.mu.Unlock()
	if swallow {
		return
	}
	if _, err := to.Write(b); err != nil {
		// The receiver has closed. It is the sender of the other direction,
		// and only there the news travels.
		c.kill(d)
		c.senderGone(Both &^ d)
	}
}

// kill makes a direction silent for ever.
func (c *conn) kill(d Direction) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.dead |= d
}

// senderGone says that the sender of that direction has closed, and all that it
// had sent was delivered or lost. The connection ends, unless the receiver
// cannot know it: then it ends when the hole is closed.
func (c *conn) senderGone(d Direction) {
	c.p.mu.Lock()
	hidden := c.p.faults[c.role].hole&d != 0
	if hidden {
		c.gone |= d
	}
	c.p.mu.Unlock()
	if !hidden {
		c.close()
	}
}

// holeChanged applies a change of the holes that the connection sees, and says
// whether it is over now. The caller holds p.mu.
func (c *conn) holeChanged() (over bool) {
	hole := c.p.faults[c.role].hole
	if c.holed&^hole != 0 {
		c.dead = Both
	}
	return c.gone&^hole != 0
}

// close ends the connection on both sides. It may be called twice.
func (c *conn) close() {
	c.p.mu.Lock()
	first, ends := !c.closed, c.ends
	c.closed, c.ends = true, nil
	delete(c.p.conns, c)
	server := c.server
	c.p.mu.Unlock()
	if !first {
		return
	}
	c.end()
	_ = c.client.Close() // nobody is left to tell
	if server != nil {
		_ = server.Close()
	}
	for _, f := range ends {
		f()
	}
}

// atEnd has f called when the connection has been closed, or now where it has.
func (c *conn) atEnd(f func()) {
	c.p.mu.Lock()
	open := !c.closed
	if open {
		c.ends = append(c.ends, f)
	}
	c.p.mu.Unlock()
	if !open {
		f()
	}
}

// lingerZero makes close send a reset. It fails only where there is nothing
// left to reset.
func (c *conn) lingerZero() {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	_ = c.client.SetLinger(0)
	if c.server != nil {
		_ = c.server.SetLinger(0)
	}
}

// await calls answer once the server has sent token, if it ever does.
func (c *conn) await(token []byte, answer func()) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.awaited = append(c.awaited, awaited{token, answer})
}

// lookForToken looks at what the server sent for the token that is awaited
// next. It returns the end of it, which may be a token's beginning, to be given
// back with the next chunk.
func (c *conn) lookForToken(tail, chunk []byte) []byte {
	seen := append(tail, chunk...)
	for {
		c.p.mu.Lock()
		if len(c.awaited) == 0 {
			c.p.mu.Unlock()
			return nil // a token is not sent before it is awaited
		}
		next := c.awaited[0]
		at := bytes.Index(seen, next.token)
		if at < 0 {
			c.p.mu.Unlock()
			return bytes.Clone(seen[max(0, len(seen)-len(next.token)):])
		}
		c.awaited = c.awaited[1:]
		c.p.mu.Unlock()
		seen = seen[at:]
		next.answer()
	}
}
