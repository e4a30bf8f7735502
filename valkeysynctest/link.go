package valkeysynctest

import (
	"errors"
	"net"
	"sync"
)

// ErrCut is what a connection ends with that was cut.
var ErrCut = errors.New("valkeysynctest: the connection is cut")

// link is the way of one Client to the server.
type link struct {
	mu    sync.Mutex
	down  bool
	dead  bool // for ever
	conns map[*conn]struct{}
}

func newLink() *link { return &link{conns: map[*conn]struct{}{}} }

// dial makes a connection, with next, unless the link is down.
func (l *link) dial(next func() (net.Conn, error)) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.down {
		return nil, ErrCut
	}
	c, err := next()
	if err != nil {
		return nil, err
	}
	linked := &conn{Conn: c, link: l}
	l.conns[linked] = struct{}{}
	return linked, nil
}

// cut ends all connections, and lets no new one come to be.
func (l *link) cut(forEver bool) {
	l.mu.Lock()
	l.down = true
	l.dead = l.dead || forEver
	var conns []*conn
	for c := range l.conns {
		conns = append(conns, c)
	}
	l.mu.Unlock()
	for _, c := range conns { // without the mutex, which whoever reads from it wants when it ends
		c.Close()
	}
}

// mend lets connections be made again. It reports false where the link was cut for ever.
func (l *link) mend() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = l.dead
	return !l.dead
}

type conn struct {
	net.Conn
	link *link
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	delete(c.link.conns, c)
	return err
}
