package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/words"
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
	row("key", words.Printable(st.Key))
	row("state", words.State(st))
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

func holderText(h valkeysync.HolderStatus) string {
	parts := []string{words.Printable(h.Name)}
	if h.Mode == "permit" {
		parts = append(parts, words.Plural(h.Weight, "permit", "permits"))
	}
	if h.Token > 0 {
		parts = append(parts, "for "+words.Short(h.Held))
	}
	if h.Remaining >= 0 {
		parts = append(parts, "lease ends in "+words.Short(h.Remaining))
	} else {
		parts = append(parts, "no expiry")
	}
	if h.Token > 0 {
		parts = append(parts, "token "+strconv.FormatInt(h.Token, 10))
	}
	return strings.Join(parts, ", ")
}

func waiterText(q valkeysync.WaiterStatus) string {
	s := words.Printable(q.Name)
	if owner, ok := words.Owner(q.Mode); ok {
		s += ", for owner " + owner
	}
	switch q.Mode {
	case "reader":
		s += ", to read"
	case "permit":
		s += ", for " + words.Plural(q.Weight, "permit", "permits")
	}
	return s + ", already " + words.Short(q.Waited)
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
	Name     string `json:"name"`
	Client   string `json:"client"`
	Mode     string `json:"mode"`
	Weight   int64  `json:"weight"`
	WaitedMS int64  `json:"waited_ms"`
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
		j.Queue = append(j.Queue, waiterJSON{q.Name, q.Client, q.Mode, q.Weight, q.Waited.Milliseconds()})
	}
	return j
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
