// Package model is the protocol as a model: servers, clients and a network whose short schedules are explored
// exhaustively, with each of the rules and without it. docs/model.md says what it found.
package model

// Rule is one rule of the protocol. Each can be left out of a configuration, which then shows the schedule
// that the rule prevents.
type Rule uint32

// The rules. What each says holds for the code; what follows "without" is what the model does then.
const (
	// Remaining: "you hold it" says how much of the lease remains. Without: the client counts a full lease
	// from the sending of the request, whatever that request was.
	Remaining Rule = 1 << iota
	// LeaseInMessage: a grant names the lease it was given. Without: the client takes it for a full one.
	LeaseInMessage
	// SamePair: a grant's time is measured by send time and server time of the same request. Without: by
	// the latest send time and the first server time.
	SamePair
	// SendAlone: a grant that comes before any reply counts from the first sending. Without: from its
	// arrival.
	SendAlone
	// CountFirst: a script counts the listeners, writes the hold, and then publishes. Without: it publishes
	// first.
	CountFirst
	// NewName: who was dropped joins again under a new attempt. Without: under the old one.
	NewName
	// NumberAtGrant: a hold gets its number when it is granted. Without: when it joined the queue.
	NumberAtGrant
	// SameAnswer: a repeated acquire, or a late release, finds the place or the hold of the attempt that it
	// is for. Without: the attempt joins again.
	SameAnswer
	// TellFront: whoever comes to the front of the queue is told, whatever brought it there. Without: only
	// a grant tells.
	TellFront
	// TellAgain: check says to a holder that someone waits. Without: only acquire does.
	TellAgain
	// LeaveLost: a hold taken as lost is followed by leave. Without: it lapses.
	LeaveLost
	// EndingAlone: a grant for a hold that is being released is no reason to leave. Without: it is, like one
	// for any attempt that nobody here knows.
	EndingAlone
	// LatestTime: requests that create something name a latest server time. Without: they may be run at
	// any time.
	LatestTime
	// LeaveAgain: leave is repeated until one was answered after the latest time of an unanswered request.
	// Without: one answer is enough.
	LeaveAgain
	// OneSession: a beat counts only over the subscription under which the hold was last confirmed.
	// Without: over any.
	OneSession
	// BeatSession: a beat whose reply comes under another subscription than it was sent under is no proof.
	// Without: it is.
	BeatSession
	// OwnChannel: a beat counts the connection that it was sent under, and no other. Without: whoever is
	// subscribed to its Client's channel. (With it, BeatSession has nothing left to prevent.)
	OwnChannel
	// Unbroken: a connection that replaces another goes on with its subscription only if that one still
	// answers once the new one is subscribed. Without: it does in any case.
	Unbroken
	// BeatCounted: a beat is a proof of life only if the server counted a listener. Without: any answer is.
	BeatCounted
	// ToldThen: what a check says to a holder is a proof of life of the time at which it was said. Without: of the
	// time at which it arrives.
	ToldThen
	// ToldCounted: it is one only where the server has counted the holder, as the message says. Without: it is for
	// whoever hears it.
	ToldCounted
	// OneProof: a renewal is one proof of life. Without: it stands for a whole lease.
	OneProof
	// ProofOnArrival: a grant whose proof of life is older than the grace when it arrives is no hold, as
	// one whose lease is over. Without: it is, for no time.
	ProofOnArrival
	// OwnGrace: the lease of a holder with crash detection off is never cut. Without: it is.
	OwnGrace
	// Cut: check cuts the lease of a holder that nobody hears to its grace. Without: it does not.
	Cut
	// Prune: check drops dead entries ahead of the caller while the lock is held. Without: only a grant
	// drops them.
	Prune
	// PlaceTimer: a waiter behind the front looks by itself, after as many leases as its place. Without:
	// only when it is told.
	PlaceTimer
	// FrontTimer: the front looks after one lease of its own at the latest. Without: when the holder's
	// lease ends.
	FrontTimer
	// GapLook: after a reconnect every waiter looks. Without: it waits for its timer.
	GapLook
	// ShortFirst: the first lease of a hold told by message is short. Without: it is full.
	ShortFirst

	rulesEnd
)

var ruleNames = []string{
	"Remaining", "LeaseInMessage", "SamePair", "SendAlone", "CountFirst", "NewName", "NumberAtGrant", "SameAnswer",
	"TellFront", "TellAgain", "LeaveLost", "EndingAlone", "LatestTime", "LeaveAgain",
	"OneSession", "BeatSession", "OwnChannel", "Unbroken", "BeatCounted", "ToldThen", "ToldCounted", "OneProof", "ProofOnArrival", "OwnGrace", "Cut", "Prune", "PlaceTimer",
	"FrontTimer", "GapLook", "ShortFirst",
}

// Rules are all rules, in order.
func Rules() []Rule {
	var all []Rule
	for r := Rule(1); r < rulesEnd; r <<= 1 {
		all = append(all, r)
	}
	return all
}

// String names the rules in r.
func (r Rule) String() string {
	s := ""
	for i, name := range ruleNames {
		if r&(1<<i) != 0 {
			if s != "" {
				s += ", "
			}
			s += name
		}
	}
	return s
}

// Faults says how often something may happen in one run: what a schedule may contain, not what it must.
// Time passes, and messages, requests and replies are slow, without limit.
type Faults struct {
	Lost    int8 // a client hears nothing of a request: lost, or its reply was, or both are late
	Break   int8 // a subscriber connection breaks, unnoticed on either side at first
	Close   int8 // the server closes a subscriber connection: what it said before still arrives
	Crash   int8 // a client dies
	GiveUp  int8 // a waiter's context ends
	Renew   int8 // a holder renews
	Beat    int8 // a holder beats
	Foreign int8 // somebody's plain SET NX takes the lock
	Demote  int8 // a client's subscriber connection hangs on a replica: it hears, and is not counted
	Ghost   int8 // a SUBSCRIBE that the client gave up is run later
	Replace int8 // a client replaces its subscriber connection
}

// Config is one exploration.
type Config struct {
	Name    string
	Clients int
	Kind    Kind
	Size    int8             // what fits in: 1 for a mutex
	Weight  [maxClients]int8 // of each client's acquisitions; a writer's is Size
	Rounds  [maxClients]int8 // acquisitions of each client
	Names   [maxClients]int8 // attempts of each client: the bound of what is explored

	// In ticks of the one clock that all share.
	Lease, First, Grace int8
	Latest              int8 // how long after its sending a request that creates may still be run; 0: for ever

	Faults   Faults
	Without  Rule
	OnlyA    bool // faults, renewals and beats are A's alone
	Mixed    bool // client A has crash detection off
	Told     bool // what a check says to the holder is a proof of life
	HalfOpen bool // connections of the dead stay open
	Deaf     bool // a connection that hangs on a replica stays so
	Ghost    bool // a SUBSCRIBE that client A gave up is under way from the beginning
	HalfOld  bool // an old connection may still be counted after its client has made a new one

	// Liveness. The faults happen within Ticks; from every state that is reached, everything is prompt from
	// then on, and every live waiter has to be served, and nothing to be left, within the limits. Without
	// Timed, waiters may check at any time instead, which is all the safety needs to know of timers.
	Timed  bool
	Ticks  int8
	Serve  int  // ticks in which the last live waiter is served; 0: do not ask
	Clean  int  // ticks after which nothing is held or queued that nobody uses; 0: do not ask
	Sticky bool // a holder keeps the lock as long as nobody seems to wait (readers of one process that overlap)

	Want Violation // which one there has to be; none with all rules
	Big  bool      // too big for the tests
}

// Kind is the kind of primitive.
type Kind int8

// The kinds.
const (
	Mutex Kind = iota
	RWMutex
	Semaphore
)

func (c *Config) keeps(r Rule) bool { return c.Without&r == 0 }

// Violation is what must not happen.
type Violation string

// The violations. A suffix " (requests lost)" on the last three says that the requests in flight were lost
// after the faults; otherwise they arrive, late.
const (
	TooMany    Violation = "more certain holders than fit"
	TokenFell  Violation = "a token does not rise"
	NotCovered Violation = "a certain hold that the server does not know"
	Twice      Violation = "an attempt stands twice on the server"
	ServedLate Violation = "a live waiter is served late"
	NeverIn    Violation = "a live waiter is never served"
	LeftTaken  Violation = "something stays taken"
)
