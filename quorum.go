package valkeysync

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Quorum makes locks that are held on a majority of several independent servers (the algorithm is known as
// Redlock). It is safe for use by many goroutines. Make it with [NewQuorum].
type Quorum struct {
	members []*member
	need    int // how many of them make a majority

	crew   crew
	ctx    context.Context // of all requests
	cancel context.CancelFunc
	open   context.Context // ends when it is closed
	shut   context.CancelFunc

	mu      sync.Mutex
	closed  bool
	stakes  map[*stake]struct{} // living
	closing sync.Once
	done    chan struct{}
}

// member is one of the servers.
type member struct {
	c    *Client
	name string      // its address, for people
	away atomic.Bool // the last request was not answered
}

// NewQuorum makes a Quorum of the servers of these Clients, which stay the caller's: close them after it. Every
// process that uses the same locks must name the same servers, and should in the same order.
//
// It refuses what would make a lock less safe than it looks, with ErrInvalidOption: fewer than three servers (of
// one or two, no majority survives the loss of one); two Clients of one server, a replica, a cluster; Clients with
// different prefixes. It asks the servers for who they are (INFO, ROLE), and where that is forbidden finds out by
// writing a key to each and looking for it on the others. Three or five are usual; an even number is allowed, but
// tolerates no more losses than one less.
//
// It blocks, for 10 s at most, until all servers have answered: a server that is away when a process starts is an
// error, here or from New. Do not leave it out then: with fewer servers a majority is another one.
func NewQuorum(clients ...*Client) (*Quorum, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	q := &Quorum{need: len(clients)/2 + 1, stakes: map[*stake]struct{}{}, done: make(chan struct{})}
	for i, c := range clients {
		if c == nil {
			return nil, fault.Errorf("NewQuorum: %w: Client %d is nil", ErrInvalidOption, i)
		}
		m := &member{c: c, name: "?"}
		for m.name = range c.server.Client.Nodes() {
		}
		q.members = append(q.members, m)
	}
	if err := q.independent(ctx); err != nil {
		return nil, fault.Errorf("NewQuorum: %w", err)
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	q.open, q.shut = context.WithCancel(q.ctx)
	return q, nil
}

// Close gives back everything that is held, ends all waits with ErrClosed and all contexts with a *LostError of
// CauseClosed, and waits for all that was started; 5 s at most for servers that do not answer. The Clients stay
// as they are. A second Close waits for the first. It returns nil.
func (q *Quorum) Close() error {
	q.closing.Do(func() {
		q.mu.Lock()
		q.closed = true
		var stakes []*stake
		for s := range q.stakes {
			stakes = append(stakes, s)
		}
		q.mu.Unlock()
		q.shut()
		for _, s := range stakes {
			s.lock()
			if s.lease != nil {
				s.loseLocked(CauseClosed)
			} else {
				s.quitLocked()
			}
			s.unlock()
		}
		limited, stop := context.WithTimeout(context.Background(), closeLimit)
		q.crew.wait(limited)
		stop()
		q.cancel()
		q.crew.stop()
		q.crew.wait(context.Background())
		close(q.done)
	})
	<-q.done
	return nil
}

func (q *Quorum) log() *slog.Logger { return q.members[0].c.opts.client.logger }

// enter is crew.enter, until it is closed.
func (q *Quorum) enter() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.closed && q.crew.enter()
}

// remember has Close end the stake, and reports false when that is over; forget is for one that has ended.
func (q *Quorum) remember(s *stake) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.stakes[s] = struct{}{}
	}
	return !q.closed
}

func (q *Quorum) forget(s *stake) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.stakes, s)
}

// unlessClosed is ctx, and ends with the Quorum too.
func (q *Quorum) unlessClosed(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(q.open, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// run sends one request to the server, which it has until then to answer.
func (m *member) run(ctx context.Context, until time.Time, latest int64, request call) (protocol.Reply, error) {
	m.c.mu.Lock()
	closed := m.c.closed
	m.c.mu.Unlock()
	if closed {
		return protocol.Reply{}, ErrClosed
	}
	limited := withDeadline(ctx, until)
	r, err := request(limited, &m.c.server, latest)
	limited.end()
	m.away.Store(err != nil && !isReply(err))
	if err == nil && r.Now != 0 {
		m.c.offset.Store(r.Now - time.Since(m.c.start).Milliseconds())
	}
	return r, err
}

// latest is the server time after which a request that has that long from now must not be run any more.
func (m *member) latest(limit time.Duration) int64 {
	return m.c.offset.Load() + time.Since(m.c.start).Milliseconds() + limit.Milliseconds()
}

// refuseFor refuses the options that are not for a lock on several servers.
func (h *handle) refuseFor(q *Quorum) {
	is, was := h.opts, q.members[0].c.opts
	for _, o := range []struct {
		name string
		set  bool
	}{
		{"WithTurn", is.turn != was.turn}, {"WithLinger", is.linger != was.linger},
		{"WithCrashDetection", is.grace != was.grace}, {"WithReplicas", is.replicas != was.replicas},
	} {
		if o.set {
			h.err = errors.Join(h.err, fault.Errorf("%w: %s is not for a lock on several servers (%q); leave it out", ErrInvalidOption, o.name, h.keys.Lock))
		}
	}
}
