package valkeysync

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// hub is how a Client hears: channels that somebody watches, over dedicated subscriber connections that are
// rebuilt when they break or go deaf. With one server there is one connection; in a cluster there is one
// for each node that owns the slot of a watched channel.
//
// It knows channels, not locks. Its promise is that nobody who waits can miss a message without being told:
// after every new subscription of a Client's own channel, once all other channels of its slot are confirmed
// too, its watch is told, and everybody concerned looks again. What arrives is handed over on the
// connection's reader, so whoever takes it must neither block nor call the server (valkey-go stalls the
// whole connection behind a slow handler).
type hub struct {
	client  valkey.Client
	cluster bool
	rebuilt func() // a connection was made anew
	log     *slog.Logger
	stats   *counters
	opened  atomic.Int64 // connections so far

	ctx    context.Context // of all that goes on here
	astray chan struct{}   // capacity 1: the map of the cluster may be wrong
	work   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	topics  map[string]*topic
	links   map[string]*link // by address; "": the only one there is
	slots   *slotMap         // of a cluster; nil before the first
	number  int64            // of the last subscription: it rises
	changed chan struct{}    // closed, and replaced, when a topic is subscribed, refused, or lost
}

// topic is a channel that somebody watches.
type topic struct {
	channel string
	own     bool // the Client's own: in a cluster a shard channel
	slot    int  // in a cluster: of the key that a keyspace channel is for, or the channel's
	watches map[*watch]struct{}

	link      *link         // where it is subscribed, or is to be; nil: nobody knows yet
	number    int64         // of its subscription; 0: it has none at present
	alone     string        // of an own one: the channel that only the connection of that subscription hears
	told      int64         // the last number that its watches were told of
	since     time.Time     // since when it is heard
	failure   error         // why not, if it was tried: the server's refusal, or what happened to the connection
	confirmed chan struct{} // closed once the server has subscribed us, or refused to
	moves     int           // how often it was sent elsewhere without being subscribed
	doubted   bool          // nobody hears it where it is said to be
}

// watch is one interest in a channel.
type watch struct {
	hub   *hub
	topic *topic
	hear  func(payload string, session int64)
	again func(first bool) // after every subscription; nil: whoever watches the own channel sees to it
}

const (
	// echoLimit is how late an echo may be before the connection counts as deaf.
	echoLimit = time.Second
	// The pauses between two tries to connect.
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

var errDeaf = errors.New("messages do not arrive")

func newHub(ctx context.Context, client valkey.Client, log *slog.Logger, stats *counters) *hub {
	h := &hub{
		client: client, cluster: client.Mode() == valkey.ClientModeCluster, log: log, stats: stats,
		ctx:     ctx,
		astray:  make(chan struct{}, 1),
		topics:  map[string]*topic{},
		links:   map[string]*link{},
		changed: make(chan struct{}),
	}
	if h.cluster {
		h.work.Go(h.steer)
	}
	return h
}

// wait returns when everything that goes on here has ended, after ctx has.
func (h *hub) wait() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.work.Wait()
}

// watch calls hear, on the connection's reader, for every message on the channel, until stop.
func (h *hub) watch(channel string, hear func(payload string)) *watch {
	return h.join(channel, false, func(payload string, _ int64) { hear(payload) }, nil)
}

// watchOwn is watch for a channel that is the Client's own. The messages come with the number of the
// subscription over which they came (0: it is over), and again is called after every new subscription.
func (h *hub) watchOwn(channel string, hear func(payload string, session int64), again func(first bool)) *watch {
	return h.join(channel, true, hear, again)
}

func (h *hub) join(channel string, own bool, hear func(string, int64), again func(bool)) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	if t == nil {
		t = &topic{channel: channel, own: own, watches: map[*watch]struct{}{}, confirmed: make(chan struct{})}
		h.topics[channel] = t
		if h.cluster {
			t.slot = protocol.Slot(hashed(channel))
		}
		h.settle(t)
	}
	w := &watch{hub: h, topic: t, hear: hear, again: again}
	t.watches[w] = struct{}{}
	return w
}

// ownOf finds the own topic beside whose channel a connection has this one for itself; nil: it is no such
// channel.
func (h *hub) ownOf(channel string) *topic {
	if i := strings.LastIndexByte(channel, ':'); i > 0 {
		if t := h.topics[channel[:i]]; t != nil && t.own {
			return t
		}
	}
	return nil
}

// hashed is what the slot of a channel goes by: a keyspace channel speaks where its key lies.
func hashed(channel string) string {
	if strings.HasPrefix(channel, "__keyspace@") {
		_, channel, _ = strings.Cut(channel, "__:")
	}
	return channel
}

// settle has a topic subscribed where it belongs, as far as that is known.
func (h *hub) settle(t *topic) {
	var addr string
	if h.cluster {
		if h.slots.stale() {
			h.seek()
		}
		if addr = h.slots.primary(t.slot); addr == "" {
			h.leaveLink(t)
			return
		}
	}
	if t.link != nil && t.link.addr == addr {
		return
	}
	h.leaveLink(t)
	l := h.links[addr]
	if l == nil {
		if h.closed || h.ctx.Err() != nil {
			return
		}
		l = newLink(h, addr)
		h.links[addr] = l
		h.work.Go(l.run)
	}
	t.link = l
	l.poke()
}

// leaveLink: the topic is not subscribed where it was, or not for long.
func (h *hub) leaveLink(t *topic) {
	if t.link != nil {
		t.link.poke()
		t.link = nil
	}
	h.deafen(t)
}

// deafen: the topic has no subscription any more.
func (h *hub) deafen(t *topic) {
	if t.number != 0 {
		t.number = 0
		h.broadcast()
	}
}

func (h *hub) broadcast() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (t *topic) confirm() {
	select {
	case <-t.confirmed:
	default:
		close(t.confirmed)
	}
}

// confirmed is closed once messages arrive, or never will.
func (w *watch) confirmed() <-chan struct{} { return w.topic.confirmed }

// stop ends the watch; the last one ends the subscription. A nil watch is stopped.
func (w *watch) stop() {
	if w == nil {
		return
	}
	h, t := w.hub, w.topic
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(t.watches, w)
	if len(t.watches) == 0 && h.topics[t.channel] == t {
		delete(h.topics, t.channel)
		h.leaveLink(t)
	}
}

// ready waits until the channel is heard, the server refuses that it is, or ctx ends. The error says what
// stood in the way.
func (w *watch) ready(ctx context.Context) error {
	for {
		w.hub.mu.Lock()
		up, failure, changed := w.topic.number != 0, w.topic.failure, w.hub.changed
		w.hub.mu.Unlock()
		if up {
			return nil
		}
		if isReply(failure) && judge(failure) != passing {
			return failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if failure != nil {
				return fault.Errorf("%w: %w", ctx.Err(), failure)
			}
			return ctx.Err()
		}
	}
}

// session is the number of the subscription over which the channel is heard; 0: it is not. Every
// subscription has a higher one.
func (w *watch) session() int64 {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.topic.number
}

// upFor is for how long the channel has been heard; negative: it is not. A subscription to a node that was
// heard already counts as if it had been there as long: what could have gone wrong there would have ended
// it.
func (w *watch) upFor() time.Duration {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if w.topic.number == 0 {
		return -1
	}
	return time.Since(w.topic.since)
}

// alone is session, and the channel on which nobody is counted but the connection of that subscription.
func (w *watch) alone() (session int64, channel string) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.topic.number, w.topic.alone
}

// rebuild has the subscription made anew: nobody hears it where it counts.
func (w *watch) rebuild() {
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cluster {
		// The slot may have moved, or the node be a replica by now: a new map tells.
		w.topic.doubted = true
		h.seek()
		return
	}
	if l := w.topic.link; l != nil {
		l.breakUp()
	}
}

// expectEcho is called when the server has answered a request, sent at that time, that it has sent an
// echo to this channel: if none arrives in time, the connection is deaf, whatever else it answers.
func (w *watch) expectEcho(sent time.Time) {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if l := w.topic.link; l != nil && w.topic.number != 0 && l.echoBy.IsZero() && l.echoed.Before(sent) {
		l.echoBy = time.Now().Add(echoLimit)
		l.poke()
	}
}

// wantsEcho: none came lately, so a request that sends one is worth its while.
func (w *watch) wantsEcho() bool {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	return w.topic.number != 0 && time.Since(w.topic.link.echoed) >= echoLimit
}

// echo is called when one arrived.
func (w *watch) echo() {
	w.hub.mu.Lock()
	defer w.hub.mu.Unlock()
	if l := w.topic.link; l != nil {
		l.echoBy, l.echoed = time.Time{}, time.Now()
	}
}

// sleep reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool { return rest(d, ctx.Done()) }
