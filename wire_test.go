package valkeysync

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// What stands between a Client and the server of a bubble, and who else is there: a tap bends what passes,
// request by request and message by message; a peer is another process that is played by hand.

// tap is a valkey.Client whose scripts and messages a test can lose, hold back and cut off.
type tap struct {
	valkey.Client
	mu    sync.Mutex
	next  map[string][]relay // what happens to the next runs of a script, in order
	all   map[string]relay   // what happens to every other run of it
	sent  map[string]int     // runs that were asked for
	keep  func(m protocol.Message) bool
	kept  []func()
	conns []net.Conn
	ear   valkey.DedicatedClient     // the subscriber connection
	hear  func(valkey.PubSubMessage) // what it does with a message
	away  bool                       // nobody can connect
}

// relay is what happens to one run of a script: run has the server run it, whatever the caller's context.
type relay func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult

func (b *bubble) tap() *tap {
	c := &tap{next: map[string][]relay{}, all: map[string]relay{}, sent: map[string]int{}}
	c.Client = b.dial(func(conn net.Conn) net.Conn {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.conns = append(c.conns, conn)
		if c.away {
			conn.Close()
		}
		return conn
	})
	for _, source := range protocol.Sources() {
		require.NoError(b.t, c.Client.Do(b.t.Context(), c.B().ScriptLoad().Script(source).Build()).Error())
	}
	return c
}

var scriptNames = sync.OnceValue(func() map[string]string {
	names := map[string]string{}
	for name, source := range protocol.Sources() {
		sum := sha1.Sum([]byte(source))
		names[hex.EncodeToString(sum[:])] = name
	}
	return names
})

// on bends the next runs of a script, one relay each. They come before what always says.
func (c *tap) on(script string, relays ...relay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next[script] = append(c.next[script], relays...)
}

// always bends every run of a script; nil ends it.
func (c *tap) always(script string, r relay) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[script] = r
}

// count is how many runs of a script were asked for.
func (c *tap) count(script string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent[script]
}

// total is count of all scripts.
func (c *tap) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for script, sent := range c.sent {
		if script != "beat" {
			n += sent
		}
	}
	return n
}

// beats is how many beats were asked for.
func (c *tap) beats() int { return c.count("beat") }

func (c *tap) Do(ctx context.Context, cmd valkey.Completed) valkey.ValkeyResult {
	args := slices.Clone(cmd.Commands())
	name := "beat"
	switch args[0] {
	case "EVALSHA":
		name = scriptNames()[args[1]]
	case "PUBLISH": // only a beat does
	default:
		return c.Client.Do(ctx, cmd)
	}
	c.mu.Lock()
	c.sent[name]++
	r := c.all[name]
	if next := c.next[name]; len(next) > 0 {
		r, c.next[name] = next[0], next[1:]
	}
	c.mu.Unlock()
	if r == nil {
		return c.Client.Do(ctx, cmd)
	}
	return r(ctx, func() valkey.ValkeyResult {
		return c.Client.Do(context.Background(), c.B().Arbitrary(args...).Build())
	})
}

var errWire = errors.New("the connection was cut")

// shortLease is the first lease of a hold that is handed over by message, where crash detection is off.
const shortLease = defaultGrace

// loseRequest: the server never sees it, and the connection is cut.
func loseRequest(context.Context, func() valkey.ValkeyResult) valkey.ValkeyResult {
	return valkey.NewErrorResult(errWire)
}

// loseReply: the server runs it, and the connection is cut before the reply.
func loseReply(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
	run()
	return valkey.NewErrorResult(errWire)
}

// swallow: neither request nor reply arrives, and nobody is told.
func swallow(ctx context.Context, _ func() valkey.ValkeyResult) valkey.ValkeyResult {
	<-ctx.Done()
	return valkey.NewErrorResult(ctx.Err())
}

// swallowReply: the server runs it, and nobody is told.
func swallowReply(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
	run()
	<-ctx.Done()
	return valkey.NewErrorResult(ctx.Err())
}

// slow: the request takes that long, and so does the reply.
func slow(there, back time.Duration) relay {
	return func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
		time.Sleep(there)
		r := run()
		time.Sleep(back)
		return r
	}
}

// holdRequest: the request arrives when open is closed, be it after the caller has given up.
func holdRequest(open <-chan struct{}) relay {
	return func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
		done := make(chan valkey.ValkeyResult, 1)
		go func() {
			<-open
			done <- run()
		}()
		select {
		case r := <-done:
			return r
		case <-ctx.Done():
			return valkey.NewErrorResult(ctx.Err())
		}
	}
}

// before does something in the moment before a run.
func before(f func()) relay {
	return func(_ context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
		f()
		return run()
	}
}

// keepBack keeps the messages back for which which holds, from now on; nil ends it. What is kept stays so.
func (c *tap) keepBack(which func(m protocol.Message) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep = which
}

// deliver delivers what was kept back, and returns how much it was.
func (c *tap) deliver() int {
	c.mu.Lock()
	kept := c.kept
	c.kept = nil
	c.mu.Unlock()
	for _, f := range kept {
		f()
	}
	return len(kept)
}

// say has the Client hear that, over its subscriber connection.
func (c *tap) say(channel, message string) {
	c.mu.Lock()
	hear := c.hear
	c.mu.Unlock()
	hear(valkey.PubSubMessage{Channel: channel, Message: message})
}

// drop loses what was kept back.
func (c *tap) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = nil
}

// quiet is a logger for tests that cause more than anybody would read.
var quiet = slog.New(slog.DiscardHandler)

func isGrant(m protocol.Message) bool { return m.Verb == protocol.Grant }

func anyMessage(protocol.Message) bool { return true }

// cut ends every connection.
func (c *tap) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		conn.Close()
	}
	c.conns = nil
}

// cutEar ends the subscriber connection.
func (c *tap) cutEar() {
	c.mu.Lock()
	ear := c.ear
	c.mu.Unlock()
	ear.Close() // waits for the reader, which may be in a message and want the mutex
}

// refuse keeps new connections from being made.
func (c *tap) refuse(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.away = on
}

// goAway is a server that cannot be reached any more.
func (c *tap) goAway(away bool) {
	c.refuse(away)
	if away {
		c.cut()
	}
}

func (c *tap) Dedicate() (valkey.DedicatedClient, func()) {
	d, cancel := c.Client.Dedicate()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ear = d
	return &ear{d, c}, cancel
}

// ear is a tap's subscriber connection.
type ear struct {
	valkey.DedicatedClient
	tap *tap
}

func (e *ear) SetPubSubHooks(hooks valkey.PubSubHooks) <-chan error {
	hear := hooks.OnMessage
	e.tap.mu.Lock()
	e.tap.hear = hear
	e.tap.mu.Unlock()
	hooks.OnMessage = func(m valkey.PubSubMessage) {
		e.tap.mu.Lock()
		said, err := protocol.ParseMessage(m.Message)
		keep := err == nil && e.tap.keep != nil && e.tap.keep(said)
		if keep {
			e.tap.kept = append(e.tap.kept, func() { hear(m) })
		}
		e.tap.mu.Unlock()
		if !keep {
			hear(m)
		}
	}
	return e.DedicatedClient.SetPubSubHooks(hooks)
}

// peer is another process on a key, played by hand.
type peer struct {
	protocol.Server
	t    *testing.T
	id   string
	keys protocol.Keys

	mu    sync.Mutex
	heard []protocol.Message
	ear   valkey.DedicatedClient
}

// peer is one that listens on its channel, and so is alive.
func (b *bubble) peer(id, key string) *peer {
	p := b.mute(id, key)
	p.ear, _ = p.Client.Dedicate()
	p.ear.SetPubSubHooks(valkey.PubSubHooks{OnMessage: func(m valkey.PubSubMessage) {
		said, err := protocol.ParseMessage(m.Message)
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.t.Errorf("peer %s heard %q: %v", p.id, m.Message, err)
		}
		p.heard = append(p.heard, said)
	}})
	require.NoError(b.t, p.ear.Do(b.t.Context(), p.ear.B().Subscribe().Channel(protocol.ChannelFor(id)).Build()).Error())
	b.t.Cleanup(p.die)
	return p
}

// mute is a peer that does not listen: it counts as dead.
func (b *bubble) mute(id, key string) *peer {
	keys, err := protocol.KeysFor("", key)
	require.NoError(b.t, err)
	return &peer{Server: protocol.Server{Client: b.dial(nil)}, t: b.t, id: id, keys: keys}
}

// die ends the peer's listening.
func (p *peer) die() {
	if p.ear != nil {
		p.ear.Close()
	}
}

// messages are what the peer heard since the last call.
func (p *peer) messages() []protocol.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := p.heard
	p.heard = nil
	return heard
}

// entry is an attempt of the peer for the exclusive lock.
func (p *peer) entry(attempt string) protocol.Entry {
	return protocol.Entry{
		Client: p.id, Attempt: attempt, Kind: protocol.MutexKind, Mode: protocol.Exclusive, Weight: 1,
		Lease: defaultLease, First: shortLease, Name: p.id,
	}
}

func (p *peer) reply(r protocol.Reply, err error) protocol.Reply {
	p.t.Helper()
	require.NoError(p.t, err)
	return r
}

func (p *peer) acquire(e protocol.Entry) protocol.Reply {
	p.t.Helper()
	return p.reply(p.Acquire(p.t.Context(), &p.keys, e, false, 0))
}

func (p *peer) check(e protocol.Entry) protocol.Reply {
	p.t.Helper()
	return p.reply(p.Check(p.t.Context(), &p.keys, e, false, -1))
}

func (p *peer) leave(e protocol.Entry) {
	p.t.Helper()
	p.reply(p.Leave(p.t.Context(), &p.keys, e.Ref(), e.String(), e.Kind, -1))
}

// release gives the hold back that a reply has told of.
func (p *peer) release(e protocol.Entry, held protocol.Reply) protocol.Reply {
	p.t.Helper()
	return p.reply(p.Release(p.t.Context(), &p.keys, e.Hold(held.Number, held.Since), nil, protocol.Queue, 0))
}

// hold takes the lock, which must be free.
func (p *peer) hold(attempt string) (protocol.Entry, protocol.Reply) {
	p.t.Helper()
	e := p.entry(attempt)
	r := p.acquire(e)
	require.Equal(p.t, protocol.Held, r.Outcome)
	return e, r
}

func (p *peer) standing() protocol.Standing {
	p.t.Helper()
	st, err := p.Status(p.t.Context(), &p.keys, 100)
	require.NoError(p.t, err)
	return st
}

// holder is the attempt that the server says holds exclusively; "" for none of ours.
func (p *peer) holder() string {
	p.t.Helper()
	if h := protocol.ParseHolder(p.standing().Value); !h.Foreign && !h.Shared {
		return h.Ref()
	}
	return ""
}

// inBubble runs f in a bubble with a server.
func inBubble(t *testing.T, f func(t *testing.T, b *bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newBubble(t)) })
}

// leaseOf is the lease that a lock's context carries.
func leaseOf(t testing.TB, ctx context.Context) *Lease {
	t.Helper()
	l, ok := FromContext(ctx)
	require.True(t, ok, "no lease in the context")
	return l
}

// locked is what a LockContext on another goroutine came to.
type locked struct {
	ctx context.Context
	err error
	at  time.Time
}

// lockAsync begins a LockContext and returns when it waits, or is over.
func lockAsync(ctx context.Context, m *Mutex) <-chan locked {
	got := make(chan locked, 1)
	go func() {
		held, err := m.LockContext(ctx)
		got <- locked{held, err, time.Now()}
	}()
	synctest.Wait()
	return got
}

// notYet fails the test if the lock was got, or refused.
func notYet(t testing.TB, got <-chan locked) {
	t.Helper()
	synctest.Wait()
	select {
	case l := <-got:
		t.Fatalf("got %v, %v", l.ctx, l.err)
	default:
	}
}

// now returns what has come, at once.
func now(t testing.TB, got <-chan locked) context.Context {
	t.Helper()
	synctest.Wait()
	select {
	case l := <-got:
		require.NoError(t, l.err)
		return l.ctx
	default:
		t.Fatal("does not have the lock")
		return nil
	}
}
