package model

import (
	"fmt"
	"strings"
)

var (
	clientNames  = [maxClients]string{"A", "B", "C"}
	requestNames = [...]string{"", "acquire", "acquire (try)", "release", "leave", "check", "renew", "beat"}
	resultNames  = [...]string{"", "held", "queued", "gone", "busy", "late", "released", "lost", "left", "counted"}
	verbNames    = [...]string{"", "grant", "front", "waits"}
)

func (e event) request() string {
	name := fmt.Sprintf("%s(#%d)", requestNames[e.kind], e.attempt)
	if e.next != 0 {
		name = fmt.Sprintf("%s(#%d, then #%d)", requestNames[e.kind], e.attempt, e.next)
	}
	return name
}

// String is the step in words.
func (e event) String() string {
	who := clientNames[e.client]
	attempt := fmt.Sprintf("#%d", e.attempt)
	switch e.what {
	case tick:
		return "a tick passes"
	case runs:
		return fmt.Sprintf("the server runs %s's %s", who, e.request())
	case reads:
		return fmt.Sprintf("%s reads the reply of %s: %s", who, e.request(), resultNames[e.result])
	case hears:
		return fmt.Sprintf("%s hears %s(%s)", who, verbNames[e.verb], attempt)
	case locks:
		return who + " locks: acquire(" + attempt + ")"
	case asksAgain:
		return who + " asks again: acquire(" + attempt + ")"
	case checks:
		return who + " sends check(" + attempt + ")"
	case givesUp:
		return who + "'s context ends: it gives " + attempt + " up"
	case unlocks:
		return who + " unlocks: release(" + attempt + ")"
	case unlocksNext:
		return fmt.Sprintf("%s unlocks: release(%s, then #%d)", who, attempt, e.next)
	case loses:
		return who + " takes its lease for lost"
	case renews:
		return who + " sends renew(" + attempt + ")"
	case beats:
		return who + " sends a beat"
	case leavesAgain:
		return who + " sends leave(" + attempt + ") once more"
	case hearsNothing:
		return fmt.Sprintf("%s hears nothing of %s", who, e.request())
	case breaks:
		return who + "'s subscriber connection breaks"
	case notices:
		return who + " notices that its subscription is no good"
	case resubscribes:
		return who + " is subscribed anew"
	case replaces:
		return who + " replaces its subscriber connection"
	case ghostly:
		return who + " gives up a SUBSCRIBE that is still under way"
	case ghostRuns:
		return "the server runs an old SUBSCRIBE of " + who
	case serverCloses:
		return "the server closes " + who + "'s subscriber connection"
	case serverClosesOld:
		return "the server closes an old connection of " + who
	case demoted:
		return who + "'s subscriber connection hangs on a replica now"
	case crashes:
		return who + " crashes"
	case foreignSets:
		return "a plain SET NX takes the lock"
	case foreignDeletes:
		return "the plain holder deletes the lock"
	}
	return "?"
}

func (m *Model) line(e event, s *State) string { return m.describe(e.String(), s) }

// describe sets a step beside how things stand after it.
func (m *Model) describe(step string, s *State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-62s", step)
	switch {
	case s.foreign:
		b.WriteString(" lock: foreign")
	case s.nHolds == 0:
		b.WriteString(" lock: free")
	default:
		b.WriteString(" lock:")
		for _, h := range s.holds[:s.nHolds] {
			fmt.Fprintf(&b, " %s#%d for %d", clientNames[h.client], h.attempt, h.end-s.now)
		}
	}
	if s.nQueue > 0 {
		b.WriteString("; queue:")
		for _, p := range s.queue[:s.nQueue] {
			fmt.Fprintf(&b, " %s#%d", clientNames[p.client], p.attempt)
		}
	}
	for ci := range int8(m.Clients) {
		if c := &s.clients[ci]; c.phase == holding {
			fmt.Fprintf(&b, "; %s certain for %d", clientNames[ci], max(m.deadline(ci, c)-s.now, 0))
		}
	}
	return b.String()
}
