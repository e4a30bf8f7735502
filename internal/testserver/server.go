// Package testserver starts real Valkey and Redis servers for tests, each on a
// free loopback port and in a folder of its own, and ends them again.
//
// A server that is not installed is a failure, never a skip: a green run means
// that real servers were asked.
//
// The servers die with the process that started them, however it ends: the
// kernel kills them when it is killed itself (Linux), and [Start] ends them
// with the test.
package testserver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// startLimit is how long a server may take until it answers its first PING.
const startLimit = 10 * time.Second

// Server is one running server. Its methods may be called from any goroutine,
// but those that can fail without returning an error (Restart, Calls, …) end
// the test that started it, so they belong in that test's own goroutine.
type Server struct {
	flavor Flavor
	binary string
	dir    string
	config string // a sentinel's file, which it rewrites; "": none
	args   []string
	port   int
	fatalf func(format string, args ...any)

	mu     sync.Mutex
	proc   *process // nil between Kill and Restart
	frozen bool
	admin  valkey.Client // made by the first Do after a start
}

// Start starts a server of that flavor and returns when it answers PING; it is
// killed when the test ends. The args are appended to the defaults (loopback
// only, no persistence, so that args can switch it on again) and come one by
// one, as on a command line: "--notify-keyspace-events", "Kgxe".
//
// A server that is not installed, or does not answer within 10 s, is fatal; the
// message names the remedy, or has the server's log.
func Start(t testing.TB, f Flavor, args ...string) *Server {
	t.Helper()
	s, err := launch(f, t.TempDir(), args)
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	s.fatalf = t.Fatalf
	t.Cleanup(s.Close)
	return s
}

// Launch is Start for a program that is no test: the caller owns the server,
// and must Close it, and owns the folder dir, which must exist. What is fatal
// to a test panics here once the server runs.
func Launch(f Flavor, dir string, args ...string) (*Server, error) {
	return launch(f, dir, args)
}

func launch(f Flavor, dir string, args []string) (*Server, error) {
	return launchWith(&Server{flavor: f, dir: dir, args: args})
}

// launchWith starts a server whose flavor, folder, args and file are set.
func launchWith(s *Server) (_ *Server, err error) {
	if s.binary, err = s.flavor.Binary(); err != nil {
		return nil, err
	}
	s.fatalf = func(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
	// Between the look for a free port and the server's bind somebody else can
	// take it. Only that is worth another try.
	for range 10 {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = s.run(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Addr returns the server's address, host:port. It stays the same over Restart.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Flavor tells which of the two servers this is.
func (s *Server) Flavor() Flavor { return s.flavor }

// Dir returns the server's working folder, where it keeps its files if the
// args switched persistence on.
func (s *Server) Dir() string { return s.dir }

// Log returns what the server has logged since its first start.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.logFile())
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(b)
}

// Pid returns the server's process id, 0 while it is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// Kill ends the server with SIGKILL, also a frozen one, and returns when it is
// gone. Without effect on a server that is not running.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
}

// Restart starts the server again, on the same port, in the same folder and
// with the same args, and returns when it answers PING, which it does only once
// it has loaded its data. A server that still runs is killed first.
func (s *Server) Restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kill()
	if err := s.run(); err != nil {
		s.fatalf("testserver: restart: %v", err)
	}
}

// Freeze stops the server with SIGSTOP: its connections stay open and the
// kernel goes on accepting bytes and new ones for it, but nothing is answered
// and its clock-driven work waits. It returns when every thread has stopped.
func (s *Server) Freeze() { s.setFrozen(true) }

// Thaw ends Freeze. Without effect on a server that is not frozen.
func (s *Server) Thaw() { s.setFrozen(false) }

// thaw is Thaw for clean-ups, which may find the server gone.
func (s *Server) thaw() {
	s.mu.Lock()
	running := s.proc != nil
	s.mu.Unlock()
	if running {
		s.Thaw()
	}
}

// Close ends the server as Kill does. It may be called twice. Start calls it at
// the end of the test.
func (s *Server) Close() { s.Kill() }

// run starts the process and waits until it is ready. The caller holds s.mu,
// or is the only one who knows s.
func (s *Server) run() error {
	var args []string
	if s.config != "" {
		args = append(args, s.config)
	}
	args = append(append(args,
		"--port", strconv.Itoa(s.port),
		"--bind", loopback,
		"--dir", s.dir,
		"--daemonize", "no",
		"--save", "",
		"--appendonly", "no",
	), s.args...)
	p, err := startProcess(s.binary, args, s.logFile())
	if err != nil {
		return err
	}
	if err := awaitReady(p, s.Addr(), startLimit); err != nil {
		p.kill()
		if strings.Contains(s.Log(), "Address already in use") {
			return fmt.Errorf("%w: %d", errPortTaken, s.port)
		}
		return fmt.Errorf("%s on %s: %w; its log:\n%s", s.binary, s.Addr(), err, s.Log())
	}
	s.proc, s.frozen = p, false
	return nil
}

// kill ends the process and the admin client that spoke to it. The caller
// holds s.mu.
func (s *Server) kill() {
	if s.proc != nil {
		s.proc.kill()
		s.proc = nil
	}
	if s.admin != nil {
		s.admin.Close()
		s.admin = nil
	}
}

func (s *Server) setFrozen(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		s.fatalf("testserver: freeze or thaw of a server that is not running")
		return
	}
	if s.frozen == on {
		return
	}
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	if err := s.proc.signal(sig); err != nil {
		s.fatalf("testserver: %v: %v", sig, err)
		return
	}
	if on {
		if err := awaitStopped(s.proc.pid, startLimit); err != nil {
			s.fatalf("testserver: %v", err)
			return
		}
	}
	s.frozen = on
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "server.log") }
