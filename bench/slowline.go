package main

import (
	"net"
	"sync"
	"time"
)

// slowLine forwards bytes, whatever they are, some time later. (internal/proxy does it for RESP only.)
type slowLine struct {
	listener net.Listener
	target   string
	delay    time.Duration

	mu    sync.Mutex
	conns []net.Conn
}

func newSlowLine(target string, delay time.Duration) (*slowLine, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &slowLine{listener: l, target: target, delay: delay}
	go s.accept()
	return s, nil
}

func (s *slowLine) addr() string { return s.listener.Addr().String() }

func (s *slowLine) accept() {
	for {
		from, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		to, err := net.Dial("tcp", s.target)
		if err != nil {
			_ = from.Close()
			continue
		}
		s.mu.Lock()
		s.conns = append(s.conns, from, to)
		s.mu.Unlock()
		go s.pass(from, to)
		go s.pass(to, from)
	}
}

// pass ends, with both connections, when one of them does.
func (s *slowLine) pass(from, to net.Conn) {
	type chunk struct {
		due   time.Time
		bytes []byte
	}
	under := make(chan chunk, 1024)
	go func() {
		defer to.Close()
		for c := range under {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				_ = from.Close() // so that the reader ends, too
			}
		}
	}()
	defer close(under)
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			under <- chunk{time.Now().Add(s.delay), buf[:n]}
		}
		if err != nil {
			return
		}
	}
}

func (s *slowLine) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
}
