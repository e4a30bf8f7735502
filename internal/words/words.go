// Package words is how a lock is put in words for people, on a terminal and on a page.
package words

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/valkeysync/valkeysync"
)

// Printable is text of somebody else's, which must not steer our terminal, nor hide what it is: as it stands where
// all of it can be seen, quoted as in Go otherwise.
func Printable(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// State says how a lock stands.
func State(st valkeysync.Status) string {
	switch st.State {
	case valkeysync.StateHeld:
		return "held"
	case valkeysync.StateForeign:
		return "held by another program"
	case valkeysync.StateNoExpiry:
		return "held by another program, without an expiry"
	case valkeysync.StateShared: // there is a holder
		if owner, ok := Owner(st.Holders[0].Mode); ok {
			return fmt.Sprintf("held by owner %s, in %s", owner, Plural(int64(len(st.Holders)), "process", "processes"))
		}
		if st.Size == 0 {
			return "read by " + strconv.Itoa(len(st.Holders))
		}
		var out int64
		for _, h := range st.Holders {
			out += h.Weight
		}
		return fmt.Sprintf("%d of %d permits out", out, st.Size)
	}
	return string(st.State)
}

// Owner is the owner in the mode of a holder or of one who waits, as it can be shown.
func Owner(mode string) (owner string, ok bool) {
	owner, ok = strings.CutPrefix(mode, "owner ")
	return Printable(owner), ok
}

// Plural is a number of things.
func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// Short writes a duration as people say it.
func Short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
