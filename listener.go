package valkeysync

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// earLinger is how long an ear in a cluster listens on after its last use, so that who locks again and
// again does not subscribe each time.
const earLinger = 30 * time.Second

// listener is a gate's ear: it hears what the scripts say to the Client on its own channel. With one server
// all gates share one ear; in a cluster those that share a hash tag do, for the channel lies in the slot of
// the keys, on the node that runs their scripts.
type listener struct {
	c      *Client
	tag    string // "": the one ear of a Client of one server
	watch  *watch
	beat   heartbeat
	offset atomic.Int64 // server ms - local ms, by the last reply about its keys; 0 before the first

	// Guarded by the Client's mutex.
	users int         // gates that use it
	idle  *time.Timer // set: nobody uses it, and it ends
}

// earFor finds the ear for the keys, or makes it. The Client's mutex is held.
func (c *Client) earFor(keys *protocol.Keys) *listener {
	tag := c.server.Tag(keys)
	e := c.ears[tag]
	if e == nil {
		e = &listener{c: c, tag: tag}
		e.beat.ear, e.beat.kick = e, make(chan struct{}, 1)
		e.watch = c.hub.watchOwn(c.server.Channel(c.id, tag), e.deliver, e.again)
		c.ears[tag] = e
	}
	if e.idle != nil {
		e.idle.Stop()
		e.idle = nil
	}
	return e
}

// rest has an ear end that nobody uses any more. The Client's mutex is held.
func (e *listener) rest() {
	if e.tag == "" || e.users > 0 {
		return
	}
	c := e.c
	var t *time.Timer
	t = time.AfterFunc(earLinger, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.idle == t {
			e.end()
		}
	})
	e.idle = t
}

// end: nobody uses it. The Client's mutex is held.
func (e *listener) end() {
	if e.idle != nil {
		e.idle.Stop()
	}
	e.watch.stop()
	delete(e.c.ears, e.tag)
}

// now is the moment of a request that is about to be sent.
func (e *listener) now() moment { return moment{time.Now(), e.watch.session()} }

// heard takes note of the server's time, which a reply has just told. The nodes of a cluster have a clock each.
func (e *listener) heard(now int64) {
	if now != 0 { // else the script needed no clock
		e.heardAt(now, time.Now())
	}
}

// heardAt is heard of a reply that came at that time and told one.
func (e *listener) heardAt(now int64, at time.Time) {
	offset := now - at.Sub(e.c.start).Milliseconds()
	e.offset.Store(offset)
	e.c.offset.Store(offset)
}

// latest is the server time after which a request sent then must not be run any more. Before the first reply
// about these keys it goes by another node's clock, which may be wrong by any amount: too early, and the
// script says what time it is; too late, and a farewell waits until it is past. So there always is one.
func (e *listener) latest(sent time.Time) int64 {
	offset := e.offset.Load()
	if offset == 0 {
		offset = e.c.offset.Load()
	}
	if offset == 0 {
		return 0 // New's first request
	}
	return offset + sent.Sub(e.c.start).Milliseconds() + requestLimit.Milliseconds()
}

// deliver takes what a script said to us. It runs on the subscriber connection's reader.
func (e *listener) deliver(payload string, session int64) {
	c := e.c
	m, err := protocol.ParseMessage(payload)
	if err != nil {
		events.unknownMessage.to(c.opts.client.logger, logError(err))
		return
	}
	if m.Verb == protocol.Echo {
		e.watch.echo()
		if m.Attempt == probeAttempt {
			select {
			case c.probed <- struct{}{}:
			default:
			}
		}
		return
	}
	c.mu.Lock()
	g := c.gates[gateKey{m.Kind, m.Key}]
	if g != nil && g.users > 0 {
		g.users++
	} else {
		g = nil
	}
	c.mu.Unlock()
	if g != nil {
		g.message(m, session)
		c.leave(g)
		return
	}
	c.disown(m)
}

// again: the subscription is new, and messages and events may have been missed before it.
func (e *listener) again(first bool) {
	e.each(func(g *gate) { g.gap(first) })
}

// verifyHolds has every hold renewed now.
func (e *listener) verifyHolds() { e.each((*gate).verify) }

// each calls f for every gate that uses the ear.
func (e *listener) each(f func(*gate)) { e.c.each(e, f) }

// judges is for how long we have been heard, for a script that may cut the lease of a holder that died. Negative: we
// are not, or have crash detection off, and it cuts none.
func (e *listener) judges(grace time.Duration) time.Duration {
	if grace == 0 {
		return -1
	}
	return e.watch.upFor()
}

// doubt: an attempt was dropped although we hear. It is found out whether that is on the node where the
// scripts count: on a primary that was demoted, subscribers hear on and are not counted any more.
func (e *listener) doubt() {
	if e.watch.session() != 0 {
		e.c.crew.run(func() { e.beat.beat(requestLimit) })
	}
}

// ready waits until the scripts can reach us, the server refuses that, or ctx ends.
func (e *listener) ready(ctx context.Context) error { return e.watch.ready(ctx) }
