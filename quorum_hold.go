package valkeysync

import "time"

// What a Lease asks of a hold on a majority: see keeper.

func (s *stake) key() string  { return s.keys.Lock }
func (s *stake) run(f func()) { s.q.crew.run(f) }

func (s *stake) deadline() time.Time {
	if until := s.certain.Load(); until != nil {
		return *until
	}
	return time.Time{}
}

func (s *stake) valid() bool { return !s.over.Load() && time.Now().Before(s.deadline()) }

func (s *stake) end() {
	s.lock()
	defer s.unlock()
	s.endLocked()
}

func (s *stake) endLocked() {
	if s.over.Load() || s.lease == nil || time.Now().Before(s.deadline()) {
		return
	}
	cause := CauseExpired
	switch {
	case s.lease.stale():
		cause = CauseMaxHold
	case s.count(func(p *share) bool { return p.err != nil || p.open > 0 }) > 0:
		cause = CauseUnreachable
	}
	s.loseLocked(cause)
}

// loseLocked ends the hold because its lease is lost, and has the servers keep nothing of it.
func (s *stake) loseLocked(cause Cause) {
	if s.over.Load() {
		return
	}
	l, lost := s.lease, &LostError{Key: s.keys.Lock, Cause: cause}
	if cause != CauseClosed && cause != CauseMaxHold {
		lost.Err = s.errLocked()
	}
	s.quitLocked()
	l.lose(lost)
	s.later(func() {
		l.onLost(lost)
		if cause != CauseClosed {
			events.leaseLost.to(s.q.log(), logKey(lost.Key), logCause(cause), logError(lost.Err))
		}
	})
}

// causeLocked: somebody else has the key on most of the servers that said no, or nobody.
func (s *stake) causeLocked() Cause {
	taken, deleted := 0, 0
	for i := range s.parts {
		p := &s.parts[i]
		switch {
		case p.no && p.reply.Holder != "", p.dropped && p.left.Holder != "":
			taken++
		case p.no, p.dropped && !p.freed:
			deleted++
		}
	}
	if deleted > taken {
		return CauseDeleted
	}
	return CauseTaken
}

// hold makes the stake, which a majority has, a hold; nil: the Quorum was closed.
func (s *stake) hold() *Lease {
	s.lock()
	defer s.unlock()
	if s.over.Load() {
		return nil
	}
	s.lease = &Lease{on: s, token: token(s.number, 0), opts: s.opts, began: time.Now(), by: byReply}
	s.lease.held.Store(1)
	s.q.crew.run(s.tend)
	return s.lease
}

// tend renews the hold on all servers at a third of the lease, and looks at once when something has happened to
// a key, until it is over.
func (s *stake) tend() {
	began := time.Now()
	watchAt := began.Add(watchAfter)
	// At first after a request's time limit: a server that was somebody else's for a moment, or answered late, is
	// given its part then, so that the loss of another does not cost the majority.
	due, fresh := began.Add(s.limit), true
	pause, once := minPause, false
	var watches []*watch
	defer func() {
		for _, w := range watches {
			w.stop()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var started time.Time // the round under way; zero: none is
	for {
		s.lock()
		s.endLocked()
		if s.over.Load() {
			s.unlock()
			return
		}
		now := time.Now()
		if watches == nil && !now.Before(watchAt) {
			for i, m := range s.q.members {
				hear := func(name string, _ int64) { s.event(i, name) }
				watches = append(watches, m.c.hub.join(m.c.keyspace(s.keys.Lock), false, hear, s.gap))
			}
		}
		if !started.IsZero() && s.pending == 0 { // all have answered, or will not
			if s.count(func(p *share) bool { return p.kept == s.round }) >= s.q.need {
				due, pause = started.Add(s.opts.lease/3), minPause
				if once {
					due, once = now.Add(s.limit), false
				}
			} else {
				due = now.Add(pause)
				pause = min(2*pause, max(minPause, s.opts.lease/10))
			}
			started = time.Time{}
		}
		if fresh && !now.Before(due) {
			fresh = false
			if s.count(func(p *share) bool { return p.yes }) == len(s.parts) {
				due = began.Add(s.opts.lease / 3)
			}
		}
		stale := s.lease.stale()
		if started.IsZero() && !stale && !now.Before(due) {
			started = now
			s.renewLocked(true)
		}
		next := s.deadline()
		if started.IsZero() && !stale {
			next = earlier(next, due)
		}
		if watches == nil {
			next = earlier(next, watchAt)
		}
		changed := s.changed
		s.unlock()
		timer.Reset(time.Until(next))
		select {
		case <-s.ended:
			return
		case <-changed:
		case <-timer.C:
		case <-s.kick:
			s.lock()
			started = time.Now()
			once = s.mend         // and once more, for the first request after a gap finds a broken connection
			s.renewLocked(s.mend) // beside one that is under way, which may wait for a server that does not answer
			s.mend = false
			s.unlock()
		}
	}
}

// event is something that happened to the key at a server. Renewals make events too, and what others do to it
// where it is not ours is no news.
func (s *stake) event(i int, name string) {
	s.lock()
	ours := s.parts[i].yes
	s.unlock()
	if name != "expire" && ours {
		s.stir()
	}
}

// gap: a server is listened to anew. It may have come back empty.
func (s *stake) gap(first bool) {
	if first {
		return
	}
	s.lock()
	s.mend = true
	s.unlock()
	s.stir()
}

func (s *stake) stir() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// renewLocked starts a round of renewals. repair: where the key is gone, and a majority has it, it is set again. That
// is for servers that have lost their data, which says no event, and not for what an event has told: an operator who
// deletes the key from one server after the other means it. A hold that WithMaxHold lets run out is renewed by no more than what it
// has left: that it is taken or deleted must be told all the same.
func (s *stake) renewLocked(repair bool) {
	s.round++
	s.pending = 0
	round, lease := s.round, s.opts.lease
	if s.lease.stale() {
		lease, repair = max(time.Until(s.deadline())+drift(lease), time.Millisecond), false
	}
	s.pending = s.eachLocked(nil, func(i int) { s.renewAt(i, round, lease, repair, false) })
}

// renewAt renews at one server. What the round has found then is judged: as soon as more servers have said that
// the key is not ours than a majority can do without, it is lost; as soon as a majority has confirmed it, those
// that have lost it (that came back empty, say) are given it again.
func (s *stake) renewAt(i int, round int64, lease time.Duration, repair, create bool) {
	held := s.keepAt(i, lease, create)
	defer s.unlock()
	if held {
		s.parts[i].kept = max(s.parts[i].kept, round)
	}
	if round == s.round {
		s.pending--
	}
	if s.over.Load() {
		return
	}
	if s.count(func(p *share) bool { return p.no }) > len(s.parts)-s.q.need {
		s.loseLocked(s.causeLocked())
		return
	}
	if round != s.round || !repair || s.count(func(p *share) bool { return p.kept == round }) < s.q.need {
		return
	}
	again := func(p *share) bool {
		if p.yes || p.reply.Holder != "" || !p.no || p.given == round {
			return false
		}
		p.given = round
		return true
	}
	s.pending += s.eachLocked(again, func(i int) { s.renewAt(i, round, lease, true, true) })
}
