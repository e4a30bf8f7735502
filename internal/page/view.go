package page

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/words"
)

// mostNames is how many who hold, and how many who wait, a page is told of by name.
const mostNames = 20

// text is something of somebody else's as it can be shown: quoted where it has what cannot be seen.
type text struct {
	Text   string `json:"text"`
	Quoted bool   `json:"quoted,omitempty"`
}

func shown(s string) text {
	t := words.Printable(s)
	return text{t, t != s}
}

// view is a lock as all pages show it. It does not change: when the lock does, there is another.
type view struct {
	st   valkeysync.Status
	at   time.Time // when it stood so
	free time.Time // since when it is free; zero: it is not, or nobody saw it otherwise
}

// lockJSON is a lock as a page gets it. Times are in ms from the moment of sending, so that no page's clock matters.
type lockJSON struct {
	ID      string       `json:"id"` // the key, exactly
	Key     text         `json:"key"`
	State   string       `json:"state"`
	Words   string       `json:"words"`
	Hold    string       `json:"hold,omitempty"` // who holds: see holdOf
	Holders []holderJSON `json:"holders"`
	Holding int          `json:"holding"` // how many hold
	Queue   []waiterJSON `json:"queue"`
	Waiting int          `json:"waiting"`
	FreeMS  *int64       `json:"free_ms,omitempty"`
}

type holderJSON struct {
	Name   text   `json:"name"`
	Client string `json:"client,omitempty"`
	Mode   string `json:"mode"`
	Weight int64  `json:"weight"`
	Token  string `json:"token,omitempty"` // as text: it has more digits than a number in JavaScript
	HeldMS *int64 `json:"held_ms"`         // null: not known
	LeftMS *int64 `json:"left_ms"`         // null: no expiry
}

type waiterJSON struct {
	Name   text   `json:"name"`
	Mode   string `json:"mode"`
	Weight int64  `json:"weight"`
	WaitMS int64  `json:"wait_ms"`
}

func idOf(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

func keyOf(id string) (string, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(id)
	return string(b), err
}

func (v *view) json(now time.Time) lockJSON {
	age := now.Sub(v.at)
	j := lockJSON{
		ID: idOf(v.st.Key), Key: shown(v.st.Key), State: string(v.st.State), Words: stateOf(v.st), Hold: holdOf(v.st),
		Holders: []holderJSON{}, Holding: len(v.st.Holders), Queue: []waiterJSON{}, Waiting: v.st.Waiting,
	}
	if !v.free.IsZero() {
		j.FreeMS = ms(now.Sub(v.free))
	}
	for _, h := range v.st.Holders[:min(mostNames, len(v.st.Holders))] {
		o := holderJSON{Name: shown(h.Name), Client: h.Client, Mode: modeOf(h.Mode), Weight: h.Weight}
		if h.Token > 0 {
			o.Token = strconv.FormatInt(h.Token, 10)
			o.HeldMS = ms(h.Held + age)
		}
		if h.Remaining >= 0 {
			o.LeftMS = ms(h.Remaining - age)
		}
		j.Holders = append(j.Holders, o)
	}
	for _, q := range v.st.Queue[:min(mostNames, len(v.st.Queue))] {
		j.Queue = append(j.Queue, waiterJSON{shown(q.Name), modeOf(q.Mode), q.Weight, *ms(q.Waited + age)})
	}
	return j
}

// same: nobody could tell the two apart, whatever time has passed in between.
func (v *view) same(o *view) bool {
	return v.st.State == o.st.State && v.st.Size == o.st.Size && v.st.Waiting == o.st.Waiting && v.free.Equal(o.free) &&
		slices.EqualFunc(v.st.Holders, o.st.Holders, func(a, b valkeysync.HolderStatus) bool {
			ends := endOf(a, v.at).Sub(endOf(b, o.at)).Abs()
			return identity(a) == identity(b) && a.Mode == b.Mode && a.Weight == b.Weight && ends < 50*time.Millisecond
		}) &&
		slices.EqualFunc(v.st.Queue, o.st.Queue, func(a, b valkeysync.WaiterStatus) bool {
			a.Waited, b.Waited = 0, 0
			return a == b
		})
}

func ms(d time.Duration) *int64 {
	n := d.Milliseconds()
	return &n
}

// stateOf is how a lock stands, in few words.
func stateOf(st valkeysync.Status) string {
	switch st.State {
	case valkeysync.StateForeign:
		return "another program"
	case valkeysync.StateNoExpiry:
		return "another program, no expiry"
	}
	return words.State(st)
}

// modeOf is a mode with the owner in it as it can be shown.
func modeOf(mode string) string {
	if owner, ok := words.Owner(mode); ok {
		return "owner " + owner
	}
	return mode
}

// holdOf names who holds a lock, all of them: it is another one as soon as anybody has come or gone. "" for nobody.
func holdOf(st valkeysync.Status) string {
	if len(st.Holders) == 0 {
		return ""
	}
	var all []string
	for _, h := range st.Holders {
		all = append(all, identity(h))
	}
	slices.Sort(all)
	digest := sha256.New()
	for _, one := range all {
		digest.Write([]byte(one + "\n"))
	}
	return hex.EncodeToString(digest.Sum(nil)[:16])
}

// identity tells one hold of a key from every other. That of another program is its value.
func identity(h valkeysync.HolderStatus) string {
	if h.Token > 0 {
		return fmt.Sprintf("%d %q", h.Token, h.Client)
	}
	return fmt.Sprintf("%q", h.Name)
}
