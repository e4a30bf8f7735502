package model

// finished is how things end when nothing goes wrong any more.
type finished struct {
	served int // ticks until the last live waiter was served; -1: never
	left   int // ticks that something stayed taken after nobody used it any more; -1: for ever
}

// patience is how many ticks count as for ever.
const patience = 70

// finish goes on from s without faults and without delay: every request is run at once, or, with drop,
// lost if nobody waits for its reply; every message arrives; whoever gets the lock gives it back, and wants
// no more.
func (m *Model) finish(s State, drop bool, say func(string, *State)) finished {
	f := finisher{Model: m, s: &s, drop: drop, say: say}
	s.left = Faults{}
	for ci := range s.clients {
		c := &s.clients[ci]
		c.rounds = 0
		c.ghost = false
		f.waits[ci] = !c.dead && c.phase != idle && c.phase != holding
	}
	var end finished
	quietSince := int8(-1)
	for s.now < patience {
		for f.round() {
		}
		m.lapse(&s)
		if f.served > 0 {
			end.served = int(s.now)
			f.served = 0
		}
		if !f.busy() {
			if quietSince < 0 {
				quietSince = s.now
			}
			if !f.taken() {
				end.left = int(s.now - quietSince)
				return end
			}
		}
		s.now++
		f.tell("a tick passes")
	}
	for ci := range s.clients {
		if f.waits[ci] && s.clients[ci].phase != idle {
			return finished{served: -1}
		}
	}
	end.left = -1
	return end
}

type finisher struct {
	*Model
	s      *State
	drop   bool
	say    func(string, *State)
	waits  [maxClients]bool
	served int
}

func (f *finisher) tell(what string) {
	if f.say != nil {
		f.say(what, f.s)
	}
}

// round does what is to do at this moment, and reports whether there was anything.
func (f *finisher) round() (more bool) {
	s := f.s
	if s.foreign {
		s.foreign, s.foreignEnd = false, 0
		f.tell("the foreign key is deleted")
		more = true
	}
	for s.nRequests > 0 {
		if r := s.requests[0]; f.drop && r.mute {
			s.takeRequest(0)
			continue
		}
		r := s.requests[0]
		f.run(s, 0)
		if f.say != nil {
			f.tell(event{what: runs, client: r.client, kind: r.kind, attempt: r.attempt, next: r.next}.String())
		}
		more = true
	}
	for s.nReplies > 0 {
		p := s.replies[0]
		f.onReply(s, 0)
		if f.say != nil {
			f.tell(event{what: reads, client: p.client, kind: p.kind, attempt: p.attempt, result: p.result}.String())
		}
		more = true
	}
	for ci := range int8(f.Clients) {
		more = f.client(ci) || more
	}
	return more
}

// client does what one client, and the server for its connection, has to do.
func (f *finisher) client(ci int8) (more bool) {
	s, c := f.s, &f.s.clients[ci]
	if c.old > 0 && !(c.dead && f.HalfOpen) {
		c.old = 0
		more = true
	}
	if c.counted && (c.dead && !f.HalfOpen || !c.dead && !c.intact) {
		c.counted, c.replica = false, false
		more = true
	}
	if c.dead {
		return more
	}
	if c.hears == 0 || !c.intact || c.replica && !f.Deaf {
		f.unhear(c)
		c.counted, c.replica = false, false
		f.resubscribe(c)
		more = true
	}
	for c.nMessages > 0 {
		x := c.messages[0]
		f.onMessage(s, ci)
		if f.say != nil {
			f.tell(event{what: hears, client: ci, verb: x.verb, attempt: x.attempt}.String())
		}
		more = true
	}
	for i := range c.nFarewells {
		if c.farewells[i].due(s.now) {
			f.leave(s, ci, &c.farewells[i])
			more = true
		}
	}
	switch c.phase {
	case asking:
		if !s.asked(ci, c.attempt) {
			f.ask(s, ci)
			more = true
		}
	case waiting:
		if f.mayCheck(s, ci) {
			f.check(s, ci)
			more = true
		}
	case holding:
		more = f.holder(ci) || more
	}
	return more
}

// holder gives the lock back; a sticky one only when it knows that someone waits.
func (f *finisher) holder(ci int8) (more bool) {
	s, c := f.s, &f.s.clients[ci]
	if f.waits[ci] {
		f.waits[ci] = false
		f.served++
	}
	switch {
	case s.now >= f.deadline(ci, c):
		f.lose(s, ci)
	case f.Sticky && !c.contended:
		if c.until-s.now > f.Lease/2 || s.of(ci, renew) {
			return false
		}
		f.renew(s, ci)
	case c.givingUp != 0:
		return false
	default:
		f.unlock(s, ci, false)
	}
	return true
}

// busy: somebody still wants something.
func (f *finisher) busy() bool {
	for ci := range f.s.clients {
		c := &f.s.clients[ci]
		if !c.dead && c.phase != idle && !(f.Sticky && c.phase == holding && !c.contended && f.s.nQueue == 0) {
			return true
		}
	}
	return false
}

// taken: the lock is held, or a live client stands in the queue.
func (f *finisher) taken() bool {
	s := f.s
	for _, p := range s.queue[:s.nQueue] {
		if !s.clients[p.client].dead {
			return true
		}
	}
	for _, h := range s.holds[:s.nHolds] {
		if c := &s.clients[h.client]; c.dead || c.phase != holding || c.attempt != h.attempt {
			return true
		}
	}
	return false
}
