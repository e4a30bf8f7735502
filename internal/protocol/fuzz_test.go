package protocol

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// Whatever a key is, either it is refused, or its four keys share a slot and are four.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"orders", "{", "}", "{}", "", " ", "\n", "a\nb", "{a}b", "a{b}c}", "{a}{b}", "\x00\xff", strings.Repeat("k", 1024), "{" + strings.Repeat("k", 1024)} {
		f.Add("", key)
		f.Add("app:", key)
	}
	// Found by fuzzing: braces over the seam of prefix and key, blanks of other scripts, bytes that are no text.
	for _, k := range [][2]string{{"}", "a"}, {"{a", "b}"}, {"{", "}a{b}"}, {"a}", "}"}, {"", "\u0085   "}, {"", "\f\f"}, {"\x80", "}"}, {"}", "\xca  "}, {"\n\n}", "\u180e"}} {
		f.Add(k[0], k[1])
	}
	f.Fuzz(func(t *testing.T, prefix, key string) {
		k, err := KeysFor(prefix, key)
		if err != nil {
			if !errors.Is(err, ErrInvalidKey) || strings.TrimSpace(key) != "" && !strings.Contains(prefix+key, "}") {
				t.Fatalf("%q %q: %v", prefix, key, err)
			}
			return
		}
		if k.Lock != prefix+key {
			t.Fatalf("%q %q is locked as %q", prefix, key, k.Lock)
		}
		seen := map[string]bool{}
		for _, name := range k.list {
			if Slot(name) != Slot(k.Lock) {
				t.Fatalf("%q is in slot %d, %q in %d", name, Slot(name), k.Lock, Slot(k.Lock))
			}
			seen[name] = true
		}
		if len(seen) != len(k.list) {
			t.Fatalf("two of %q are the same", k.list)
		}
	})
}

// Anybody who may publish can write a message: nothing of it may do more than be refused.
func FuzzMessage(f *testing.F) {
	f.Add("grant m abc 12 34 2000 1 orders")
	f.Add("front w abc 0 34 1 0 a key with spaces")
	f.Add("grant m abc -1 34 2000 1 orders")
	f.Add("grant  m abc 1 34 99999999999999999999 1 orders")
	f.Add("")
	// Found by fuzzing: words that are missing or empty, numbers of every length.
	for _, text := range []string{"0", "  ", "       ", "      0 ", "    0 0 0 ", "   0 0 0 0 ", "   A A 0A A ", "     2170000000 2170000000 "} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := ParseMessage(text)
		if err != nil {
			return
		}
		if m.Number < 0 || m.Now < 0 || m.Lease < 0 || m.Waiting < 0 {
			t.Fatalf("%q is read as %+v", text, m)
		}
	})
}

// What is written of an attempt is read again, whatever its Client is called; what is not ours is foreign.
func FuzzEntry(f *testing.F) {
	f.Add("id", "1", "host/program[1]", int64(3), "something else")
	f.Add("id", "abc", "a name with spaces # and more", int64(1), "vs1 shared s5")
	f.Add("id", "abc", "", int64(1), "vs1 1 2 id#1 m x 1 1 1 1 name")
	// Found by fuzzing: values that end early, numbers that are none, names that are no text.
	for _, value := range []string{"vs1", "vs1 0 0", "vs1 A A", "vs1 0 0 0", "vs1 0 0 ", "vs1 10000000000000000000 ", "vs1 0 0 #  0 0 0 0 0 ", "vs1 0 0   0 A A A A "} {
		f.Add("\x80", "\xb1\xa8\xf5", "\x80", int64(147), value)
	}
	f.Fuzz(func(t *testing.T, client, attempt, name string, weight int64, value string) {
		ParseHolder(value) // must not panic
		if strings.ContainsAny(client+attempt, " #") || weight < 0 {
			return
		}
		e := Entry{
			Client: client, Attempt: attempt, Kind: SemaphoreKind(5), Mode: Permit, Weight: weight,
			Lease: 10 * time.Second, First: 2 * time.Second, Grace: time.Second, Name: name,
		}
		if got, ok := ParseEntry(e.String()); !ok || got != e {
			t.Fatalf("%+v is read as %+v", e, got)
		}
		h := ParseHolder(e.Hold(12, 34))
		if h.Foreign || h.Shared || h.Entry != e || h.Number != 12 || h.Since != 34 {
			t.Fatalf("%+v is read as %+v", e, h)
		}
	})
}
