package page

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valkeysync/valkeysync"
)

// loss is how a hold ended otherwise than by its own release; "" where it did not, or where that cannot be known.
//
// From outside a release looks like this: with nobody waiting, as a DEL; with somebody waiting, as another value in
// the key, without a DEL. So an operator's DEL or a ForceUnlock of a lock that nobody waits for cannot be told from
// a release, and is not shown. docs/operations.md says so.
type loss string

const (
	lossExpired     loss = "expired"
	lossEvicted     loss = "evicted"
	lossDeleted     loss = "deleted"
	lossRenamed     loss = "renamed"
	lossOverwritten loss = "overwritten"
	lossVanished    loss = "vanished"
	lossUnlocked    loss = "unlocked"
)

var lossWords = map[loss]string{
	lossExpired:     "The lease ran out and was not renewed: its holder died, hangs or was cut off.",
	lossEvicted:     "The server evicted it for want of memory (maxmemory-policy).",
	lossDeleted:     "Deleted while somebody waited, which no release does: a DEL, or a forced unlock.",
	lossRenamed:     "Its key was renamed.",
	lossOverwritten: "Another program wrote over it, without a DEL.",
	lossVanished:    "Gone without a notification: FLUSHALL or FLUSHDB, or one was missed.",
	lossUnlocked:    "Taken by unlock on this page.",
}

// ending is a hold that is no more, until it is known how it ended: notifications may come after the look.
type ending struct {
	hold   valkeysync.HolderStatus
	before valkeysync.Status // as it was last seen
	until  time.Time         // when its lease was to end, as last seen; zero: never
	looked time.Time         // when that look was sent
	first  time.Time         // when it was first seen
	gone   time.Time         // when the look was sent that did not find it
	seen   time.Time         // when that look was answered
	after  valkeysync.Status
}

// judge says how a hold ended, by what was heard of its lock. slack is how late a notification may be: what comes
// sooner after a hold was first seen may be about the one before.
func (e *ending) judge(heard []event, slack time.Duration) loss {
	var of []event // of the lock and its queue, since the last look that found the hold
	for _, one := range heard {
		switch {
		case one.at.Before(e.looked):
		case one.name == unlockedHere:
			return ""
		case one.part == "" || one.part == ":queue":
			of = append(of, one)
		}
	}
	sure := func(one event) bool { return one.at.Sub(e.first) >= slack }
	is := func(name string) bool {
		return slices.ContainsFunc(of, func(one event) bool { return one.part == "" && one.name == name && sure(one) })
	}
	quiet := !slices.ContainsFunc(of, func(one event) bool { return one.part == "" })
	free := e.after.State == valkeysync.StateFree
	// Its lease had ended when it was not found any more, unless it was renewed and nobody looked for long.
	over := !e.until.IsZero() && !e.until.After(e.gone) &&
		!slices.ContainsFunc(of, func(one event) bool { return one.part == "" && e.gone.Sub(one.at) > slack })
	switch {
	case is("evicted"):
		return lossEvicted
	case is("expired"):
		return lossExpired
	case e.before.State == valkeysync.StateShared && over && !(free && quiet): // a reader's or a permit's makes no event
		return lossExpired
	case is("rename_from"):
		return lossRenamed
	case e.hold.Mode == "foreign": // how others unlock is their own business
		return ""
	case e.before.Waiting > 0 && deleted(of, sure):
		return lossDeleted
	case slices.ContainsFunc(of, func(one event) bool { return one.part == "" && (one.name == "del" || one.name == omitted) }):
		return ""
	case isForeign(e.after):
		return lossOverwritten
	case quiet && free && e.seen.Sub(e.first) >= slack:
		return lossVanished
	}
	return ""
}

// deleted: the first that was heard of the lock was a DEL, and the queue had not been emptied before. A release deletes
// the lock only when nobody waits, and whoever leaves the queue as the last makes it go.
func deleted(of []event, sure func(event) bool) bool {
	for _, one := range of {
		switch {
		case one.part == "":
			return one.name == "del" && sure(one)
		case one.name != "expire": // that is how it is kept
			return false
		}
	}
	return false
}

func isForeign(st valkeysync.Status) bool {
	return st.State == valkeysync.StateForeign || st.State == valkeysync.StateNoExpiry
}

// lossEntry is the line of the log for a loss.
func lossEntry(how loss, st valkeysync.Status, h valkeysync.HolderStatus, at time.Time) entry {
	key, name := shown(st.Key), shown(h.Name)
	e := entry{At: at, Kind: string(how), Words: lossWords[how], ID: idOf(st.Key), Key: &key, Holder: &name}
	if h.Token > 0 {
		e.Token = strconv.FormatInt(h.Token, 10)
	}
	if owner, ok := strings.CutPrefix(modeOf(h.Mode), "owner "); ok {
		e.Words += fmt.Sprintf(" Owner: %s.", owner)
	}
	return e
}
