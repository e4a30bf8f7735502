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
	deliver func(payload string)
	gap     func() // everything may have been missed: look again
	log     *slog.Logger
	stats   *counters

	kick chan struct{} // capacity 1: topics or echo changed

	mu      sync.Mutex
	topics  map[string]*topic
	up      bool          // the own channel is subscribed
	broken  error         // why not, if it was tried: the server's refusal, or what happened to the connection
	changed chan struct{} // closed, and replaced, when up or broken changes
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
		topics:  map[string]*topic{},
		changed: make(chan struct{}),
	}
}

// run keeps the connection until ctx ends.
func (h *hub) run(ctx context.Context) {
	pause := minPause
	for ctx.Err() == nil {
		was, err := h.session(ctx)
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

// session is the life of one connection. It reports whether it was ever up.
func (h *hub) session(ctx context.Context) (up bool, err error) {
	conn, _ := h.client.Dedicate()
	defer conn.Close()
	lost := conn.SetPubSubHooks(valkey.PubSubHooks{
		OnMessage:      h.message,
		OnSubscription: func(valkey.PubSubSubscription) {},
	})
	have := map[string]bool{}
	for {
		if err := h.adjust(ctx, conn, have); err != nil {
			return up, err
		}
		if !up {
			up = true
			h.turn(true, nil)
			h.gap()
		}
		var deaf <-chan time.Time
		var timer *time.Timer
		if by := h.due(); !by.IsZero() {
			timer = time.NewTimer(time.Until(by))
			deaf = timer.C
		}
		select {
		case err, ok := <-lost:
			if !ok || err == nil {
				err = valkey.ErrClosing
			}
			return up, err
		case <-h.kick:
		case <-deaf:
			if by := h.due(); !by.IsZero() && !time.Now().Before(by) {
				return up, errDeaf
			}
		case <-ctx.Done():
			return up, nil
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// adjust makes the connection's channels what is wanted. SUBSCRIBE returns when it is confirmed.
func (h *hub) adjust(ctx context.Context, conn valkey.DedicatedClient, have map[string]bool) error {
	do := func(cmd valkey.Completed) error {
		ctx, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		return conn.Do(ctx, cmd).Error()
	}
	if !have[h.own] {
		if err := do(conn.B().Subscribe().Channel(h.own).Build()); err != nil {
			return fmt.Errorf("subscribe to %s: %w", h.own, err)
		}
		have[h.own] = true
	}
	var join, part []string
	h.mu.Lock()
	for name, t := range h.topics {
		if have[name] {
			t.confirm()
		} else {
			join = append(join, name)
		}
	}
	for name := range have {
		if _, ok := h.topics[name]; !ok && name != h.own {
			part = append(part, name)
		}
	}
	h.mu.Unlock()
	for _, name := range join {
		err := do(conn.B().Subscribe().Channel(name).Build())
		if _, reply := valkey.IsValkeyErr(err); err != nil && !reply {
			return fmt.Errorf("subscribe: %w", err)
		}
		if err != nil {
			// Not allowed to watch this key: timers make up for it.
			h.log.Warn("valkeysync: may not watch a key; waiting by timers instead", "channel", name, "error", err)
		}
		have[name] = true
		h.mu.Lock()
		if t := h.topics[name]; t != nil {
			t.confirm()
		}
		h.mu.Unlock()
	}
	for _, name := range part {
		if err := do(conn.B().Unsubscribe().Channel(name).Build()); err != nil {
			return fmt.Errorf("unsubscribe: %w", err)
		}
		delete(have, name)
	}
	return nil
}

func (t *topic) confirm() {
	select {
	case <-t.confirmed:
	default:
		close(t.confirmed)
	}
}

// turn sets whether the Client hears, or why not, and tells whoever waits for it.
func (h *hub) turn(up bool, broken error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.up, h.broken, h.echoBy = up, broken, time.Time{}
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *hub) message(m valkey.PubSubMessage) {
	if m.Channel == h.own {
		h.deliver(m.Message)
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
		up, broken, changed := h.up, h.broken, h.changed
		h.mu.Unlock()
		if up || isReply(broken) {
			return broken
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if broken != nil {
				return fmt.Errorf("%w: %w", ctx.Err(), broken)
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
