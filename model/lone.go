package model

import "slices"

// Lone is the model's server by itself, for comparing it with the real scripts: the caller plays the
// clients. Clients are counted from 0, attempts from 1. Numbers rise with every grant, from 1.
type Lone struct {
	m Model
	s State
}

// NewLone is a server with nothing on it, all of whose clients are subscribed.
func NewLone(c Config) *Lone {
	c.Timed = true // so that it tells and counts all that the scripts do
	l := &Lone{m: Model{c}}
	l.s = l.m.initial()
	return l
}

// Hold is one hold, with the ticks that it has left.
type Hold struct{ Client, Attempt, Number, Left int }

// Place is one in the queue.
type Place struct{ Client, Attempt int }

// Answer is what a script answers. Place and Left are those of a waiter, or Left of the hold.
type Answer struct {
	Outcome     string
	Place, Left int
	DeadFront   bool
}

// Told is a message to a client: "grant" or "front".
type Told struct {
	Verb                    string
	Client, Attempt, Number int
}

// Tick lets a tick pass.
func (l *Lone) Tick() { l.s.now++; l.m.lapse(&l.s) }

// Subscribe begins or ends a client's subscription.
func (l *Lone) Subscribe(client int, on bool) {
	c := &l.s.clients[client]
	c.counted, c.intact = on, on
}

// Foreign has somebody set the lock key, where it is free, or delete it.
func (l *Lone) Foreign(set bool) bool {
	if set && (l.s.nHolds > 0 || l.s.foreign) || !set && !l.s.foreign {
		return false
	}
	l.s.foreign, l.s.foreignEnd = set, 0
	if set {
		l.s.foreignEnd = never
	}
	return true
}

// Acquire runs the script; the request was sent that many ticks ago.
func (l *Lone) Acquire(client, attempt int, try bool, age int) Answer {
	kind := acquire
	if try {
		kind = tryAcquire
	}
	return l.run(request{kind: kind, client: int8(client), attempt: int8(attempt), sent: l.s.now - int8(age)})
}

// Release runs the script for the hold of that number; next is 0 for none.
func (l *Lone) Release(client, attempt, number, next, age int) Answer {
	return l.run(request{kind: release, client: int8(client), attempt: int8(attempt), number: int8(number), next: int8(next), sent: l.s.now - int8(age)})
}

// Renew runs the script for the hold of that number.
func (l *Lone) Renew(client, attempt, number int) Answer {
	return l.run(request{kind: renew, client: int8(client), attempt: int8(attempt), number: int8(number), sent: l.s.now})
}

// Leave runs the script.
func (l *Lone) Leave(client, attempt int) Answer {
	return l.run(request{kind: leave, client: int8(client), attempt: int8(attempt)})
}

// Check runs the script.
func (l *Lone) Check(client, attempt int) Answer {
	return l.run(request{kind: check, client: int8(client), attempt: int8(attempt), sent: l.s.now})
}

func (l *Lone) run(r request) Answer {
	now := l.s.now
	l.s.send(r)
	l.m.run(&l.s, 0)
	p := l.s.takeReply(0)
	a := Answer{Outcome: resultNames[p.result]}
	switch p.result {
	case held:
		a.Left = int(p.until - r.sent)
	case queued:
		a.Place, a.Left, a.DeadFront = int(p.place), int(p.remaining), p.deadFront
		if p.remaining == never {
			a.Left = -1
		}
	}
	if l.s.now != now {
		panic("model: a script takes no time")
	}
	return a
}

// Holds are all holds, by their numbers.
func (l *Lone) Holds() []Hold {
	var out []Hold
	for _, h := range l.s.holds[:l.s.nHolds] {
		out = append(out, Hold{int(h.client), int(h.attempt), int(h.number), int(h.end - l.s.now)})
	}
	slices.SortFunc(out, func(a, b Hold) int { return a.Number - b.Number })
	return out
}

// Queue is who waits, in order.
func (l *Lone) Queue() []Place {
	var out []Place
	for _, p := range l.s.queue[:l.s.nQueue] {
		out = append(out, Place{int(p.client), int(p.attempt)})
	}
	return out
}

// Heard are the messages that a client got since the last call.
func (l *Lone) Heard(client int) []Told {
	c := &l.s.clients[client]
	var out []Told
	for c.nMessages > 0 {
		x := c.takeMessage()
		out = append(out, Told{verbNames[x.verb], client, int(x.attempt), int(x.number)})
	}
	return out
}
