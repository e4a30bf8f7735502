package valkeysync

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// stake is one value of ours on the servers of a Quorum, from the first request for it until nothing of it
// remains: an attempt to get the lock, and the hold that comes of it. Every attempt has a value of its own, so
// that nothing late of one can touch another.
//
// Each server promises its part for itself: to let nobody else have the key for a lease from the sending of the
// request that it has confirmed. The hold is certain for as long as a majority of the servers is so bound. Two
// majorities share a server, and no server is bound to two.
type stake struct {
	q     *Quorum
	of    *contest
	keys  *protocol.Keys
	opts  *options
	value string
	limit time.Duration // of one request

	certain atomic.Pointer[time.Time] // until then; nil: never was
	over    atomic.Bool               // given up, given back or lost
	kick    chan struct{}             // capacity 1: something happened to a key

	mu      sync.Mutex
	after   []func()
	changed chan struct{} // closed, and replaced, with every answer
	parts   []share       // by server
	number  int64         // of the token; 0 before a majority had the key
	ended   chan struct{} // closed when it is over
	ending  int           // servers at which it is being given back
	met     bool          // one of them said that somebody waits
	lease   *Lease        // once it is a hold
	mend    bool          // a server may have come back empty
	round   int64         // the last renewal of all parts
	pending int           // its requests under way
}

// share is how a stake stands at one server.
type share struct {
	yes    bool           // it has the key, by the last answer
	no     bool           // it has not
	until  time.Time      // certain there until then
	marked bool           // the fence is at the token's number, and was brought there while the key was ours
	kept   int64          // the last round that confirmed it
	given  int64          // the last round that set the key again
	number int64          // that it gave
	reply  protocol.Reply // the last refusal
	err    error          // of the last request; nil when it was answered

	answered time.Time      // the sending of the last request that was answered
	open     int            // requests under way, or about to be; those that give back left out
	idle     chan struct{}  // closed when none is, if anybody asked
	sent     time.Time      // the sending of the last of them
	unsure   bool           // one that creates was never answered: it may still be run
	latest   int64          // until this server time
	dropped  bool           // it has answered that it was to give the key back
	freed    bool           // it did
	left     protocol.Reply // its answer
}

// quorumLimit is how long one request to one server may take: little against the lease, so that a server that
// does not answer costs little of it, and a second at most.
func quorumLimit(lease time.Duration) time.Duration {
	return max(min(lease/8, requestLimit/2), minPause)
}

func newStake(c *contest, keys *protocol.Keys, opts *options) *stake {
	q := c.q
	return &stake{
		q: q, of: c, keys: keys, opts: opts, value: protocol.QuorumValue(rand.Text(), q.members[0].c.opts.client.name),
		limit: quorumLimit(opts.lease), kick: make(chan struct{}, 1), changed: make(chan struct{}), ended: make(chan struct{}),
		parts: make([]share, len(q.members)),
	}
}

func (s *stake) lock() { s.mu.Lock() }

func (s *stake) unlock() {
	after := s.after
	s.after = nil
	s.mu.Unlock()
	for _, f := range after {
		f()
	}
}

func (s *stake) later(f func()) { s.after = append(s.after, f) }

// tell wakes whoever awaits something. The mutex is held, here and below where a name ends in Locked.
func (s *stake) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// await waits, with the mutex held, until what it waits for is so. It reports false when done was closed first.
func (s *stake) await(done <-chan struct{}, so func() bool) bool {
	for !so() {
		changed := s.changed
		s.unlock()
		select {
		case <-changed:
		case <-done:
			s.lock()
			return so()
		}
		s.lock()
	}
	return true
}

// count says of how many parts something is so.
func (s *stake) count(so func(p *share) bool) (n int) {
	for i := range s.parts {
		if so(&s.parts[i]) {
			n++
		}
	}
	return n
}

// eachLocked does f for every server, each on a goroutine of its own, where want (nil: always) says so. It
// returns how many that are.
func (s *stake) eachLocked(want func(p *share) bool, f func(i int)) (n int) {
	for i := range s.parts {
		if want != nil && !want(&s.parts[i]) {
			continue
		}
		if !s.q.crew.enter() {
			s.parts[i].err = ErrClosed
			continue
		}
		n++
		p := &s.parts[i]
		p.open++
		s.later(func() {
			s.q.crew.start(func() {
				f(i)
				s.lock()
				defer s.unlock()
				if p.open--; p.open == 0 && p.idle != nil {
					close(p.idle)
					p.idle = nil
				}
				s.tell()
			})
		})
	}
	return n
}

// call is one request to one server.
type call func(ctx context.Context, server *protocol.Server, latest int64) (protocol.Reply, error)

// ask sends one request to one server and takes note of how it ended; it returns with the mutex held. One that
// creates names a latest server time, after which it is not run any more. ok: it was answered, and nothing that
// was sent later was before it.
func (s *stake) ask(i int, creates bool, request call) (r protocol.Reply, sent time.Time, ok bool) {
	m, p := s.q.members[i], &s.parts[i]
	for again := true; ; again = false {
		s.lock()
		if s.over.Load() {
			return r, sent, false
		}
		latest := int64(0)
		if creates {
			latest = m.latest(s.limit)
			p.latest = max(p.latest, latest)
		}
		sent = time.Now()
		p.sent = sent
		s.unlock()
		r, err := m.run(s.q.ctx, sent.Add(s.limit), latest, request)
		s.lock()
		if err == nil && r.Outcome == protocol.Late {
			if again {
				s.unlock()
				continue // our idea of the server's time is right now
			}
			err = errLate
		}
		p.err = err
		if ok = err == nil && !sent.Before(p.answered); ok {
			p.answered = sent
		}
		p.unsure = p.unsure || creates && !ok && !isReply(err) && !unsent(err)
		s.meetLocked(r)
		return r, sent, ok
	}
}

// unsent: there was no connection to send the request on.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// bindLocked: the server is bound to us for that long from the sending of its request.
func (s *stake) bindLocked(i int, sent time.Time, lease time.Duration) {
	p := &s.parts[i]
	p.yes, p.no = true, false
	p.until = sent.Add(lease - drift(s.opts.lease)) // also where that is less than before
	s.reckonLocked()
}

// refuseLocked: the key there is not ours.
func (s *stake) refuseLocked(i int, r protocol.Reply) {
	p := &s.parts[i]
	p.yes, p.no = false, true
	p.until, p.reply = time.Time{}, r
	s.reckonLocked()
}

// reckonLocked finds out anew until when a majority of the servers is bound.
func (s *stake) reckonLocked() {
	ends := make([]time.Time, len(s.parts))
	for i := range s.parts {
		ends[i] = s.parts[i].until
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	s.certain.Store(&ends[s.q.need-1])
}

// errLocked is what each server says that does not have it.
func (s *stake) errLocked() *QuorumError {
	e := &QuorumError{Key: s.keys.Lock, Servers: len(s.parts), Needed: s.q.need}
	for i := range s.parts {
		p := &s.parts[i]
		var err error
		switch {
		case p.yes && p.err == nil:
			e.Have++
			continue
		case p.err != nil:
			err = p.err
		case p.no:
			err = errRefused(p.reply)
		case p.open > 0:
			err = errNoAnswer
		default:
			err = errNotAsked
		}
		e.Errs = append(e.Errs, &ServerError{Server: i, Name: s.q.members[i].name, Err: err})
	}
	return e
}
