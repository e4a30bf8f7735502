package testserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// adminLimit bounds one command of the admin client, so that a frozen server
// fails a test instead of hanging it.
const adminLimit = 5 * time.Second

// AdminCommands are the commands that reach the server without a test's doing,
// in the form that Calls excludes: what Calls and ResetStats send themselves,
// what a client of valkey-go sends on each new connection before its first real
// command, and the PING with which it closes one. Do adds what it was told to
// send.
//
// The admin client and those of Client send no PINGs while they are open.
func AdminCommands() []string {
	return []string{"info", "config|resetstat", "hello", "client", "cluster|slots", "cluster|shards", "ping"}
}

// Client returns a client of valkey-go for the server, with the defaults that
// tests want: no client-side cache, no PINGs of its own (they would disturb
// the counts), small buffers, and a silent server is an error after 2 s. The
// opts may change everything, also InitAddress, to go through a proxy. It is
// closed when the test ends.
func (s *Server) Client(t testing.TB, opts ...func(*valkey.ClientOption)) valkey.Client {
	t.Helper()
	opt := s.clientOption()
	for _, o := range opts {
		o(&opt)
	}
	c, err := valkey.NewClient(opt)
	if err != nil {
		t.Fatalf("testserver: client for %v: %v", opt.InitAddress, err)
	}
	t.Cleanup(func() {
		s.thaw() // closing waits for an answer
		c.Close()
	})
	return c
}

func (s *Server) clientOption() valkey.ClientOption {
	opt := valkey.ClientOption{
		InitAddress:      []string{s.Addr()},
		DisableCache:     true,
		ConnWriteTimeout: 2 * time.Second,
		// Not 512 KiB each: tests have hundreds of connections, and the race detector keeps several bytes for each.
		ReadBufferEachConn:  16 << 10,
		WriteBufferEachConn: 16 << 10,
	}
	// valkey-go takes the interval of its PINGs from here.
	opt.Dialer.KeepAlive = time.Hour
	return opt
}

// Do sends one command on a connection of the server's own, past every proxy,
// and returns the reply. A null reply is an error for which valkey.IsValkeyNil
// holds, a server's error one for errors.As with *valkey.ValkeyError. It fails
// after 5 s where nothing answers, and works again after Restart.
func (s *Server) Do(args ...string) (valkey.ValkeyMessage, error) {
	if len(args) == 0 {
		return valkey.ValkeyMessage{}, errors.New("testserver: Do without a command")
	}
	c, err := s.adminClient()
	if err != nil {
		return valkey.ValkeyMessage{}, fmt.Errorf("testserver: admin client: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminLimit)
	defer cancel()
	return c.Do(ctx, c.B().Arbitrary(args[0]).Args(args[1:]...).Build()).ToMessage()
}

func (s *Server) adminClient() (valkey.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.admin != nil {
		return s.admin, nil
	}
	if s.proc == nil {
		return nil, errors.New("the server is not running")
	}
	opt := s.clientOption()
	opt.ForceSingleClient = true
	c, err := valkey.NewClient(opt)
	if err != nil {
		return nil, err
	}
	s.admin = c
	return c, nil
}

// Calls returns how often each command was executed since the server started or
// ResetStats was called: lower case, a subcommand after a bar ("evalsha",
// "config|get"). Commands called by a script count as well. A command that was
// refused before it ran does not.
//
// Those in exclude are left out; a container command's name leaves out all of
// its subcommands, "client" also "client|setinfo". AdminCommands has those
// that come with the set-up.
func (s *Server) Calls(exclude ...string) map[string]int64 {
	reply, err := s.Do("INFO", "commandstats")
	if err != nil {
		s.fatalf("testserver: INFO commandstats: %v", err)
		return nil
	}
	text, err := reply.ToString()
	if err != nil {
		s.fatalf("testserver: INFO commandstats: %v", err)
		return nil
	}
	calls, err := parseCalls(text)
	if err != nil {
		s.fatalf("testserver: INFO commandstats: %v", err)
		return nil
	}
	for name := range calls {
		container, _, _ := strings.Cut(name, "|")
		for _, x := range exclude {
			if name == x || container == x {
				delete(calls, name)
			}
		}
	}
	return calls
}

// parseCalls reads lines like
//
//	cmdstat_pubsub|numsub:calls=3,usec=12,usec_per_call=4.00,rejected_calls=0,failed_calls=0
func parseCalls(info string) (map[string]int64, error) {
	calls := make(map[string]int64)
	for line := range strings.Lines(info) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "cmdstat_")
		if !ok {
			continue
		}
		name, fields, ok := strings.Cut(rest, ":calls=")
		if !ok {
			return nil, fmt.Errorf("no calls in %q", line)
		}
		digits, _, _ := strings.Cut(fields, ",")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		if n > 0 { // a line with none is of a command that was only refused
			calls[strings.ToLower(name)] = n
		}
	}
	return calls, nil
}

// ResetStats sets all counts of Calls to zero. The CONFIG RESETSTAT itself is
// the first to be counted.
func (s *Server) ResetStats() {
	if _, err := s.Do("CONFIG", "RESETSTAT"); err != nil {
		s.fatalf("testserver: CONFIG RESETSTAT: %v", err)
	}
}
