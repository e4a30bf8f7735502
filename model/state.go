package model

import (
	"hash/maphash"
	"unsafe"
)

const (
	maxClients   = 3
	maxHolds     = 4
	maxQueue     = 6
	maxRequests  = 8
	maxReplies   = 8
	maxMessages  = 4
	maxFarewells = 3

	never = int8(120)
)

// State is one moment of server, network and clients. It is made of bytes alone, without padding, and what
// is unused is zero, so that equal states have equal bytes. Times are ticks of one clock; canon makes them
// relative to now.
type State struct {
	now   int8
	ticks int8 // passed so far, where they are bounded
	left  Faults

	// The server.
	foreign    bool
	foreignEnd int8
	nHolds     int8
	holds      [maxHolds]hold
	nQueue     int8
	queue      [maxQueue]place
	fence      int8

	// The network.
	nRequests int8
	requests  [maxRequests]request
	nReplies  int8
	replies   [maxReplies]reply

	clients [maxClients]client

	topToken, topWriter int8 // the highest numbers that were held so far, by anyone and by a writer
	fell                bool // a token did not rise
}

// hold is one on the server.
type hold struct{ client, attempt, number, end int8 }

// place is one in the queue. number is 0 unless it is given out when joining.
type place struct{ client, attempt, number int8 }

type requestKind int8

const (
	none requestKind = iota
	acquire
	tryAcquire // acquire by a client that does not hear at present: takes a free lock, does not queue
	release
	leave
	check
	renew
	beat
)

// request is one under way to the server.
type request struct {
	kind          requestKind
	client        int8
	attempt, next int8 // next: queued with a release; 0: none
	number        int8 // of the hold, in release and renew: the proof of ownership
	sent, session int8
	mute          bool // nobody waits for the reply any more
}

type result int8

const (
	held result = iota + 1
	queued
	gone
	busy
	late
	released
	lost
	leftIt
	counted
)

// reply is one under way to a client that waits for it.
type reply struct {
	kind             requestKind
	client           int8
	attempt, next    int8
	result           result
	sent, session    int8 // of the request
	until            int8 // held: certain until then
	number           int8 // held; counted: how many listeners
	pair             int8 // queued: send time minus server time
	place, remaining int8 // queued, where timers are modelled
	deadFront        bool // queued by acquire, likewise: nobody hears at the front
	at               int8 // server time, where somebody asks for it
	waiting          bool // somebody waits for the hold
}

type verb int8

const (
	grantMsg verb = iota + 1
	frontMsg
	waitsMsg
)

// message is one under way on a subscriber connection.
type message struct {
	verb                       verb
	attempt, number, at, lease int8
	counted                    bool // waits: it is a proof of life
}

type phase int8

const (
	idle    phase = iota
	asking        // acquire has to be answered
	joining       // the attempt travels with a release
	waiting       // in the queue, as far as is known
	holding
)

// client is a Client with one goroutine's worth of work.
type client struct {
	dead   bool
	rounds int8 // acquisitions still to come
	names  int8 // attempts used

	// The attempt, or the hold that it became.
	phase     phase
	attempt   int8
	begun     bool // a request of it was sent
	first     int8 // send time of its first request, until a pair is known
	pair      int8 // send time minus server time of one request
	paired    bool
	server    int8 // first server time, without SamePair
	latest    int8 // the latest time that a request of it named
	unsure    bool // a request of it was never answered: it may be run until latest
	look      bool // check at once
	front     bool
	watching  bool // the key, so that it has checked since it came to the front
	checkAt   int8
	number    int8
	until     int8
	proof     int8
	session   int8 // of the proof
	byRenewal bool // the proof was a renewal, without OneProof
	contended bool

	// The release under way.
	givingUp    int8 // its attempt; 0: none
	givenNumber int8
	givenUntil  int8
	givenLatest int8 // as latest, of the hold's attempt
	givenUnsure bool

	// The subscription.
	hears    int8 // its number; 0: the client knows that it has none
	sessions int8 // numbers used
	intact   bool // messages flow
	counted  bool // the server counts it
	replica  bool // it hangs on a replica
	old      int8 // older connections that the server still counts
	ghost    bool // a SUBSCRIBE that nobody waits for is under way
	beat     int8 // send time of the last beat that counted
	beatBy   int8 // its subscription; 0: none

	nMessages int8
	messages  [maxMessages]message

	nFarewells int8
	farewells  [maxFarewells]farewell
}

// farewell has the server keep nothing of an attempt.
type farewell struct {
	attempt int8
	latest  int8 // as in client
	unsure  bool
	open    bool // of an attempt, whose requests may still be answered; not of a hold
	out     bool // a leave is under way
	wait    bool // a request of it was under way when the leave was sent
	again   bool // something of it was heard of meanwhile: send another
}

func (s *State) addHold(h hold) {
	if s.nHolds == maxHolds {
		panic("model: too many holds")
	}
	s.holds[s.nHolds] = h
	s.nHolds++
}

func (s *State) dropHold(i int8) {
	copy(s.holds[i:], s.holds[i+1:])
	s.holds[maxHolds-1] = hold{}
	s.nHolds--
}

// holdOf finds the hold of an attempt; -1: there is none.
func (s *State) holdOf(c, attempt int8) int8 {
	for i := range s.nHolds {
		if s.holds[i].client == c && s.holds[i].attempt == attempt {
			return i
		}
	}
	return -1
}

func (s *State) addPlace(p place) {
	if s.nQueue == maxQueue {
		panic("model: queue too long")
	}
	s.queue[s.nQueue] = p
	s.nQueue++
}

func (s *State) dropPlace(i int8) {
	copy(s.queue[i:], s.queue[i+1:])
	s.queue[maxQueue-1] = place{}
	s.nQueue--
}

func (s *State) placeOf(c, attempt int8) int8 {
	for i := range s.nQueue {
		if s.queue[i].client == c && s.queue[i].attempt == attempt {
			return i
		}
	}
	return -1
}

func (s *State) send(r request) {
	if s.nRequests == maxRequests {
		panic("model: too many requests")
	}
	s.requests[s.nRequests] = r
	s.nRequests++
}

func (s *State) takeRequest(i int8) request {
	r := s.requests[i]
	copy(s.requests[i:], s.requests[i+1:])
	s.requests[maxRequests-1] = request{}
	s.nRequests--
	return r
}

func (s *State) takeReply(i int8) reply {
	p := s.replies[i]
	copy(s.replies[i:], s.replies[i+1:])
	s.replies[maxReplies-1] = reply{}
	s.nReplies--
	return p
}

// underWay finds a request for whose reply c waits, or that reply, and ends the waiting if mute is set.
func (s *State) underWay(c int8, match func(kind requestKind, attempt, next int8) bool, mute bool) bool {
	for i := range s.nRequests {
		r := &s.requests[i]
		if r.client == c && !r.mute && match(r.kind, r.attempt, r.next) {
			r.mute = r.mute || mute
			return true
		}
	}
	for i := range s.nReplies {
		p := &s.replies[i]
		if p.client == c && match(p.kind, p.attempt, p.next) {
			if mute {
				s.takeReply(i)
			}
			return true
		}
	}
	return false
}

// asked: a request of the attempt is under way that may make something on the server, or a check.
func (s *State) asked(c, attempt int8) bool {
	return s.underWay(c, func(kind requestKind, a, next int8) bool {
		return (kind == acquire || kind == tryAcquire || kind == check) && a == attempt || kind == release && next == attempt
	}, false)
}

func (s *State) of(c int8, kind requestKind) bool {
	return s.underWay(c, func(k requestKind, _, _ int8) bool { return k == kind }, false)
}

func (c *client) hear(x message) {
	if c.nMessages == maxMessages {
		panic("model: too many messages")
	}
	c.messages[c.nMessages] = x
	c.nMessages++
}

func (c *client) takeMessage() message {
	x := c.messages[0]
	copy(c.messages[:], c.messages[1:])
	c.messages[maxMessages-1] = message{}
	c.nMessages--
	return x
}

// dropMessages: what was under way on a connection that broke is lost.
func (c *client) dropMessages() {
	c.messages, c.nMessages = [maxMessages]message{}, 0
}

// key is a state's hash: 128 bits, so that two states are never taken for one.
type key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func (s *State) key() key {
	b := unsafe.Slice((*byte)(unsafe.Pointer(s)), unsafe.Sizeof(*s))
	return key{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
}
