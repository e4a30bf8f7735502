package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/valkeysync/valkeysync"
)

const statusUsage = `Usage: valkeysync status [-json] KEY

Shows who holds the lock, since when, for how long at least and with which token, and who waits for it: as it
was at that moment. It works for all primitives, and for keys that other programs lock (SET key value NX PX).

Flags:
  -json          for programs: times are in milliseconds, remaining_ms is null where there is no expiry
` + serverUsage + `
Exit status: 0, whoever has it; 2 wrong usage, or the server cannot be used.
`

func statusCommand(w World, args []string) int {
	f := flagSet("status")
	s := serverFlags(w, f)
	asJSON := f.Bool("json", false, "")
	key, err := parseKey(f, args)
	if err != nil {
		return w.wrongArgs("status", statusUsage, err, cannotRun)
	}
	st, err := s.status(w, key)
	if err != nil {
		return w.fail("status", ofKey(err), cannotRun)
	}
	if *asJSON {
		err = writeJSON(w.Out, st)
	} else {
		_, err = io.WriteString(w.Out, table(st))
	}
	if err != nil {
		return w.fail("status", err, cannotRun)
	}
	return fine
}

func (s *server) status(w World, key string) (valkeysync.Status, error) {
	locks, end, err := s.locks(w)
	if err != nil {
		return valkeysync.Status{}, err
	}
	defer end()
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	return locks.Status(ctx, key)
}

// ofKey makes an error that a key was wrong one of usage.
func ofKey(err error) error {
	if errors.Is(err, valkeysync.ErrInvalidKey) || errors.Is(err, valkeysync.ErrInvalidOption) {
		return usageError{err}
	}
	return err
}

// table shows a lock to people.
func table(st valkeysync.Status) string {
	var b strings.Builder
	row := func(name, value string) { fmt.Fprintf(&b, "%-8s %s\n", name, value) }
	row("key", printable(st.Key))
	row("state", stateText(st))
	for _, h := range st.Holders {
		row("holder", holderText(h))
	}
	for i, q := range st.Queue {
		name := ""
		if i == 0 {
			name = "waiting"
		}
		row(name, fmt.Sprintf("%2d. %s", i+1, waiterText(q)))
	}
	if more := st.Waiting - len(st.Queue); more > 0 {
		row("", fmt.Sprintf("and %d more", more))
	}
	for _, line := range advice(st) {
		row("", line)
	}
	return strings.ReplaceAll(b.String(), " \n", "\n")
}

func stateText(st valkeysync.Status) string {
	switch st.State {
	case valkeysync.StateHeld:
		return "held"
	case valkeysync.StateForeign:
		return "held by another program"
	case valkeysync.StateNoExpiry:
		return "held by another program, without an expiry"
	case valkeysync.StateShared: // there is a holder
		if owner, ok := strings.CutPrefix(st.Holders[0].Mode, "owner "); ok {
			return fmt.Sprintf("held by owner %s, in %s", printable(owner), plural(int64(len(st.Holders)), "process", "processes"))
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

func holderText(h valkeysync.HolderStatus) string {
	parts := []string{printable(h.Name)}
	if h.Mode == "permit" {
		parts = append(parts, plural(h.Weight, "permit", "permits"))
	}
	if h.Token > 0 {
		parts = append(parts, "for "+short(h.Held))
	}
	if h.Remaining >= 0 {
		parts = append(parts, "lease ends in "+short(h.Remaining))
	} else {
		parts = append(parts, "no expiry")
	}
	if h.Token > 0 {
		parts = append(parts, "token "+strconv.FormatInt(h.Token, 10))
	}
	return strings.Join(parts, ", ")
}

func waiterText(q valkeysync.WaiterStatus) string {
	s := printable(q.Name)
	if owner, ok := strings.CutPrefix(q.Mode, "owner "); ok {
		return s + ", for owner " + printable(owner)
	}
	switch q.Mode {
	case "reader":
		s += ", to read"
	case "permit":
		s += ", for " + plural(q.Weight, "permit", "permits")
	}
	return s
}

// advice says what a person can do about a lock that stands oddly.
func advice(st valkeysync.Status) []string {
	switch st.State {
	case valkeysync.StateNoExpiry:
		return []string{
			"Nothing ends this but that program's own unlock. If it is gone:",
			"valkeysync unlock -force " + shellWord(st.Key),
		}
	case valkeysync.StateForeign:
		return []string{"It is none of valkeysync's: its program unlocks it (SET NX, compare and delete), or its expiry does."}
	}
	return nil
}

// statusJSON is how programs see a lock. Names stay as they are.
type statusJSON struct {
	Key     string       `json:"key"`
	State   string       `json:"state"`
	Holders []holderJSON `json:"holders"`
	Size    int64        `json:"size,omitempty"`
	Queue   []waiterJSON `json:"queue"`
	Waiting int          `json:"waiting"`
	Advice  []string     `json:"advice,omitempty"`
}

type holderJSON struct {
	Name        string `json:"name"`
	Client      string `json:"client,omitempty"`
	Mode        string `json:"mode"`
	Weight      int64  `json:"weight"`
	Token       int64  `json:"token,omitempty"`
	HeldMS      int64  `json:"held_ms"`
	RemainingMS *int64 `json:"remaining_ms"`
}

type waiterJSON struct {
	Name   string `json:"name"`
	Client string `json:"client"`
	Mode   string `json:"mode"`
	Weight int64  `json:"weight"`
}

func writeJSON(out io.Writer, st valkeysync.Status) error {
	return json.NewEncoder(out).Encode(jsonOf(st))
}

func jsonOf(st valkeysync.Status) statusJSON {
	j := statusJSON{
		Key: st.Key, State: string(st.State), Size: st.Size, Waiting: st.Waiting, Advice: advice(st),
		Holders: []holderJSON{}, Queue: []waiterJSON{},
	}
	for _, h := range st.Holders {
		o := holderJSON{Name: h.Name, Client: h.Client, Mode: h.Mode, Weight: h.Weight, Token: h.Token, HeldMS: h.Held.Milliseconds()}
		if h.Remaining >= 0 {
			ms := h.Remaining.Milliseconds()
			o.RemainingMS = &ms
		}
		j.Holders = append(j.Holders, o)
	}
	for _, q := range st.Queue {
		j.Queue = append(j.Queue, waiterJSON(q))
	}
	return j
}

// printable is text of somebody else's, which must not steer our terminal.
func printable(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// shellWord is a word that a shell reads as s.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.:/@%+=,", r)
	}
	switch {
	case strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return "KEY"
	case s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }):
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(n, 10) + " " + many
}

// short writes a duration as people say it.
func short(d time.Duration) string {
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
