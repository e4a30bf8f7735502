package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
)

// wire counts the commands that clients send, by reading what goes over their connections. The server's own
// count (INFO commandstats) has in it what scripts call, so it cannot tell a client's SET from a script's.
// Everything counts, also what a new connection begins with.
//
// Of etcd it counts the messages that clients send: requests, and those of streams (watches, keep-alives).
type wire struct{ sent atomic.Int64 }

func (w *wire) total() int64 { return w.sent.Load() }

func (w *wire) wrap(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return &countedConn{Conn: conn, sent: &w.sent}, nil
}

// dialValkey is a DialCtxFn of valkey-go.
func (w *wire) dialValkey(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
	return w.wrap(d.DialContext(ctx, "tcp", addr))
}

// dialRedis is a Dialer of go-redis.
func (w *wire) dialRedis(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	return w.wrap(d.DialContext(ctx, network, addr))
}

// countedConn finds the commands (RESP arrays of bulk strings) in what is written.
type countedConn struct {
	net.Conn
	sent *atomic.Int64

	mu   sync.Mutex
	line []byte // a header whose end has not come yet
	skip int    // bytes of a string, with its line end, that have not come yet
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scan(p)
	return c.Conn.Write(p)
}

func (c *countedConn) scan(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, len(p))
			p, c.skip = p[n:], c.skip-n
			continue
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			c.line = append(c.line, p...)
			return
		}
		c.line = append(c.line, p[:i]...)
		p = p[i+1:]
		switch c.line[0] {
		case '*':
			c.sent.Add(1)
		case '$':
			n, _ := strconv.Atoi(string(bytes.TrimSpace(c.line[1:]))) // it is what a client of ours wrote
			c.skip = n + 2
		}
		c.line = c.line[:0]
	}
}
