package model

import "slices"

// The server's side: one function a script, each with the steps of scripts/*.lua in their order. What the
// model leaves out: the marker of shared holds (it stands while shared holds live), kinds that differ,
// memory that is out, rights that are missing, and for how long a caller of check has been heard itself
// (every caller may cut, which is the worse case for safety).

func (m *Model) run(s *State, i int8) {
	r := s.takeRequest(i)
	m.lapse(s)
	switch r.kind {
	case acquire, tryAcquire:
		m.runAcquire(s, r)
	case release:
		m.runRelease(s, r)
	case leave:
		m.runLeave(s, r)
	case check:
		m.runCheck(s, r)
	case renew:
		m.runRenew(s, r)
	case beat:
		n := s.listeners(r.client)
		if c := &s.clients[r.client]; m.keeps(OwnChannel) && (r.session != c.sessions || !c.counted || c.replica) {
			n = 0
		}
		m.answer(s, r, reply{result: counted, number: n})
	}
}

// lapse: holds whose lease has ended go first in every script.
func (m *Model) lapse(s *State) {
	for i := s.nHolds - 1; i >= 0; i-- {
		if s.now >= s.holds[i].end {
			s.dropHold(i)
		}
	}
	if s.foreign && s.foreignEnd != never && s.now >= s.foreignEnd {
		s.foreign, s.foreignEnd = false, 0
	}
}

func (m *Model) writer(c int8) bool { return m.Weight[c] == m.Size }

func (m *Model) fits(s *State, c int8) bool {
	used := m.Weight[c]
	for _, h := range s.holds[:s.nHolds] {
		used += m.Weight[h.client]
	}
	return !s.foreign && used <= m.Size
}

// number is the next one. The clock's share in it matters only where data is lost.
func (s *State) number() int8 {
	s.fence++
	return s.fence
}

func (m *Model) hold(s *State, p place, lease int8) int8 {
	n := p.number
	if n == 0 {
		n = s.number()
	}
	s.addHold(hold{p.client, p.attempt, n, s.now + lease})
	return n
}

// listeners is what PUBSUB NUMSUB, and PUBLISH's reply, say of a client's channel.
func (s *State) listeners(c int8) int8 {
	n := s.clients[c].old
	if s.clients[c].counted && !s.clients[c].replica {
		n++
	}
	return n
}

// tell publishes on a client's channel. An old, half-open connection swallows what it gets.
func (m *Model) tell(s *State, c int8, x message) {
	if !m.Timed && x.verb != grantMsg && !m.Told {
		return // tells of nothing that the client may not do at any time
	}
	if to := &s.clients[c]; !to.dead && to.counted && to.intact && to.hears != 0 {
		to.hear(x)
	}
}

func (m *Model) firstLease() int8 {
	if m.keeps(ShortFirst) {
		return m.First
	}
	return m.Lease
}

// serve takes the i-th out of the queue and gives it the lock, unless it is dead.
func (m *Model) serve(s *State, i int8, caller place) (told message, to int8) {
	p := s.queue[i]
	isCaller := p.client == caller.client && p.attempt == caller.attempt
	if isCaller {
		s.dropPlace(i)
		m.hold(s, p, m.Lease)
		return message{}, 0
	}
	x := message{verb: grantMsg, attempt: p.attempt, at: s.now, lease: m.firstLease()}
	if !m.keeps(CountFirst) {
		x.number = s.fence + 1
		m.tell(s, p.client, x)
	}
	s.dropPlace(i)
	if s.listeners(p.client) == 0 {
		return message{}, 0
	}
	x.number = m.hold(s, p, m.firstLease())
	if !m.keeps(CountFirst) {
		return message{}, 0
	}
	return x, p.client
}

// grant ends every script that may have freed the lock. moved: the front of the queue has changed already.
// readers: a writer left, so all readers that wait go in together.
func (m *Model) grant(s *State, caller place, moved, readers bool) {
	var served [maxQueue]message
	var to [maxQueue]int8
	n, granted := 0, false
	one := func(i int8) {
		before := s.nHolds
		x, c := m.serve(s, i, caller)
		if x.verb != 0 {
			served[n], to[n] = x, c
			n++
		}
		granted = granted || s.nHolds > before
		moved = true
	}
	if readers && m.Kind == RWMutex {
		for i := int8(0); i < s.nQueue; {
			if c := s.queue[i].client; !m.writer(c) && m.fits(s, c) {
				one(i)
			} else {
				i++
			}
		}
	}
	for s.nQueue > 0 && m.fits(s, s.queue[0].client) {
		one(0)
	}
	for i := range n {
		m.tell(s, to[i], served[i])
	}
	if !m.keeps(TellFront) {
		moved = granted
	}
	if s.nQueue > 0 && moved {
		if p := s.queue[0]; p.client != caller.client || p.attempt != caller.attempt {
			m.tell(s, p.client, message{verb: frontMsg, attempt: p.attempt})
		}
	}
}

// tellHolders: whoever holds learns that someone waits.
func (m *Model) tellHolders(s *State) {
	if !m.Sticky && !m.Told {
		return // nobody cares
	}
	for _, h := range s.holds[:s.nHolds] {
		x := message{verb: waitsMsg, attempt: h.attempt}
		if m.Told && (!m.keeps(ToldCounted) || s.listeners(h.client) > 0) {
			x.at, x.counted = s.now, true
		}
		if c := &s.clients[h.client]; c.nMessages < maxMessages && !slices.Contains(c.messages[:c.nMessages], x) { // another copy says nothing new
			m.tell(s, h.client, x)
		}
	}
}

// state answers with what a script says of an attempt.
func (m *Model) state(s *State, r request, attempt int8) {
	m.answer(s, r, m.stateOf(s, r, attempt))
}

func (m *Model) stateOf(s *State, r request, attempt int8) reply {
	if i := s.holdOf(r.client, attempt); i >= 0 {
		return m.heldReply(s, r, i)
	}
	i := s.placeOf(r.client, attempt)
	if i < 0 {
		return reply{result: gone}
	}
	p := reply{result: queued, pair: r.sent - s.now, at: s.now}
	if m.keeps(SamePair) {
		p.at = 0
	}
	if m.Timed {
		p.place, p.remaining = i+1, m.remaining(s)
		p.deadFront = r.kind == acquire && i > 0 && s.listeners(s.queue[0].client) == 0
	}
	return p
}

func (m *Model) heldReply(s *State, r request, i int8) reply {
	h := s.holds[i]
	p := reply{result: held, number: h.number, until: r.sent + h.end - s.now, waiting: s.nQueue > 0}
	if !m.keeps(Remaining) {
		p.until = r.sent + m.Lease
	}
	return p
}

// remaining is how long the lock stays as it is, at most.
func (m *Model) remaining(s *State) int8 {
	if s.foreign {
		if s.foreignEnd == never {
			return never
		}
		return s.foreignEnd - s.now
	}
	var left int8
	for i, h := range s.holds[:s.nHolds] {
		// A permit may come with the first shared hold that ends, a writer needs the last to end.
		if d := h.end - s.now; i == 0 || (m.Kind == Semaphore) == (d < left) {
			left = d
		}
	}
	return left
}

func (m *Model) isLate(s *State, r request) bool {
	return m.Latest > 0 && m.keeps(LatestTime) && s.now > r.sent+m.Latest
}

func (m *Model) newPlace(s *State, c, attempt int8) place {
	p := place{client: c, attempt: attempt}
	if !m.keeps(NumberAtGrant) {
		p.number = s.number()
	}
	return p
}

func (m *Model) runAcquire(s *State, r request) {
	if m.isLate(s, r) {
		m.answer(s, r, reply{result: late})
		return
	}
	me := place{client: r.client, attempt: r.attempt}
	if m.keeps(SameAnswer) && (s.placeOf(r.client, r.attempt) >= 0 || s.holdOf(r.client, r.attempt) >= 0) {
		m.grant(s, me, false, false)
		m.state(s, r, r.attempt)
		return
	}
	m.grant(s, place{client: -1}, false, false)
	switch {
	case s.nQueue == 0 && m.fits(s, r.client):
		m.hold(s, me, m.Lease)
	case r.kind == tryAcquire:
		m.answer(s, r, reply{result: busy})
		return
	default:
		s.addPlace(m.newPlace(s, r.client, r.attempt))
		m.tellHolders(s)
	}
	m.state(s, r, r.attempt)
}

// owned is the hold that a request proves to own; -1: it is not its owner's any more.
func (s *State) owned(r request) int8 {
	for i, h := range s.holds[:s.nHolds] {
		if h.client == r.client && h.attempt == r.attempt && h.number == r.number {
			return int8(i)
		}
	}
	return -1
}

func (m *Model) runRelease(s *State, r request) {
	next := place{client: -1}
	if r.next != 0 {
		next = place{client: r.client, attempt: r.next}
	}
	tooLate := r.next != 0 && m.isLate(s, r)
	waiting := s.nQueue > 0
	i := s.owned(r)
	if i < 0 {
		m.grant(s, next, false, false)
		if r.next != 0 {
			if p := m.stateOf(s, r, r.next); p.result != gone {
				m.answer(s, r, p)
				return
			}
		}
		m.answer(s, r, reply{result: lost})
		return
	}
	s.dropHold(i)
	readers := m.writer(r.client)
	if r.next == 0 || tooLate {
		m.grant(s, place{client: -1}, false, readers)
		m.answer(s, r, reply{result: released})
		return
	}
	if m.keeps(SameAnswer) && s.holdOf(r.client, r.next) >= 0 {
		m.grant(s, place{client: -1}, false, readers)
		m.state(s, r, r.next)
		return
	}
	if j := s.placeOf(r.client, r.next); j >= 0 {
		s.dropPlace(j)
	}
	if !waiting && m.fits(s, r.client) {
		m.hold(s, next, m.Lease)
	} else {
		s.addPlace(m.newPlace(s, r.client, r.next))
		m.grant(s, next, false, readers)
	}
	m.state(s, r, r.next)
}

func (m *Model) runLeave(s *State, r request) {
	moved, writer := false, false
	if i := s.placeOf(r.client, r.attempt); i >= 0 {
		moved = i == 0
		s.dropPlace(i)
	}
	if i := s.holdOf(r.client, r.attempt); i >= 0 {
		writer = m.writer(r.client)
		s.dropHold(i)
	}
	m.grant(s, place{client: -1}, moved, writer)
	m.answer(s, r, reply{result: leftIt})
}

// graceOf is the grace in a client's entries; 0: crash detection is off.
func (m *Model) graceOf(c int8) int8 {
	if m.Mixed && c == 0 {
		return 0
	}
	return m.Grace
}

func (m *Model) runCheck(s *State, r request) {
	if m.keeps(Cut) && m.graceOf(r.client) > 0 {
		for i := range s.nHolds {
			h := &s.holds[i]
			grace := m.graceOf(h.client)
			if !m.keeps(OwnGrace) {
				grace = m.Grace
			}
			if grace > 0 && h.end-s.now > grace && s.listeners(h.client) == 0 {
				h.end = s.now + grace
			}
		}
	}
	me := place{client: r.client, attempt: r.attempt}
	moved := false
	for m.keeps(Prune) && s.nQueue > 0 {
		p := s.queue[0]
		if p.client == me.client && p.attempt == me.attempt || m.fits(s, p.client) || s.listeners(p.client) > 0 {
			break
		}
		s.dropPlace(0)
		moved = true
	}
	m.grant(s, me, moved, false)
	p := m.stateOf(s, r, r.attempt)
	if p.result == queued && m.keeps(TellAgain) {
		m.tellHolders(s)
	}
	m.answer(s, r, p)
}

func (m *Model) runRenew(s *State, r request) {
	i := s.owned(r)
	if i < 0 {
		m.answer(s, r, reply{result: lost})
		return
	}
	s.holds[i].end = s.now + m.Lease
	p := m.heldReply(s, r, i)
	p.waiting = false // it does not look at the queue
	m.answer(s, r, p)
}

// answer puts a reply on its way to a client that still waits for it.
func (m *Model) answer(s *State, r request, p reply) {
	if r.mute || s.clients[r.client].dead {
		return
	}
	if s.nReplies == maxReplies {
		panic("model: too many replies")
	}
	p.kind, p.client, p.attempt, p.next = r.kind, r.client, r.attempt, r.next
	if p.result == held || r.kind == beat {
		p.sent, p.session = r.sent, r.session
	}
	if r.kind == leave || r.kind == release {
		p.at = s.now
	}
	s.replies[s.nReplies] = p
	s.nReplies++
}
