package valkeysync

import (
	"context"
	"errors"
	"time"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// quitLocked ends the stake, and gives it back at every server that may have something of it: also at those that
// were asked and have not answered, now and once more after the last moment at which such a request may be run.
func (s *stake) quitLocked() {
	if s.over.Swap(true) {
		return
	}
	close(s.ended)
	s.q.forget(s)
	s.met = false
	for i := range s.parts {
		if p := &s.parts[i]; p.number == 0 && !p.marked && p.open == 0 && !p.unsure {
			continue // it never had it
		}
		if s.q.crew.enter() {
			s.ending++
			s.later(func() { s.q.crew.start(func() { s.dropAt(i) }) })
		}
	}
	s.tell()
}

func (s *stake) quit() {
	s.lock()
	defer s.unlock()
	s.quitLocked()
}

// dropAt gives the key back at one server, until it is certain that nothing of the stake remains there: by an
// answer that came after the last request, or because the lease of all that was asked for is over.
func (s *stake) dropAt(i int) {
	m, p := s.q.members[i], &s.parts[i]
	pause := minPause
	lost := false // the answer to one of these was: then "not ours" is our own doing
	for {
		s.lock()
		var quiet <-chan struct{}
		if p.open > 0 {
			if p.idle == nil {
				p.idle = make(chan struct{})
			}
			quiet = p.idle
		}
		number, over := s.number, p.sent.Add(s.limit+s.opts.lease+time.Second)
		s.unlock()
		r, err := m.run(s.q.ctx, time.Now().Add(s.limit), 0, func(ctx context.Context, server *protocol.Server, _ int64) (protocol.Reply, error) {
			return server.QuorumDrop(ctx, s.keys, s.value, number)
		})
		s.lock()
		wait := pause
		var done bool
		s.tell()
		if p.err = err; err == nil {
			p.dropped, p.freed = true, p.freed || lost || r.Outcome == protocol.Released
			p.left = r
			s.meetLocked(r)
			wait = time.Duration(p.latest+1-r.Now) * time.Millisecond
			done = quiet == nil && (!p.unsure || wait <= 0)
		} else {
			lost = lost || !isReply(err)
			pause = min(2*pause, maxPause)
			done = judge(err) == fatal || time.Now().After(over)
		}
		if done {
			s.leftLocked()
		}
		s.unlock()
		if done {
			return
		}
		var slept bool
		if err == nil && quiet != nil {
			select {
			case <-quiet:
				slept = true
			case <-s.q.ctx.Done():
			}
		} else {
			slept = sleep(s.q.ctx, wait)
		}
		if !slept {
			s.lock()
			s.leftLocked()
			s.unlock()
			return
		}
	}
}

// leftLocked: nothing of it remains at one more server. Where all have answered that nobody waits, the next to
// ask need not go through the turnstile.
func (s *stake) leftLocked() {
	s.ending--
	if s.ending == 0 && s.lease != nil && !s.met {
		s.of.contended.Store(false)
	}
	s.tell()
}

// meetLocked takes note of whether somebody is at the turnstile of a server.
func (s *stake) meetLocked(r protocol.Reply) {
	if r.Waiting > 0 {
		s.met = true
		s.of.contended.Store(true)
	}
}

// giveBack ends the acquisition. It blocks until its outcome is known; as long as release.run does otherwise, and then
// goes on in the background.
func (s *stake) giveBack(ctx context.Context, l *Lease) (decided bool, err error) {
	s.lock()
	s.endLocked()
	switch {
	case l.lost != nil:
		defer s.unlock()
		return true, l.lost
	case l.ended: // called again
	case l.exit():
		defer s.unlock()
		return true, nil
	default:
		defer func() { l.trace.released(err) }()
		l.finish()
		s.quitLocked()
	}
	s.unlock()
	if ctx.Done() == nil || ctx.Err() != nil { // as where it is the context that the lock gave
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), requestLimit)
		defer cancel()
	}
	done := ctx.Done()
	s.lock()
	defer s.unlock()
	known := func() bool {
		decided, err = s.outcomeLocked()
		return decided
	}
	if !s.await(done, known) {
		reasons := s.errLocked()
		s.unlock()
		end := contextEnd(ctx) // it may be a lock's, which takes a mutex
		s.lock()
		return false, fault.Errorf("unlock %q not confirmed yet; it goes on in the background, and the lease is not renewed any more: %w", s.keys.Lock, errors.Join(end, reasons))
	}
	var lost *LostError
	if errors.As(err, &lost) {
		l.lost = lost
		s.later(func() { l.onLost(lost) })
	}
	return true, err
}

// outcomeLocked is what became of giving back, once that is known.
func (s *stake) outcomeLocked() (known bool, err error) {
	free := s.count(func(p *share) bool { return p.freed })
	not := s.count(func(p *share) bool { return !p.freed && (p.dropped || p.no) })
	switch {
	case free >= s.q.need:
		return true, nil
	case not > len(s.parts)-s.q.need:
		return true, &LostError{Key: s.keys.Lock, Cause: s.causeLocked()}
	case s.ending > 0:
		return false, nil
	}
	return true, s.errLocked() // what is left of it lapses with its lease
}

func (s *stake) decided(*Lease) bool {
	s.lock()
	defer s.unlock()
	known, _ := s.outcomeLocked()
	return known
}
