package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
)

// link is the subscription to the only server, or to one node of a cluster for as long as a topic is at home
// there: a connection, and those that come after it.
type link struct {
	hub    *hub
	addr   string        // "" for the only server
	kick   chan struct{} // capacity 1: topics or echo changed
	broken chan struct{} // capacity 1: the connection is no good

	// Guarded by the hub's mutex.
	since  time.Time // since when the subscription stands; zero: it does not
	echoBy time.Time // an echo is due; zero: none
	echoed time.Time // when the last one came
}

// subscriber is one connection and the channels it is subscribed to, or was refused (true: an own one).
//
// Beside each own channel it is subscribed, by the same command, to one that no other connection ever is:
// its name is the own channel's and the mark. Who is counted there is this connection, and it hears the
// own channel too. Of a subscriber of the own channel nobody knows which connection it is: the server may
// run the SUBSCRIBE of one that was given up long after it has closed the one that followed.
//
// It never unsubscribes: valkey-go answers for an UNSUBSCRIBE by a PING that it sends behind it, and panics
// on a goroutine of its own, which nobody can recover, when the server refuses both, as one does that is
// busy with somebody's long script. A connection with channels that nobody watches any more is replaced
// instead, by one that is subscribed before the old one is closed, so that nothing is missed.
type subscriber struct {
	link *link
	mark string
	conn valkey.DedicatedClient
	lost <-chan error
	have map[string]bool // guarded by the hub's mutex
}

const (
	// maxStale is how many channels that nobody watches a connection may have, and staleTime for how long.
	maxStale  = 256
	staleTime = 10 * time.Second
)

var errNoNode = errors.New("the cluster client does not know the node")

func newLink(h *hub, addr string) *link {
	return &link{hub: h, addr: addr, kick: make(chan struct{}, 1), broken: make(chan struct{}, 1)}
}

// run keeps the connection as long as it is wanted.
func (l *link) run() {
	h := l.hub
	pause := minPause
	ups := 0
	for l.wanted() {
		was, err := l.connect(ups > 0)
		l.down(err)
		if was {
			ups++
			pause = minPause
		}
		if err == nil || h.ctx.Err() != nil {
			continue // not wanted any more, or it is again; Close may come in the middle of a request
		}
		if was {
			h.stats.reconnects.Add(1)
			events.subscriberLost.to(h.log, logNode(l.addr), logError(err))
		}
		if !sleep(h.ctx, pause) {
			continue
		}
		pause = min(2*pause, maxPause)
	}
}

// wanted: the only server's link always is, a node's while a topic is at home there. One that is not is
// forgotten.
func (l *link) wanted() bool {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ctx.Err() == nil && (!h.cluster || l.hasTopics()) {
		return true
	}
	delete(h.links, l.addr)
	return false
}

func (l *link) hasTopics() bool {
	for _, t := range l.hub.topics {
		if t.link == l {
			return true
		}
	}
	return false
}

// open makes a connection that is subscribed to all that is wanted.
func (l *link) open() (*subscriber, error) {
	client := l.hub.client
	if l.hub.cluster {
		if client = l.hub.client.Nodes()[l.addr]; client == nil {
			l.hub.introduce(l)
			return nil, fault.Errorf("%w %s", errNoNode, l.addr)
		}
	}
	conn, _ := client.Dedicate()
	mark := fmt.Sprint(":", l.hub.opened.Add(1))
	s := &subscriber{link: l, mark: mark, conn: conn, have: map[string]bool{}}
	s.lost = conn.SetPubSubHooks(valkey.PubSubHooks{OnMessage: s.message, OnSubscription: s.subscription})
	if _, err := s.adjust(); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// connect is the life of one subscription, over one connection and those that replace it. It reports
// whether it was ever up, and why it ended: nil when it is not wanted any more.
func (l *link) connect(anew bool) (up bool, err error) {
	h := l.hub
	select {
	case <-l.broken: // said of an earlier one
	default:
	}
	s, err := l.open()
	if err != nil {
		return false, err
	}
	defer func() { s.conn.Close() }()
	if anew {
		h.rebuilt()
	}
	var staleSince time.Time
	for {
		stale, err := s.adjust()
		if err != nil {
			return true, err
		}
		l.tell()
		switch {
		case stale == 0:
			staleSince = time.Time{}
		case staleSince.IsZero():
			staleSince = time.Now()
		}
		if stale > maxStale || stale > 0 && time.Since(staleSince) >= staleTime {
			fresh, err := l.open()
			if err != nil {
				return true, err
			}
			if err := s.drain(); err != nil {
				fresh.conn.Close()
				return true, err // since when the server has not counted it is not known
			}
			s.conn.Close()
			s = fresh
			s.succeed()
			continue
		}
		by := l.due()
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
		case <-l.kick:
		case <-l.broken:
			return true, errDeaf
		case <-alarm:
			if due := l.due(); !due.IsZero() && !time.Now().Before(due) {
				return true, errDeaf
			}
		case <-h.ctx.Done():
			return true, nil
		}
		if h.cluster && !l.busy() {
			return true, nil
		}
	}
}

// drain returns when all that the server had sent before has been taken. An error says that the connection
// may have been closed before now, when another is subscribed already: between the two nobody was.
func (s *subscriber) drain() error {
	l, h := s.link, s.link.hub
	var own *topic
	h.mu.Lock()
	for _, t := range h.topics {
		if t.own && t.link == l && s.have[t.channel] {
			own = t
			break
		}
	}
	h.mu.Unlock()
	if own == nil {
		return nil // whoever listens now has just begun
	}
	// Not a PING: over RESP2 valkey-go sends that on another connection.
	if err := s.subscribe(own, own.channel+s.mark); err != nil && !isReply(err) {
		return err
	}
	return nil
}

// succeed: this connection stands, and the one before it stood until then. The subscription is the same.
func (s *subscriber) succeed() {
	h := s.link.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		switch {
		case !t.own || t.link != s.link || t.number == 0:
		case s.have[t.channel]:
			t.alone = t.channel + s.mark
		default:
			h.deafen(t)
		}
	}
}

func (l *link) busy() bool {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.hasTopics()
}

// adjust subscribes to what is wanted, and counts the channels that nobody watches here any more. The
// server's confirmations come to subscription, in the order of the wire, before the calls here return.
func (s *subscriber) adjust() (stale int, err error) {
	l, h := s.link, s.link.hub
	join, stale := s.differences()
	for _, t := range join {
		channels := []string{t.channel}
		if t.own {
			channels = append(channels, t.channel+s.mark)
		}
		err := s.subscribe(t, channels...)
		if err == nil {
			continue
		}
		var reply *valkey.ValkeyError
		if errors.As(err, &reply) {
			if addr, moved := reply.IsMoved(); moved {
				h.moved(t, l, addr)
				continue
			}
		}
		if t.own || judge(err) != fatal {
			return 0, err
		}
		// Not allowed to watch this key: timers make up for it.
		events.watchRefused.to(h.log, logChannel(t.channel), logError(err))
		h.mu.Lock()
		s.have[t.channel] = true
		t.failure = err
		t.confirm()
		h.broadcast()
		h.mu.Unlock()
	}
	return stale, nil
}

// subscribe returns when the server has confirmed the first of the channels; it subscribes to all at once,
// or to none. They are one topic's, for all channels of one call have to share a slot.
func (s *subscriber) subscribe(t *topic, channels ...string) error {
	ctx, cancel := context.WithTimeout(s.link.hub.ctx, requestLimit)
	defer cancel()
	cmd := s.conn.B().Subscribe().Channel(channels...).Build()
	if t.own && s.link.hub.cluster {
		cmd = s.conn.B().Ssubscribe().Channel(channels...).Build()
	}
	if err := s.conn.Do(ctx, cmd).Error(); err != nil {
		return fault.Errorf("subscribe to %q: %w", channels[0], err)
	}
	return nil
}

// differences is what the connection lacks, own channels last, and how many it has too much.
func (s *subscriber) differences() (join []*topic, stale int) {
	h := s.link.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	var own []*topic
	stale = len(s.have)
	for name, t := range h.topics {
		if t.link != s.link {
			continue
		}
		has := s.have[name]
		if has {
			stale--
		}
		switch {
		case t.own && (!has || t.number == 0):
			own = append(own, t)
		case has:
			t.confirm()
		default:
			join = append(join, t)
		}
	}
	return append(join, own...), stale
}

// subscription takes what the server says of a channel. It runs on the connection's reader.
func (s *subscriber) subscription(p valkey.PubSubSubscription) {
	l, h := s.link, s.link.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ownOf(p.Channel) != nil {
		return // it comes and goes with the own one
	}
	t := h.topics[p.Channel]
	mine := t != nil && t.link == l
	switch p.Kind {
	case "subscribe", "ssubscribe":
		s.have[p.Channel] = true
		if !mine {
			l.poke()
			return
		}
		if l.since.IsZero() {
			l.since = time.Now()
		}
		t.confirm()
		if t.number != 0 {
			return // this connection replaces another
		}
		h.number++
		t.number, t.alone, t.failure, t.moves, t.since = h.number, t.channel+s.mark, nil, 0, time.Now()
		if t.told == 0 {
			t.since = l.since
		}
		h.broadcast()
	case "unsubscribe", "sunsubscribe":
		delete(s.have, p.Channel)
		if !mine || t.number == 0 {
			return
		}
		// Nobody asked for it: the slot has moved, and what else we hear of it comes no more.
		if !h.cluster {
			l.breakUp()
			return
		}
		for _, other := range h.topics {
			if other.link == l && other.slot == t.slot {
				h.leaveLink(other)
			}
		}
		h.seek()
	}
}

// message hands on what was said on a channel. It came over the subscription only if this connection is the one
// that stands: one that is about to replace it hears too, and whether the one before it still does is not known.
func (s *subscriber) message(m valkey.PubSubMessage) {
	l, h := s.link, s.link.hub
	h.mu.Lock()
	t := h.topics[m.Channel]
	if t == nil {
		t = h.ownOf(m.Channel)
	}
	if t == nil {
		h.mu.Unlock()
		return
	}
	var session int64
	if t.link == l && t.alone == t.channel+s.mark {
		session = t.number
	}
	hear := make([]func(string, int64), 0, 1)
	for w := range t.watches {
		hear = append(hear, w.hear)
	}
	h.mu.Unlock()
	for _, f := range hear {
		f(m.Message, session)
	}
}

// tell tells those who watch a channel that has a new subscription.
func (l *link) tell() {
	h := l.hub
	var calls []func()
	h.mu.Lock()
	for _, t := range h.topics {
		if t.link != l || t.number == 0 || t.told == t.number {
			continue
		}
		first := t.told == 0
		t.told = t.number
		for w := range t.watches {
			if again := w.again; again != nil {
				calls = append(calls, func() { again(first) })
			}
		}
	}
	h.mu.Unlock()
	for _, f := range calls {
		f()
	}
}

// down: there is no connection.
func (l *link) down(err error) {
	h := l.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	l.since, l.echoBy = time.Time{}, time.Time{}
	for _, t := range h.topics {
		if t.link == l {
			t.number, t.failure = 0, err
		}
	}
	h.broadcast()
	if err != nil && h.cluster {
		h.seek()
	}
}

func (l *link) due() time.Time {
	l.hub.mu.Lock()
	defer l.hub.mu.Unlock()
	return l.echoBy
}

func (l *link) poke() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// breakUp has the connection replaced.
func (l *link) breakUp() {
	select {
	case l.broken <- struct{}{}:
	default:
	}
}
