package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/valkeysync/valkeysync/internal/dial"
	"github.com/valkeysync/valkeysync/internal/page"
)

const uiUsage = `Usage: valkeysync ui [-listen ADDR] [-allow-unlock] [-allow-remote] [-host NAME]…

Serves a page for a browser that shows all locks, those whose keys begin with -prefix if it is given: who holds
what, since when, who waits and for how long, and what is lost, as it happens. It is woken by the server's keyspace
notifications; where they are off the page says so, and looks at every lock in turn.

However many pages are open the server is asked once, and while none is open there is no connection to it. Without
a -prefix it hears of every key of the server that changes: give one where there are others than locks.

There is no login: whoever reaches the page sees all, so it listens to this machine alone. To show it to others put
it behind something that asks who they are, as docs/operations.md describes.

Flags:
  -listen ADDR   where to listen (default 127.0.0.1:7380, or if that is taken any free port)
  -allow-unlock  the page may take locks from their holders, after a question, as unlock -force does
  -allow-remote  -listen may name an address that other machines reach
  -host NAME     the page may be asked for by this name too, besides localhost and addresses: that of a proxy before
                 it. May be given more than once
` + serverUsage + `
Exit status: 0 when interrupted; 2 wrong usage, or the server or the address cannot be used.
`

const (
	// uiAddr is where the page is by default.
	uiAddr = "127.0.0.1:7380"
	// headLimit is how long a request's head may take.
	headLimit = 10 * time.Second
)

// listening is what ui reads of its flags.
type listening struct {
	addr         string
	remote       bool
	hosts        []string
	allowUnlock  bool
	addrWasGiven bool
}

func uiCommand(w World, args []string) int {
	f := flagSet("ui")
	s := serverFlags(w, f)
	l := listening{addr: uiAddr}
	f.Func("listen", "", func(v string) error {
		l.addr, l.addrWasGiven = v, true
		return nil
	})
	f.Func("host", "", func(v string) error {
		if v == "" {
			return errors.New("give a name")
		}
		l.hosts = append(l.hosts, v)
		return nil
	})
	f.BoolVar(&l.allowUnlock, "allow-unlock", false, "")
	f.BoolVar(&l.remote, "allow-remote", false, "")
	err := parseNone(f, args)
	if err != nil {
		return w.wrongArgs("ui", uiUsage, err, cannotRun)
	}
	if err := l.serve(w, s); err != nil {
		return w.fail("ui", ofKey(err), cannotRun)
	}
	return fine
}

// serve serves until it is interrupted.
func (l *listening) serve(w World, s *server) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	opt, err := s.options()
	if err != nil {
		return err
	}
	listener, remote, err := l.listen()
	if err != nil {
		return err
	}
	defer listener.Close()
	connect := func() (*page.Connection, error) {
		locks, client, end, err := s.both(w, nil)
		if err != nil {
			return nil, err
		}
		return &page.Connection{Locks: locks, Client: client, Close: end}, nil
	}
	// A server that cannot be used is better known now than by the first page.
	first, err := connect()
	if err != nil {
		return err
	}
	first.Close()

	p := page.New(page.Config{
		Connect: connect, Server: dial.Shown(s.url), Prefix: s.prefix, DB: opt.SelectDB, Hosts: l.hosts, AllowUnlock: l.allowUnlock,
	})
	web := &http.Server{Handler: p, ReadHeaderTimeout: headLimit, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(w.logger().Handler(), slog.LevelWarn)}
	if remote {
		fmt.Fprintln(w.Err, "valkeysync ui: WARNING: other machines may reach this page, and there is no login.")
	}
	fmt.Fprintf(w.Out, "The page is at http://%s/ until this is interrupted.\n", listener.Addr())
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
		err = nil
	}
	stop() // who interrupts again does not wait
	p.Close()
	limit, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	if web.Shutdown(limit) != nil {
		_ = web.Close()
	}
	return err
}

// listen opens the port. It refuses an address that others reach unless that is wanted.
func (l *listening) listen() (listener net.Listener, remote bool, err error) {
	addr, err := net.ResolveTCPAddr("tcp", l.addr)
	if err != nil {
		return nil, false, usageError{fmt.Errorf("-listen %q: %w; give one like %s", l.addr, err, uiAddr)}
	}
	if remote = !addr.IP.IsLoopback(); remote && !l.remote {
		return nil, false, usageError{fmt.Errorf("-listen %q is reached by other machines, and the page has no login: if that is wanted say -allow-remote as well", l.addr)}
	}
	listener, err = net.ListenTCP("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) && !l.addrWasGiven {
		addr.Port = 0
		listener, err = net.ListenTCP("tcp", addr)
	}
	if err != nil {
		return nil, false, fmt.Errorf("listen: %w", err)
	}
	return listener, remote, nil
}
