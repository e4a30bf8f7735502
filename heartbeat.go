package valkeysync

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// moment is when a request was sent, and over which subscription the Client heard then: 0 for none. A
// proof of life counts for a hold only over the subscription under which its lease was last confirmed:
// between two subscriptions a waiter may have taken the Client for dead and cut the lease.
type moment struct {
	at      time.Time
	session int64
}

// reading is the server's clock as the reply to a request told it: the request was run after it was sent.
type reading struct {
	sent   moment
	server int64 // ms; 0: there was no reply yet
}

// when is the time here at which it was that time on the server, or before; ok: by the clock that was read. A
// message that tells the time has come just now; over another subscription it may be of a node with another clock.
func (r reading) when(server, session int64, now time.Time) (at time.Time, ok bool) {
	at = r.sent.at
	if ok = r.server != 0 && r.sent.session == session; ok {
		at = at.Add(ms(server - r.server))
	}
	return earlier(at, now), ok
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// heartbeat shows three times a grace, for as long as anything is held under crash detection that this ear
// is for, that the server still counts the Client among the living: it publishes to the channel that only
// its present subscriber connection hears, beside the own one, and the reply says whether that is heard on
// the node that runs the scripts. (The own channel would say less: an older connection may be counted there
// too late. So would a PING answered on the connection: it may hang on a replica by now.) A message that comes
// meanwhile shows the same, for nothing: see heard.
type heartbeat struct {
	ear  *listener
	last atomic.Pointer[moment] // the last beat that was counted; nil before the first
	kick chan struct{}          // capacity 1: grace became shorter

	mu      sync.Mutex
	holds   int
	grace   time.Duration // the shortest of any hold so far
	running bool
}

// join counts a hold. Its acquisition is a proof of life itself, so the first beat may wait.
func (b *heartbeat) join(grace time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds++
	if b.grace == 0 || grace < b.grace {
		b.grace = grace
		select {
		case b.kick <- struct{}{}:
		default:
		}
	}
	if !b.running {
		b.running = b.ear.c.crew.run(b.run)
	}
}

func (b *heartbeat) part() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.holds--
}

// heard: at that moment the server counted the Client among the living.
func (b *heartbeat) heard(m moment) {
	for {
		last := b.last.Load()
		if last != nil && (last.session > m.session || last.session == m.session && !m.at.After(last.at)) || b.last.CompareAndSwap(last, &m) {
			return
		}
	}
}

// run beats until nothing is held at the time of a beat.
func (b *heartbeat) run() {
	since := time.Now() // the last proof of life, or the last try
	for {
		b.mu.Lock()
		every := b.grace / 3
		b.mu.Unlock()
		t := time.NewTimer(time.Until(since.Add(every)))
		select {
		case <-t.C:
		case <-b.kick:
			t.Stop()
			continue
		case <-b.ear.c.empty:
			t.Stop()
			return
		}
		b.mu.Lock()
		if b.holds == 0 {
			b.running = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		if last := b.last.Load(); last != nil && last.session == b.ear.watch.session() && last.at.After(since) {
			since = last.at
			continue
		}
		since = time.Now()
		// A renewal is a proof of life too, and undoes what a waiter may have cut meanwhile. It does not wait
		// for a beat that gets no answer until the grace is over.
		late := time.AfterFunc(every, b.ear.verifyHolds)
		counted := b.beat(2 * every)
		if late.Stop() && !counted {
			b.ear.verifyHolds()
		}
	}
}

// beat reports whether it was counted.
func (b *heartbeat) beat(limit time.Duration) bool {
	e := b.ear
	session, channel := e.watch.alone()
	if session == 0 {
		return false
	}
	m := moment{time.Now(), session}
	ctx, cancel := context.WithTimeout(e.c.ctx, limit)
	defer cancel()
	n, err := e.c.server.Beat(ctx, channel)
	if err != nil {
		return false
	}
	if now, heard := e.watch.alone(); now != session || heard != channel {
		return false // the connection was replaced meanwhile
	}
	if n == 0 {
		e.watch.rebuild()
		return false
	}
	b.heard(m)
	e.watch.expectEcho(m.at)
	return true
}
