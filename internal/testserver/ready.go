package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"
)

const loopback = "127.0.0.1"

// errPortTaken says that somebody else has the port that was free before.
var errPortTaken = errors.New("port taken")

// freePort returns a port that nobody listens on, nor on the one 10000 above
// it, a cluster node's bus port. Both lie below the range from which outgoing
// connections get theirs: while a server is down, nobody's connection can
// happen to sit on its port, and a client that keeps dialling it cannot happen
// to connect to itself.
func freePort() (int, error) {
	const low, high, bus = 10000, 22700, 10000
	for range 100 {
		port := low + rand.IntN(high-low)
		if free(port) && free(port+bus) {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port on %s between %d and %d", loopback, low, high)
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// awaitReady returns when this very process answers PING at addr. Neither
// another server on a port taken meanwhile nor one that still loads its data
// passes.
func awaitReady(p *process, addr string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := probe(p, addr, deadline)
		if err == nil || errors.Is(err, errPortTaken) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready within %v: %w", limit, err)
		}
		retry := time.NewTimer(pause)
		select {
		case <-p.exited:
			retry.Stop()
			return errors.New("ended by itself")
		case <-retry.C:
		}
	}
}

// probe asks once, with inline commands on a connection of its own.
func probe(p *process, addr string, deadline time.Time) error {
	conn, err := net.DialTimeout("tcp", addr, time.Until(deadline))
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\n"); err != nil {
		return err
	}
	r := bufio.NewReader(conn)
	pong, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	if strings.TrimSpace(pong) != "+PONG" {
		return fmt.Errorf("PING was answered with %q", strings.TrimSpace(pong))
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "process_id:"); ok {
			if id != strconv.Itoa(p.pid) {
				return fmt.Errorf("%w: by the server with process id %s", errPortTaken, id)
			}
			return nil
		}
	}
}
