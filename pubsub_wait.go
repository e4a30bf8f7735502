package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
)

// hub is how a Client hears: one dedicated subscriber connection, rebuilt when it breaks or goes deaf.
//
// It knows channels, not locks. Its promise is that nobody who waits can miss a message without being told:
// after every (re)connection, once all channels are confirmed, gap is called, and everybody looks again.
// What arrives is handed over on the connection's reader, so whoever takes it must neither block nor call
// the server (valkey-go stalls the whole connection behind a slow handler).
type hub struct {
	client  valkey.Client
	own     string // the Client's channel
	deliver func(payload string, session int64)
	gap     func() // everything may have been missed: look again
	log     *slog.Logger
	stats   *counters

	kick   chan struct{} // capacity 1: topics or echo changed
	broken chan struct{} // capacity 1: the connection is no good

	mu      sync.Mutex
	topics  map[string]*topic
	up      bool // the own channel is subscribed
	upSince time.Time
	number  int64         // of the subscription: it rises
	failure error         // why not, if it was tried: the server's refusal, or what happened to the connection
	changed chan struct{} // closed, and replaced, when up or failure changes
	echoBy  time.Time     // an echo is due; zero: none
	echoed  time.Time     // when the last one came
}

// topic is a channel that somebody watches.
type topic struct {
	watches   map[*watch]struct{}
	confirmed chan struct{} // closed once the server has subscribed us, or refused to
}

// watch is one interest in a channel.
type watch struct {
	hub     *hub
	channel string
	topic   *topic
	hear    func(payload string)
}

const (
	// echoLimit is how late an echo may be before the connection counts as deaf.
	echoLimit = time.Second
	// The pauses between two tries to connect.
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

var errDeaf = errors.New("messages do not arrive")

func newHub(client valkey.Client, own string, log *slog.Logger, stats *counters) *hub {
	return &hub{
		client: client, own: own, log: log, stats: stats,
		kick:    make(chan struct{}, 1),
		broken:  make(chan struct{}, 1),
		topics:  map[string]*topic{},
		changed: make(chan struct{}),
	}
}

// run keeps the connection until ctx ends.
func (h *hub) run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		was, err := h.connect(ctx)
		h.turn(false, err)
		if ctx.Err() != nil {
			return
		}
		if was {
			pause = minPause
			h.stats.reconnects.Add(1)
			h.log.Warn("valkeysync: subscriber connection lost; connecting anew", "error", err)
		}
		if !sleep(ctx, pause) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// subscriber is one connection and the channels it is subscribed to.
//
// It never unsubscribes: valkey-go answers for an UNSUBSCRIBE by a PING that it sends behind it, and panics
// on a goroutine of its own, which nobody can recover, when the server refuses both, as one does that is
// busy with somebody's long script. A connection with channels that nobody watches any more is replaced
// instead, by one that is subscribed before the old one is closed, so that nothing is missed.
type subscriber struct {
	conn valkey.DedicatedClient
	lost <-chan error
	have map[string]bool
}

const (
	// maxStale is how many channels that nobody watches a connection may have, and staleTime for how long.
	maxStale  = 256
	staleTime = 10 * time.Second
)

// open makes a connection that is subscribed to all that is wanted.
func (h *hub) open(ctx context.Context, number int64) (*subscriber, error) {
	conn, _ := h.client.Dedicate()
	s := &subscriber{conn: conn, have: map[string]bool{}}
	s.lost = conn.SetPubSubHooks(valkey.PubSubHooks{
		OnMessage:      func(m valkey.PubSubMessage) { h.message(m, number) },
		OnSubscription: func(valkey.PubSubSubscription) {},
	})
	err := s.subscribe(ctx, h.own)
	if err == nil {
		_, err = h.adjust(ctx, s)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// connect is the life of one subscription, over one connection and those that replace it. It reports
// whether it was ever up.
func (h *hub) connect(ctx context.Context) (up bool, err error) {
	h.mu.Lock()
	h.number++
	number := h.number
	h.mu.Unlock()
	select {
	case <-h.broken: // said of an earlier one
	default:
	}
	s, err := h.open(ctx, number)
	if err != nil {
		return false, err
	}
	defer func() { s.conn.Close() }()
	h.turn(true, nil)
	h.gap()
	var staleSince time.Time
	for {
		stale, err := h.adjust(ctx, s)
		if err != nil {
			return true, err
		}
		switch {
		case stale == 0:
			staleSince = time.Time{}
		case staleSince.IsZero():
			staleSince = time.Now()
		}
		if stale > maxStale || stale > 0 && time.Since(staleSince) >= staleTime {
			fresh, err := h.open(ctx, number)
			if err != nil {
				return true, err
			}
			s.conn.Close()
			s = fresh
			continue
		}
		by := h.due()
		if wake := staleSince.Add(staleTime); stale > 0 && (by.IsZero() || wake.Before(by)) {
			by = wake
		}
		var alarm <-chan time.Time
		if !by.IsZero() {
			alarm = time.After(time.Until(by))
		}
		select {
		case err, ok := <-s.lost:
			if !ok || err == nil {
				err = valkey.ErrClosing
			}
			return true, err
		case <-h.kick:
		case <-h.broken:
			return true, errDeaf
		case <-alarm:
			if due := h.due(); !due.IsZero() && !time.Now().Before(due) {
				return true, errDeaf
			}
		case <-ctx.Done():
			return true, nil
		}
	}
}

// subscribe returns when the server has confirmed it.
func (s *subscriber) subscribe(ctx context.Context, channel string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	if err := s.conn.Do(ctx, s.conn.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		return fmt.Errorf("subscribe to %q: %w", channel, err)
	}
	s.have[channel] = true
	return nil
}

// adjust subscribes to what is wanted, and counts the channels that nobody watches any more.
func (h *hub) adjust(ctx context.Context, s *subscriber) (stale int, err error) {
	var join []string
	h.mu.Lock()
	for name, t := range h.topics {
		if s.have[name] {
			t.confirm()
		} else {
			join = append(join, name)
		}
	}
	stale = len(s.have) - 1 - (len(h.topics) - len(join)) // the own channel is no topic
	h.mu.Unlock()
	for _, name := range join {
		err := s.subscribe(ctx, name)
		if err != nil && judge(err) != fatal {
			return 0, err
		}
		if err != nil {
			// Not allowed to watch this key: timers make up for it.
			h.log.Warn("valkeysync: may not watch a key; waiting by timers instead", "channel", name, "error", err)
			s.have[name] = true
		}
		h.mu.Lock()
		if t := h.topics[name]; t != nil {
			t.confirm()
		}
		h.mu.Unlock()
	}
	return stale, nil
}

func (t *topic) confirm() {
	select {
	case <-t.confirmed:
	default:
		close(t.confirmed)
	}
}

// turn sets whether the Client hears, or why not, and tells whoever waits for it.
func (h *hub) turn(up bool, failure error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up, h.failure, h.echoBy, h.upSince = up, failure, time.Time{}, time.Now()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *hub) message(m valkey.PubSubMessage, session int64) {
	if m.Channel == h.own {
		h.deliver(m.Message, session)
		return
	}
	h.mu.Lock()
	var hear []func(string)
	if t := h.topics[m.Channel]; t != nil {
		for w := range t.watches {
			hear = append(hear, w.hear)
		}
	}
	h.mu.Unlock()
	for _, f := range hear {
		f(m.Message)
	}
}

// ready waits until the Client hears, the server refuses that it does, or ctx ends. The error says what
// stood in the way.
func (h *hub) ready(ctx context.Context) error {
	for {
		h.mu.Lock()
		up, failure, changed := h.up, h.failure, h.changed
		h.mu.Unlock()
		if up || isReply(failure) {
			return failure
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if failure != nil {
				return fmt.Errorf("%w: %w", ctx.Err(), failure)
			}
			return ctx.Err()
		}
	}
}

// hears reports whether the Client hears at present.
func (h *hub) hears() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.up
}

// upFor is for how long the Client has been heard; negative: it is not.
func (h *hub) upFor() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.up {
		return -1
	}
	return time.Since(h.upSince)
}

// session is the number of the connection over which the Client hears; 0: over none.
func (h *hub) session() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.up {
		return 0
	}
	return h.number
}

// rebuild has the connection replaced.
func (h *hub) rebuild() {
	select {
	case h.broken <- struct{}{}:
	default:
	}
}

// watch calls hear, on the connection's reader, for every message on channel, until stop.
func (h *hub) watch(channel string, hear func(payload string)) *watch {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[channel]
	if t == nil {
		t = &topic{watches: map[*watch]struct{}{}, confirmed: make(chan struct{})}
		h.topics[channel] = t
		h.poke()
	}
	w := &watch{hub: h, channel: channel, topic: t, hear: hear}
	t.watches[w] = struct{}{}
	return w
}

// confirmed is closed once messages arrive, or never will.
func (w *watch) confirmed() <-chan struct{} { return w.topic.confirmed }

// stop ends the watch; the last one ends the subscription. A nil watch is stopped.
func (w *watch) stop() {
	if w == nil {
		return
	}
	h := w.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(w.topic.watches, w)
	if len(w.topic.watches) == 0 && h.topics[w.channel] == w.topic {
		delete(h.topics, w.channel)
		h.poke()
	}
}

func (h *hub) poke() {
	select {
	case h.kick <- struct{}{}:
	default:
	}
}

// expectEcho is called when the server has answered a request, sent at that time, that it has sent an
// echo: if none arrives in time, the connection is deaf, whatever else it answers.
func (h *hub) expectEcho(sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.up && h.echoBy.IsZero() && h.echoed.Before(sent) {
		h.echoBy = time.Now().Add(echoLimit)
		h.poke()
	}
}

// wantsEcho: none came lately, so a request that sends one is worth its while.
func (h *hub) wantsEcho() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.up && time.Since(h.echoed) >= echoLimit
}

// echo is called when one arrived.
func (h *hub) echo() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.echoBy, h.echoed = time.Time{}, time.Now()
}

func (h *hub) due() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.echoBy
}

// sleep reports false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
