package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

const (
	// requestLimit is how long one request may take before it is repeated, and how long after it the
	// server may still run it.
	requestLimit = 2 * time.Second
	// startLimit is how long New tries to reach the server.
	startLimit = 10 * time.Second
	// closeLimit is how long Close tries to give everything back. What it could not lapses by itself.
	closeLimit = 5 * time.Second
)

// Client makes primitives that live on one server or cluster, and owns all that they need: one subscriber
// connection (in a cluster one for each node that it listens to), their renewals, their background work. A
// process needs one Client for a server; it is safe for use by many goroutines.
type Client struct {
	server protocol.Server
	opts   options
	id     string
	hub    *hub
	stats  counters
	db     int // for the names of keyspace channels

	crew   crew
	ctx    context.Context // of all background requests
	cancel context.CancelFunc
	start  time.Time    // local times are counted from here
	offset atomic.Int64 // server ms - local ms, as of the last reply of any node

	mu      sync.Mutex
	gates   map[gateKey]*gate    // those in use, and the spare
	spare   *gate                // the last that nobody uses any more, for who locks the same again and again
	ears    map[string]*listener // by tag
	closed  bool
	closing sync.Once
	empty   chan struct{} // closed when Close has ended all holds
	done    chan struct{} // closed when Close is through

	ready   atomic.Bool   // New is through
	probing chan struct{} // capacity 1: one probe at a time
	trial   *watch        // the key that probes write
	events  atomic.Int64  // that it has made
	probed  chan struct{} // capacity 1: the echo of a probe came
}

type gateKey struct {
	kind protocol.Kind
	lock string
}

// New makes a Client on c, which stays the caller's: close it after the Client.
//
// New opens one connection of its own from c (for messages) and blocks, for 10 s at most, until the server
// has confirmed the subscription and has run one script that sends a message, so that a missing right or
// a missing server is an error here, with the server's own error in its chain, and not at the first Lock.
// It finds out by trying whether keyspace notifications arrive, and warns (see WithLogger) of what can
// break a lock from the outside: a server that may evict keys, a replica. A failed New leaves nothing
// behind.
//
// With Sentinel (ClientOption.Sentinel) all goes to the primary, and goes over to the next one by itself; until
// there is one, Lock waits. In a cluster the nodes' own connections are made when a lock of theirs is first
// used and end 30 s after the last; messages are shard messages, which stay on the node of the key. All that
// is said of a server holds for the primary that owns the key's slot. While a slot is migrated the server
// refuses scripts on its keys, so its locks stand still until that is over: holds are lost if it takes longer
// than their lease. A failover of either kind may lose the last writes, and with them a lock that is held: see
// [WithReplicas], and [Lease.Token].
func New(c valkey.Client, opts ...Option) (*Client, error) {
	o := defaultOptions()
	if err := o.apply(opts); err != nil {
		return nil, err
	}
	o.made = true
	ctx, cancel := context.WithCancel(context.Background())
	client := &Client{
		server: protocol.Server{Client: c, Cluster: c.Mode() == valkey.ClientModeCluster},
		opts:   o,
		id:     uuid.NewString(),
		ctx:    ctx,
		cancel: cancel,
		start:  time.Now(),
		gates:  map[gateKey]*gate{},
		empty:  make(chan struct{}),
		ears:   map[string]*listener{},
		done:   make(chan struct{}),

		probing: make(chan struct{}, 1),
		probed:  make(chan struct{}, 1),
	}
	client.hub = newHub(ctx, c, o.client.logger, &client.stats)
	client.hub.rebuilt = client.reconnected

	limited, stop := context.WithTimeout(ctx, startLimit)
	defer stop()
	if err := client.probe(limited); err != nil {
		client.Close()
		return nil, fault.Errorf("New: %w", err)
	}
	client.ready.Store(true)
	return client, nil
}

// Close gives back everything that the Client holds, ends all waits with ErrClosed and all contexts with
// a *LostError of CauseClosed, and stops everything that the Client started. It blocks until that is done,
// 5 s at most for a server that does not answer: what could not be given back lapses with its lease. A
// second Close waits for the first. It returns nil.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.mu.Lock()
		c.closed = true
		c.mu.Unlock()
		c.each(nil, (*gate).close)
		close(c.empty)
		limited, stop := context.WithTimeout(context.Background(), closeLimit)
		c.crew.wait(limited)
		stop()
		c.cancel()
		c.crew.stop()
		c.crew.wait(context.Background())
		c.mu.Lock()
		for _, e := range c.ears {
			e.end()
		}
		c.mu.Unlock()
		c.hub.wait()
		close(c.done)
	})
	<-c.done
	return nil
}

// enter finds the gate of a key, or makes it, for one who uses it until leave.
func (c *Client) enter(kind protocol.Kind, keys *protocol.Keys) (*gate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	id := gateKey{kind, keys.Lock}
	g := c.gates[id]
	if g == nil || g.users == 0 {
		if g != nil {
			c.spare = nil
		}
		if ear := c.earFor(keys); g == nil || g.ear != ear {
			g = newGate(c, kind, keys, ear)
			c.gates[id] = g
		}
		g.ear.users++
	}
	g.users++
	return g, nil
}

// leave is the end of a use of g.
func (c *Client) leave(g *gate) { c.use(g, -1) }

// use counts so many more users of a gate that is in use. A gate that nobody uses is forgotten, but for the last one.
func (c *Client) use(g *gate, more int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.users += more
	if g.users == 0 {
		if s := c.spare; s != nil {
			delete(c.gates, gateKey{s.kind, s.keys.Lock})
		}
		c.spare = g
		g.ear.users--
		g.ear.rest()
	}
}

// disown answers a message for an attempt that nobody here knows (given up, or of an older gate) so that
// the server does not keep a place or a hold for it.
func (c *Client) disown(m protocol.Message) {
	if m.Verb != protocol.Grant && m.Verb != protocol.Front {
		return
	}
	keys, err := protocol.KeysFor("", m.Key)
	if err != nil {
		return
	}
	c.crew.run(func() {
		c.untilDone(func(ctx context.Context) error {
			_, err := c.server.Leave(ctx, &keys, c.id+"#"+m.Attempt, "", m.Kind, -1)
			return err
		})
	})
}

// cleanUpLimit is how long a clean-up that the server refuses is repeated: rights that were taken away come back,
// and until then somebody may wait behind what was left.
const cleanUpLimit = 30 * time.Second

// untilDone repeats a request that must get through until it was answered, or the Client is closed.
func (c *Client) untilDone(request func(ctx context.Context) error) {
	pause := minPause
	began := time.Now()
	for {
		ctx, cancel := context.WithTimeout(c.ctx, requestLimit)
		err := request(ctx)
		cancel()
		if err == nil || judge(err) == fatal && (!isReply(err) || time.Since(began) > cleanUpLimit) {
			if err != nil {
				events.cleanupFailed.to(c.opts.client.logger, logError(err))
			}
			return
		}
		if !sleep(c.ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// each calls f for every gate in use; with an ear, for those that use it.
func (c *Client) each(ear *listener, f func(*gate)) {
	c.mu.Lock()
	gates := make([]*gate, 0, len(c.gates))
	for _, g := range c.gates {
		if g.users > 0 && (ear == nil || g.ear == ear) {
			g.users++
			gates = append(gates, g)
		}
	}
	c.mu.Unlock()
	for _, g := range gates {
		f(g)
		c.leave(g)
	}
}

// reconnected: whether keyspace notifications arrive may have changed with the server.
func (c *Client) reconnected() {
	if c.ready.Load() {
		c.crew.run(func() {
			c.untilDone(func(ctx context.Context) error {
				if err := c.listen(ctx); !errors.Is(err, ErrClosed) {
					return err
				}
				return nil
			})
		})
	}
}

func (c *Client) keyspace(lock string) string {
	return fmt.Sprintf("__keyspace@%d__:%s", c.db, lock)
}

// ForceUnlock takes the lock from whoever has it, whatever it is, and gives it to the next in the queue.
// It is for a person who knows that the holder is gone or wrong: a holder of ours that lives is told at
// once (its context ends with CauseTaken or CauseDeleted) but may be in the middle of something. It blocks
// until the server has done it, or ctx ends, or fails (the request is not repeated). Forcing what is free
// is no error. ErrInvalidKey, ErrClosed, ctx's error, the server's own. See also [Client.ForceUnlockIf].
func (c *Client) ForceUnlock(ctx context.Context, key string) error {
	keys, err := c.personal(ctx, c.opts.client.prefix, key)
	if err != nil {
		return err
	}
	_, err = c.server.Force(ctx, &keys)
	return err
}

// ForceUnlockIf is ForceUnlock of what Status, or Watch, has told, and reports whether it was taken. Where that
// hold is over nothing is done, whoever has the lock by now: what a person has looked at and decided may be out of
// date when it is carried out.
//
// A hold that a process hands on among its goroutines is the same one. Of readers, permits and an owner's
// processes only that such hold the lock is compared, not which: who has joined since loses it too. Of another
// program the value is, the first 512 bytes of it. It blocks as ForceUnlock does, with the same errors.
func (c *Client) ForceUnlockIf(ctx context.Context, seen Status) (taken bool, err error) {
	keys, err := c.personal(ctx, "", seen.Key)
	if err != nil || len(seen.Holders) == 0 {
		return false, err
	}
	r, err := c.server.ForceFrom(ctx, &keys, seen.value)
	return r.Outcome == protocol.Forced, err
}

// personal is what the calls that people make begin with.
func (c *Client) personal(ctx context.Context, prefix, key string) (protocol.Keys, error) {
	if err := ctx.Err(); err != nil {
		return protocol.Keys{}, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return protocol.Keys{}, ErrClosed
	}
	return protocol.KeysFor(prefix, key)
}

// probe finds out, by trying, whether the server can be used, and how.
func (c *Client) probe(ctx context.Context) error {
	if err := c.reach(ctx); err != nil {
		return c.explain(err)
	}
	if c.opts.client.configure {
		if err := c.configure(ctx); err != nil {
			return err
		}
	}
	if !c.server.Cluster {
		c.db = c.database(ctx)
	}
	for {
		limited, cancel := context.WithTimeout(ctx, requestLimit)
		err := c.listen(limited)
		over := limited.Err() != nil
		cancel()
		if err == nil {
			break
		}
		// A request or a message may have been lost with its connection. What the server refuses it has heard.
		if isReply(err) || judge(err) == fatal || ctx.Err() != nil || !over && !sleep(ctx, minPause) {
			return c.explain(err)
		}
	}
	c.warn(ctx)
	return nil
}

func (c *Client) explain(err error) error {
	if protocol.Denied(err) {
		return fault.Errorf("%w; this user needs the rights in README.md, section ACL", err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fault.Errorf("the server did not answer within %v: %w", startLimit, err)
	}
	return err
}
