package dial

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/valkey-io/valkey-go"
)

// Commands counts what is sent to the server, by name, as it leaves on the connections: everything, also
// what a client sends of its own accord. What a script does inside the server is part of its one command.
type Commands struct {
	mu sync.Mutex
	n  map[string]int64
}

// NewCommands starts to count.
func NewCommands() *Commands { return &Commands{n: map[string]int64{}} }

// Counts returns the counts so far.
func (c *Commands) Counts() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.n)
}

func (c *Commands) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[strings.ToUpper(name)]++
}

// On counts what clients made with opt send. On nil it does nothing.
func (c *Commands) On(opt *valkey.ClientOption) {
	if c != nil {
		opt.DialCtxFn = c.dialer(opt.DialCtxFn)
	}
}

type dialer = func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error)

// dialer dials as valkey-go does, or with next, and counts on the connection.
func (c *Commands) dialer(next dialer) dialer {
	if next == nil {
		next = dial
	}
	return func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
		conn, err := next(ctx, addr, d, config)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, split: splitter{command: c.add}}, nil
	}
}

func dial(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (net.Conn, error) {
	if config == nil {
		return d.DialContext(ctx, "tcp", addr)
	}
	t := tls.Dialer{NetDialer: d, Config: config}
	return t.DialContext(ctx, "tcp", addr)
}

// countedConn counts the commands that are written to it.
type countedConn struct {
	net.Conn
	mu    sync.Mutex
	split splitter
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.split.feed(b[:n])
	return n, err
}

// splitter finds the names of commands in a stream of them: arrays of bulk strings, the only form in
// which valkey-go sends them. A chunk may end anywhere.
type splitter struct {
	command func(name string)

	line  []byte // the beginning of a header, "*3" or "$7"
	first bool   // the next one is the name
	text  int    // bytes of the argument, with its line end, still to come
	name  []byte
}

func (s *splitter) feed(b []byte) {
	for len(b) > 0 {
		if s.text > 0 {
			n := min(s.text, len(b))
			if s.first {
				s.name = append(s.name, b[:n]...)
			}
			s.text -= n
			b = b[n:]
			if s.text == 0 {
				s.argument()
			}
			continue
		}
		if b[0] != '\n' {
			s.line = append(s.line, b[0])
		} else {
			s.header(strings.TrimSuffix(string(s.line), "\r"))
			s.line = s.line[:0]
		}
		b = b[1:]
	}
}

func (s *splitter) header(line string) {
	if len(line) < 2 {
		return
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil {
		return
	}
	switch line[0] {
	case '*':
		s.first = true
	case '$':
		s.text = n + len("\r\n")
	}
}

func (s *splitter) argument() {
	if s.first {
		s.command(strings.TrimSuffix(string(s.name), "\r\n"))
		s.name = s.name[:0]
		s.first = false
	}
}
