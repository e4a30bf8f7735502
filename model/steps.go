package model

// eventKind is what a step is, for traces.
type eventKind int8

const (
	tick eventKind = iota
	runs
	reads
	hears
	locks
	asksAgain
	checks
	givesUp
	unlocks
	unlocksNext
	loses
	renews
	beats
	leavesAgain
	hearsNothing
	breaks
	notices
	resubscribes
	replaces
	ghostly
	ghostRuns
	serverCloses
	serverClosesOld
	demoted
	crashes
	foreignSets
	foreignDeletes
)

// event is one step.
type event struct {
	what          eventKind
	client        int8
	kind          requestKind
	verb          verb
	attempt, next int8
	result        result
	a             int8
}

// Model explores one configuration.
type Model struct {
	Config
}

func (m *Model) initial() State {
	var s State
	for i := range s.clients {
		c := &s.clients[i]
		if i >= m.Clients {
			c.dead = true
			continue
		}
		c.rounds = m.Rounds[i]
		c.hears, c.sessions, c.intact, c.counted = 1, 1, true, true
	}
	s.clients[0].ghost = m.Ghost
	s.left = m.Faults
	return s
}

// steps emits every state that can come next.
func (m *Model) steps(s *State, emit func(event, *State)) {
	if !m.Timed || s.ticks < m.Ticks {
		t := *s
		t.now++
		if m.Timed {
			t.ticks++
		}
		emit(event{what: tick}, &t)
	}
	for i := range s.nRequests {
		t, r := *s, s.requests[i]
		m.run(&t, i)
		emit(event{what: runs, client: r.client, kind: r.kind, attempt: r.attempt, next: r.next, a: s.now - r.sent}, &t)
	}
	for i := range s.nReplies {
		t, p := *s, s.replies[i]
		m.onReply(&t, i)
		emit(event{what: reads, client: p.client, kind: p.kind, attempt: p.attempt, next: p.next, result: p.result, a: p.until - s.now}, &t)
	}
	for ci := range int8(m.Clients) {
		m.connectionSteps(s, ci, emit)
		if !s.clients[ci].dead {
			m.workSteps(s, ci, emit)
			if ci == 0 || !m.OnlyA {
				m.faultSteps(s, ci, emit)
			}
		}
	}
	m.foreignSteps(s, emit)
}

// workSteps are what a client does of itself.
func (m *Model) workSteps(s *State, ci int8, emit func(event, *State)) {
	c := &s.clients[ci]
	if c.nMessages > 0 && c.intact && c.hears != 0 {
		t, x := *s, c.messages[0]
		m.onMessage(&t, ci)
		emit(event{what: hears, client: ci, verb: x.verb, attempt: x.attempt, a: s.now - x.at}, &t)
	}
	switch c.phase {
	case idle:
		if c.rounds > 0 && c.names < m.Names[ci] {
			t := *s
			t.clients[ci].rounds--
			m.start(&t, ci)
			emit(event{what: locks, client: ci, attempt: t.clients[ci].attempt}, &t)
		}
	case asking:
		if c.hears != 0 && !s.asked(ci, c.attempt) {
			t := *s
			m.ask(&t, ci)
			emit(event{what: asksAgain, client: ci, attempt: c.attempt}, &t)
		}
	case waiting:
		if m.mayCheck(s, ci) {
			t := *s
			m.check(&t, ci)
			emit(event{what: checks, client: ci, attempt: c.attempt}, &t)
		}
	case holding:
		m.holdSteps(s, ci, emit)
	}
	for i := range c.nFarewells {
		if f := c.farewells[i]; f.due(s.now) {
			t := *s
			m.leave(&t, ci, &t.clients[ci].farewells[i])
			emit(event{what: leavesAgain, client: ci, attempt: f.attempt}, &t)
		}
	}
}

// mayCheck: it is woken, or its timer says so. Without timers modelled it may once a tick.
func (m *Model) mayCheck(s *State, ci int8) bool {
	c := &s.clients[ci]
	if c.phase != waiting || s.of(ci, check) {
		return false
	}
	return c.look || s.now >= c.checkAt
}

func (m *Model) holdSteps(s *State, ci int8, emit func(event, *State)) {
	c := &s.clients[ci]
	if s.now >= m.deadline(ci, c) {
		t := *s
		m.lose(&t, ci)
		emit(event{what: loses, client: ci, attempt: c.attempt}, &t)
		return
	}
	if c.givingUp == 0 {
		t := *s
		m.unlock(&t, ci, false)
		emit(event{what: unlocks, client: ci, attempt: c.attempt}, &t)
		if c.rounds > 0 && c.names < m.Names[ci] {
			t := *s
			m.unlock(&t, ci, true)
			emit(event{what: unlocksNext, client: ci, attempt: c.attempt, next: t.clients[ci].attempt}, &t)
		}
	}
	if m.OnlyA && ci > 0 {
		return
	}
	if s.left.Renew > 0 && !s.of(ci, renew) {
		t := *s
		t.left.Renew--
		m.renew(&t, ci)
		emit(event{what: renews, client: ci, attempt: c.attempt}, &t)
	}
	if s.left.Beat > 0 && c.hears != 0 && m.graceOf(ci) > 0 && !s.of(ci, beat) {
		t := *s
		t.left.Beat--
		t.send(request{kind: beat, client: ci, sent: s.now, session: c.hears})
		emit(event{what: beats, client: ci}, &t)
	}
}

func (m *Model) renew(s *State, ci int8) {
	c := &s.clients[ci]
	s.send(request{kind: renew, client: ci, attempt: c.attempt, number: c.number, sent: s.now, session: c.hears})
}

// connectionSteps are what happens to a subscriber connection after it broke.
func (m *Model) connectionSteps(s *State, ci int8, emit func(event, *State)) {
	c := &s.clients[ci]
	if c.counted && (c.dead && !m.HalfOpen || !c.dead && !c.intact) {
		t := *s
		t.clients[ci].counted, t.clients[ci].replica = false, false
		emit(event{what: serverCloses, client: ci}, &t)
	}
	if c.old > 0 {
		t := *s
		t.clients[ci].old--
		emit(event{what: serverClosesOld, client: ci}, &t)
	}
	if c.ghost {
		t := *s
		t.clients[ci].ghost = false
		t.clients[ci].old++
		emit(event{what: ghostRuns, client: ci}, &t)
	}
	if c.dead {
		return
	}
	if c.hears != 0 && (!c.intact || c.replica || !c.counted) {
		t := *s
		m.unhear(&t.clients[ci])
		emit(event{what: notices, client: ci}, &t)
	}
	if c.hears == 0 {
		t := *s
		m.resubscribe(&t.clients[ci])
		emit(event{what: resubscribes, client: ci}, &t)
		if s.left.Ghost > 0 {
			t := *s
			t.left.Ghost--
			t.clients[ci].ghost = true
			emit(event{what: ghostly, client: ci}, &t)
		}
	}
}

// faultSteps are what may go wrong for a client.
func (m *Model) faultSteps(s *State, ci int8, emit func(event, *State)) {
	c := &s.clients[ci]
	if s.left.Lost > 0 {
		lose := func(kind requestKind, attempt, next int8) {
			t := *s
			t.left.Lost--
			t.underWay(ci, func(k requestKind, a, n int8) bool { return k == kind && a == attempt && n == next }, true)
			m.unanswered(&t, ci, kind, attempt, next)
			emit(event{what: hearsNothing, client: ci, kind: kind, attempt: attempt, next: next}, &t)
		}
		for _, r := range s.requests[:s.nRequests] {
			if r.client == ci && !r.mute {
				lose(r.kind, r.attempt, r.next)
			}
		}
		for _, p := range s.replies[:s.nReplies] {
			if p.client == ci {
				lose(p.kind, p.attempt, p.next)
			}
		}
	}
	if s.left.GiveUp > 0 && (c.phase == asking || c.phase == joining || c.phase == waiting) {
		t := *s
		t.left.GiveUp--
		m.abandon(&t, ci)
		emit(event{what: givesUp, client: ci, attempt: c.attempt}, &t)
	}
	if s.left.Break > 0 && c.hears != 0 && c.intact {
		t := *s
		t.left.Break--
		t.clients[ci].intact = false
		t.clients[ci].dropMessages()
		emit(event{what: breaks, client: ci}, &t)
	}
	if s.left.Close > 0 && c.hears != 0 && c.intact && c.counted {
		t := *s
		t.left.Close--
		t.clients[ci].counted = false
		emit(event{what: serverCloses, client: ci}, &t)
	}
	if s.left.Demote > 0 && c.hears != 0 && c.intact && !c.replica {
		t := *s
		t.left.Demote--
		t.clients[ci].replica = true
		emit(event{what: demoted, client: ci}, &t)
	}
	if s.left.Replace > 0 && c.hears != 0 {
		t := *s
		t.left.Replace--
		m.replace(&t.clients[ci])
		emit(event{what: replaces, client: ci}, &t)
	}
	if s.left.Crash > 0 {
		t := *s
		t.left.Crash--
		t.crash(ci)
		emit(event{what: crashes, client: ci}, &t)
	}
}

func (s *State) crash(ci int8) {
	c := &s.clients[ci]
	*c = client{dead: true, counted: c.counted && !c.replica, old: c.old, ghost: c.ghost}
	for i := range s.nRequests {
		if s.requests[i].client == ci {
			s.requests[i].mute = true
		}
	}
	for i := s.nReplies - 1; i >= 0; i-- {
		if s.replies[i].client == ci {
			s.takeReply(i)
		}
	}
}

func (m *Model) foreignSteps(s *State, emit func(event, *State)) {
	if s.left.Foreign > 0 {
		t := *s
		m.lapse(&t)
		if t.nHolds == 0 && !t.foreign {
			t.left.Foreign--
			t.foreign, t.foreignEnd = true, never
			emit(event{what: foreignSets}, &t)
		}
	}
	if s.foreign {
		t := *s
		t.foreign, t.foreignEnd = false, 0
		emit(event{what: foreignDeletes}, &t)
	}
}
