package model

// The client's side, as in attempt.go, hold.go, release.go, farewell.go and heartbeat.go. What happens by
// itself or by chance is in steps.go; here is what a client does about it.

// deadline is until when the hold is certain.
func (m *Model) deadline(ci int8, c *client) int8 {
	grace := m.graceOf(ci)
	if grace == 0 || c.byRenewal {
		return c.until
	}
	alive := c.proof
	if c.beatBy != 0 && (c.beatBy == c.session || !m.keeps(OneSession)) {
		alive = max(alive, c.beat)
	}
	return min(c.until, alive+grace)
}

// start begins a new attempt under a name of its own.
func (m *Model) start(s *State, ci int8) {
	c := &s.clients[ci]
	c.clearAttempt()
	if c.names == m.Names[ci] {
		c.rounds = 0 // the bound of the model: this client stops here
		return
	}
	c.names++
	c.attempt, c.phase = c.names, asking
	m.ask(s, ci)
}

// ask sends acquire. While nobody could tell the client of a grant, it takes a free lock but does not queue.
func (m *Model) ask(s *State, ci int8) {
	c := &s.clients[ci]
	kind := acquire
	if c.hears == 0 {
		kind = tryAcquire
	}
	m.creating(s, ci)
	s.send(request{kind: kind, client: ci, attempt: c.attempt, sent: s.now, session: c.hears})
}

// creating notes that a request which may make something of the attempt is about to be sent.
func (m *Model) creating(s *State, ci int8) {
	c := &s.clients[ci]
	if !c.begun {
		c.begun, c.first = true, s.now
	}
	c.latest = s.now + m.Latest
}

func (m *Model) check(s *State, ci int8) {
	c := &s.clients[ci]
	c.look = false
	c.checkAt = s.now + 1
	if m.Timed {
		c.checkAt, c.watching = s.now+m.Lease, c.front
	}
	s.send(request{kind: check, client: ci, attempt: c.attempt, sent: s.now, session: c.hears})
}

// give sends the release of the hold, with the attempt that joins it.
func (m *Model) give(s *State, ci int8) {
	c := &s.clients[ci]
	r := request{kind: release, client: ci, attempt: c.givingUp, number: c.givenNumber, sent: s.now, session: c.hears}
	if c.phase == joining {
		r.next = c.attempt
		m.creating(s, ci)
	}
	s.send(r)
}

// unlock ends the hold. next: another goroutine waits here.
func (m *Model) unlock(s *State, ci int8, next bool) {
	c := &s.clients[ci]
	c.givingUp, c.givenNumber, c.givenUntil, c.givenLatest, c.givenUnsure = c.attempt, c.number, c.until, c.latest, c.unsure
	c.clearAttempt()
	s.muteRenewal(ci)
	if next {
		c.rounds--
		c.names++
		c.attempt, c.phase = c.names, joining
	}
	m.give(s, ci)
}

func (c *client) clearAttempt() {
	c.phase, c.attempt, c.begun, c.first, c.pair, c.paired, c.server = idle, 0, false, 0, 0, false, 0
	c.latest, c.unsure, c.look, c.front, c.watching, c.checkAt = 0, false, false, false, false, 0
	c.clearHold()
}

func (c *client) clearHold() {
	c.number, c.until, c.proof, c.session, c.byRenewal, c.contended = 0, 0, 0, 0, false, false
	c.beat, c.beatBy = 0, 0
}

func (c *client) clearRelease() {
	c.givingUp, c.givenNumber, c.givenUntil, c.givenLatest, c.givenUnsure = 0, 0, 0, 0, false
}

// muteRenewal: nobody waits for a renewal of what is not held any more.
func (s *State) muteRenewal(ci int8) {
	s.underWay(ci, func(k requestKind, _, _ int8) bool { return k == renew }, true)
}

// onReply is what a client does with a reply.
func (m *Model) onReply(s *State, i int8) {
	p := s.takeReply(i)
	ci := p.client
	c := &s.clients[ci]
	switch p.kind {
	case acquire, tryAcquire:
		if c.phase == asking && c.attempt == p.attempt {
			m.take(s, ci, p)
		}
	case check:
		if c.phase == waiting && c.attempt == p.attempt {
			m.take(s, ci, p)
		}
	case release:
		m.onReleased(s, ci, p)
	case leave:
		m.onLeft(s, ci, p)
	case renew:
		if p.result != held {
			m.lose(s, ci)
			break
		}
		c.until = max(c.until, p.until)
		if p.sent >= c.proof {
			c.proof, c.session = p.sent, p.session
		}
		c.byRenewal = !m.keeps(OneProof)
		c.contended = c.contended || p.waiting
	case beat:
		m.onBeat(s, ci, p)
	}
	m.quiet(s, ci)
}

// take deals with what a reply says of the attempt.
func (m *Model) take(s *State, ci int8, p reply) {
	c := &s.clients[ci]
	switch p.result {
	case held:
		if !m.worth(s, ci, p.until, p.sent) {
			m.abandon(s, ci)
			m.start(s, ci)
			return
		}
		m.become(s, ci, p.number, p.until, p.sent, p.session)
		c.contended = p.waiting
	case queued:
		first := !c.paired
		c.phase = waiting
		c.pair, c.paired, c.first = p.pair, true, 0
		if !m.keeps(SamePair) {
			if first {
				c.server = p.at
			}
			c.pair = p.pair + p.at - c.server
		}
		c.front = c.front || p.place == 1
		m.schedule(s, ci, p)
	case gone:
		if c.unsure {
			m.sayFarewell(s, ci, farewell{attempt: c.attempt, latest: c.latest, unsure: true})
		}
		if m.keeps(NewName) {
			m.start(s, ci)
			return
		}
		name := c.attempt
		c.clearAttempt()
		c.attempt, c.phase = name, asking
		m.ask(s, ci)
	case late:
		m.ask(s, ci)
	case busy: // waits until it hears
	}
}

// worth: something certain is left of a grant on its arrival.
func (m *Model) worth(s *State, ci, until, proof int8) bool {
	if grace := m.graceOf(ci); grace > 0 && m.keeps(ProofOnArrival) {
		until = min(until, proof+grace)
	}
	return s.now < until
}

// schedule sets the timer of a waiter.
func (m *Model) schedule(s *State, ci int8, p reply) {
	c := &s.clients[ci]
	if !m.Timed {
		return
	}
	wait := never
	if n := int(m.Lease) * int(p.place); n < int(never) && m.keeps(PlaceTimer) && p.place > 1 {
		wait = int8(n)
	}
	if p.deadFront && m.keeps(PlaceTimer) {
		wait = m.Lease
		if grace := m.graceOf(ci); grace > 0 {
			wait = min(wait, grace)
		}
	}
	if p.place == 1 {
		if m.keeps(FrontTimer) {
			wait = m.Lease
		}
		wait = min(wait, max(p.remaining, 1))
	}
	if grace := m.graceOf(ci); grace > 0 && !s.foreign {
		if n := int(p.place); n == 1 {
			wait = min(wait, max(grace/4, 1))
		} else if n < 2*int(m.Lease)/int(grace) && m.keeps(PlaceTimer) {
			wait = int8(min(int(wait), int(grace)*n*n/2))
		}
	}
	if c.front && !c.watching {
		wait = min(wait, 1) // it watches the key soon, and checks once it does
	}
	c.checkAt = never
	if wait < never-s.now {
		c.checkAt = s.now + wait
	}
}

// become: the attempt has become a hold.
func (m *Model) become(s *State, ci, number, until, proof, session int8) {
	c := &s.clients[ci]
	attempt, latest, unsure := c.attempt, c.latest, c.unsure
	c.clearAttempt()
	c.phase, c.attempt, c.latest, c.unsure = holding, attempt, latest, unsure
	c.number, c.until, c.proof, c.session = number, until, proof, session
	if m.writer(ci) && number <= s.topToken || number <= s.topWriter {
		s.fell = true
	}
	s.topToken = max(s.topToken, number)
	if m.writer(ci) {
		s.topWriter = max(s.topWriter, number)
	}
}

// abandon: nobody wants the attempt any more.
func (m *Model) abandon(s *State, ci int8) {
	c := &s.clients[ci]
	f := farewell{attempt: c.attempt, latest: c.latest, unsure: c.unsure, open: true}
	c.clearAttempt()
	m.sayFarewell(s, ci, f)
}

// lose: the lease is lost, or is taken to be.
func (m *Model) lose(s *State, ci int8) {
	c := &s.clients[ci]
	f := farewell{attempt: c.attempt, latest: c.latest, unsure: c.unsure}
	c.clearAttempt()
	s.muteRenewal(ci)
	if m.keeps(LeaveLost) {
		m.sayFarewell(s, ci, f)
	}
}

func (c *client) farewellOf(attempt int8) *farewell {
	for i := range c.nFarewells {
		if c.farewells[i].attempt == attempt {
			return &c.farewells[i]
		}
	}
	return nil
}

func (m *Model) sayFarewell(s *State, ci int8, f farewell) {
	c := &s.clients[ci]
	if old := c.farewellOf(f.attempt); old != nil {
		old.again = old.out
		old.latest, old.unsure = max(old.latest, f.latest), old.unsure || f.unsure
		if !old.out {
			m.leave(s, ci, old)
		}
		return
	}
	if c.nFarewells == maxFarewells {
		panic("model: too many farewells")
	}
	c.farewells[c.nFarewells] = f
	c.nFarewells++
	m.leave(s, ci, &c.farewells[c.nFarewells-1])
}

func (m *Model) leave(s *State, ci int8, f *farewell) {
	f.wait, f.out = f.open && s.asked(ci, f.attempt), true
	s.send(request{kind: leave, client: ci, attempt: f.attempt})
}

func (m *Model) onLeft(s *State, ci int8, p reply) {
	c := &s.clients[ci]
	f := c.farewellOf(p.attempt)
	f.out = false
	switch {
	case f.again:
		f.again = false
		m.leave(s, ci, f)
	case f.wait: // quiet goes on
	case f.unsure && m.keeps(LeaveAgain) && p.at <= f.latest: // due later
	default:
		for i := range c.nFarewells {
			if c.farewells[i].attempt == p.attempt {
				copy(c.farewells[i:], c.farewells[i+1:])
				c.farewells[maxFarewells-1] = farewell{}
				c.nFarewells--
				break
			}
		}
	}
}

// quiet goes on with farewells that waited for how a request of theirs ends.
func (m *Model) quiet(s *State, ci int8) {
	c := &s.clients[ci]
	for i := range c.nFarewells {
		if f := &c.farewells[i]; f.wait && !f.out && !s.asked(ci, f.attempt) {
			m.leave(s, ci, f)
		}
	}
}

// due: a leave is to be sent once more, after the latest time of what was not answered.
func (f *farewell) due(now int8) bool {
	return !f.out && !f.wait && now > f.latest
}

func (m *Model) onReleased(s *State, ci int8, p reply) {
	c := &s.clients[ci]
	if c.givenUnsure && c.givenLatest >= p.at {
		m.sayFarewell(s, ci, farewell{attempt: c.givingUp, latest: c.givenLatest, unsure: true})
	}
	c.clearRelease()
	if c.phase != joining {
		return // no next one, or it was granted or given up meanwhile
	}
	switch {
	case p.next == 0, p.result == released:
		c.phase = asking
		m.ask(s, ci)
	case p.result == lost:
		m.take(s, ci, reply{result: gone})
	default:
		m.take(s, ci, p)
	}
}

// onBeat: the session is compared again, because over which subscription it was counted is not known.
func (m *Model) onBeat(s *State, ci int8, p reply) {
	c := &s.clients[ci]
	switch {
	case p.session != c.hears && m.keeps(BeatSession):
	case p.number == 0 && m.keeps(BeatCounted):
		m.unhear(c)
	case c.phase == holding:
		c.beat, c.beatBy = p.sent, p.session
	}
}

// unhear: the client knows that its subscription is no good.
func (m *Model) unhear(c *client) {
	c.hears, c.intact = 0, false
	c.dropMessages()
}

// resubscribe: a new connection is confirmed, and everybody looks.
func (m *Model) resubscribe(c *client) {
	if c.counted && !c.replica && m.HalfOld {
		c.old = min(c.old+1, 1)
	}
	c.sessions++
	c.hears, c.intact, c.counted, c.replica = c.sessions, true, true, false
	if (c.phase == asking || c.phase == joining || c.phase == waiting) && m.keeps(GapLook) {
		c.look = true
	}
}

// replace: another connection is subscribed before this one, if it stands, is closed.
func (m *Model) replace(c *client) {
	switch {
	case c.intact && c.counted && !c.replica: // it answers
	case m.keeps(Unbroken):
		m.unhear(c)
	default:
		c.intact, c.counted, c.replica = true, true, false
	}
}

// told: a check has said to the holder that someone waits, over the present subscription.
func (m *Model) told(s *State, c *client, at int8) {
	if !m.keeps(ToldThen) {
		at = s.now
	}
	if c.beatBy != c.hears || at > c.beat {
		c.beat, c.beatBy = at, c.hears
	}
}

// onMessage is what a client does with what a script said.
func (m *Model) onMessage(s *State, ci int8) {
	c := &s.clients[ci]
	x := c.takeMessage()
	known := c.attempt == x.attempt && c.phase != idle
	switch {
	case known && c.phase == holding:
		c.contended = c.contended || x.verb == waitsMsg
		if x.counted {
			m.told(s, c, x.at)
		}
	case known && x.verb == grantMsg:
		m.granted(s, ci, x)
	case known && x.verb == frontMsg:
		if !c.front {
			c.front = true
			if c.phase == waiting {
				c.checkAt = min(c.checkAt, s.now+1) // it watches the key soon, and checks once it does
			}
		}
	case x.attempt == c.givingUp && m.keeps(EndingAlone):
	case !known && x.verb != waitsMsg:
		m.sayFarewell(s, ci, farewell{attempt: x.attempt})
	}
}

// granted: the certain time counts from when a request was sent, never from another clock.
func (m *Model) granted(s *State, ci int8, x message) {
	c := &s.clients[ci]
	lease := m.Lease
	if m.keeps(LeaseInMessage) {
		lease = x.lease
	}
	since := c.first
	switch {
	case c.paired:
		since = min(x.at+c.pair, s.now)
	case !m.keeps(SendAlone):
		since = s.now
	}
	if !m.worth(s, ci, since+lease, since) {
		c.look = true
		return
	}
	m.become(s, ci, x.number, since+lease, since, c.hears)
}

// unanswered: c gives up waiting for a request. It may be run all the same, and late.
func (m *Model) unanswered(s *State, ci int8, kind requestKind, attempt, next int8) {
	c := &s.clients[ci]
	unsure := func(a int8) {
		if f := c.farewellOf(a); f != nil {
			f.unsure = true
		} else if c.attempt == a && c.phase != holding {
			c.unsure = true
		}
	}
	switch kind {
	case acquire, tryAcquire:
		unsure(attempt)
		if c.phase == asking && c.attempt == attempt {
			m.ask(s, ci)
		}
	case check:
		if c.phase == waiting && c.attempt == attempt {
			c.look = true
		}
	case release:
		if next != 0 {
			unsure(next)
		}
		if s.now < c.givenUntil {
			m.give(s, ci)
			break
		}
		c.clearRelease() // it lapses with its lease
		if c.phase == joining {
			c.phase = asking
			m.ask(s, ci)
		}
	case leave:
		f := c.farewellOf(attempt)
		m.leave(s, ci, f)
	}
	m.quiet(s, ci)
}
