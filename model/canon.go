package model

import (
	"bytes"
	"math/bits"
	"unsafe"
)

// canon makes equal what behaves alike: times become relative to now and stop where they no longer matter,
// numbers become ranks, requests and replies lose their order, and what can do nothing any more goes.
func (m *Model) canon(s *State) {
	m.lapse(s)
	if s.foreign && s.foreignEnd != never {
		s.foreignEnd -= s.now
	}
	for i := range s.nHolds {
		s.holds[i].end -= s.now
	}
	for ci := range int8(m.Clients) {
		m.canonClient(s, ci)
	}
	for i := range s.nReplies {
		p := &s.replies[i]
		if p.result == held {
			p.until = max(p.until-s.now, 0)
		}
		if p.result == held || p.kind == beat {
			m.since(s, &p.sent)
		}
		if p.kind == leave || p.kind == release || p.at != 0 {
			m.since(s, &p.at)
		}
		if m.Grace == 0 {
			p.session = 0
		}
	}
	m.canonRequests(s)
	canonNumbers(s)
	s.now = 0
	sortBytes(s.requests[:s.nRequests])
	sortBytes(s.replies[:s.nReplies])
}

// since makes a past time relative. A lease, a grace or a latest time counts from it, so that it does not
// matter how much longer ago than those it was.
func (m *Model) since(s *State, p *int8) {
	*p = max(*p-s.now, -max(m.Lease, m.Grace, m.Latest+1))
}

func (m *Model) canonClient(s *State, ci int8) {
	c := &s.clients[ci]
	if c.dead {
		return
	}
	if c.phase == idle && c.rounds == 0 {
		c.names = m.Names[ci]
	}
	if !c.unsure && (s.left.Lost == 0 || c.phase == holding) {
		c.latest = 0 // nothing of it can be left unanswered any more
	}
	if c.begun {
		m.since(s, &c.latest)
		if c.paired {
			if !m.keeps(SamePair) {
				m.since(s, &c.server)
			}
			c.pair = max(min(c.pair, m.Lease), -m.Lease)
		} else {
			m.since(s, &c.first)
		}
	} else if c.phase == holding && c.unsure {
		m.since(s, &c.latest)
	}
	if c.unsure && c.latest < 0 && c.phase == waiting {
		c.unsure = false
	}
	if !m.Timed {
		c.front, c.look = false, false
	}
	if c.phase != waiting {
		c.checkAt = 0
	} else if c.checkAt != never {
		c.checkAt = max(c.checkAt-s.now, 0)
	}
	if !m.Sticky {
		c.contended = false
	}
	if c.phase == holding {
		c.until = max(c.until-s.now, 0)
		if m.Grace > 0 {
			m.since(s, &c.proof)
			if c.beatBy != 0 {
				m.since(s, &c.beat)
			}
		} else {
			c.proof, c.session = 0, 0
		}
	}
	if c.givingUp != 0 {
		c.givenUntil = max(c.givenUntil-s.now, 0)
		if c.givenUnsure {
			m.since(s, &c.givenLatest)
		} else {
			c.givenLatest = 0
		}
	}
	for i := range c.nMessages {
		if c.messages[i].verb == grantMsg || c.messages[i].counted {
			m.since(s, &c.messages[i].at)
		}
	}
	for i := range c.nFarewells {
		if f := &c.farewells[i]; f.unsure || f.wait {
			m.since(s, &f.latest)
		} else {
			f.latest = 0
		}
	}
	if m.Grace == 0 {
		c.sessions = 1
		c.hears = min(c.hears, 1)
	}
}

func (m *Model) canonRequests(s *State) {
	n := int8(0)
	for i := range s.nRequests {
		r := s.requests[i]
		tooLate := m.isLate(s, r)
		if r.mute && m.spent(s, r, tooLate) {
			continue
		}
		if r.mute && r.kind == release && tooLate {
			r.next = 0
		}
		creates := r.kind == acquire || r.kind == tryAcquire || r.kind == release && r.next != 0
		if r.mute && !(creates && m.keeps(LatestTime)) || r.kind == leave || r.kind == release && r.next == 0 {
			r.sent = 0
		} else {
			m.since(s, &r.sent)
		}
		if r.mute || m.Grace == 0 {
			r.session = 0
		}
		s.requests[n] = r
		n++
	}
	clear(s.requests[n:s.nRequests])
	s.nRequests = n
}

// spent: nobody waits for the reply, and it can change nothing any more that another request may not
// change as well.
func (m *Model) spent(s *State, r request, tooLate bool) bool {
	switch r.kind {
	case acquire, tryAcquire:
		return tooLate
	case release, renew:
		return s.owned(r) < 0
	case leave:
		if s.holdOf(r.client, r.attempt) >= 0 || s.placeOf(r.client, r.attempt) >= 0 {
			return false
		}
		for _, o := range s.requests[:s.nRequests] {
			if o.client == r.client && (o.kind != leave && o.attempt == r.attempt || o.next == r.attempt) {
				return false
			}
		}
		return true
	case beat:
		return true
	}
	return false // a check: it may cut, drop, grant
}

// canonNumbers: of numbers only the order matters.
func canonNumbers(s *State) {
	var used uint64
	var all [64]*int8
	n := 0
	add := func(p *int8) {
		if *p > 0 {
			all[n] = p
			n++
			used |= 1 << *p
		}
	}
	for i := range s.nHolds {
		add(&s.holds[i].number)
	}
	for i := range s.nQueue {
		add(&s.queue[i].number)
	}
	for i := range s.nRequests {
		add(&s.requests[i].number)
	}
	for i := range s.nReplies {
		if s.replies[i].result == held {
			add(&s.replies[i].number)
		}
	}
	for i := range s.clients {
		c := &s.clients[i]
		add(&c.number)
		add(&c.givenNumber)
		for k := range c.nMessages {
			add(&c.messages[k].number)
		}
	}
	add(&s.topToken)
	add(&s.topWriter)
	for _, p := range all[:n] {
		*p = int8(bits.OnesCount64(used & (1<<(*p+1) - 1)))
	}
	s.fence = int8(bits.OnesCount64(used))
}

func raw[T any](x *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(x)), unsafe.Sizeof(*x))
}

func sortBytes[T any](list []T) {
	for i := range list {
		for k := i; k > 0 && bytes.Compare(raw(&list[k]), raw(&list[k-1])) < 0; k-- {
			list[k], list[k-1] = list[k-1], list[k]
		}
	}
}
