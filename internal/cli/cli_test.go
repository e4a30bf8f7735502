package cli

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/words"
)

// call runs the program in this process.
func call(in string, args ...string) (status int, out, err string) {
	var o, e bytes.Buffer
	w := World{In: strings.NewReader(in), Out: &o, Err: &e, Getenv: func(string) string { return "" }}
	status = Run(w, args)
	return status, o.String(), e.String()
}

func TestHelpAndWrongUsage(t *testing.T) {
	for _, c := range []struct {
		args   []string
		status int
		out    string // in standard output
		err    string // in standard error
	}{
		{[]string{"help", "lock"}, 2, "", `unknown command "lock"`},
		{[]string{"help", "run"}, 0, "124  the lock could not be had in time", ""},
		{[]string{"run", "-h"}, 0, "VALKEYSYNC_TOKEN", ""},
		{[]string{"doctor", "--help"}, 0, "Exit status", ""},
		{[]string{"status"}, 2, "", "give one KEY"},
		{[]string{"status", "a", "b"}, 2, "", "`valkeysync help status` has all of it"},
		{[]string{"status", "-url", "valkey://me:hidden@127.0.0.1:1", "k"}, 2, "", "valkey://me:xxxxx@127.0.0.1:1"},
		{[]string{"status", "-url", "http://me:hidden@h", "k"}, 2, "", "http://me:xxxxx@h"},
		{[]string{"status", "-cacert", "/none", "k"}, 2, "", "valkeys://"},
		{[]string{"ls", "a", "b"}, 2, "", "one PREFIX"},
		{[]string{"bench", "-duration", "5"}, 2, "", "with its unit"},
		{[]string{"doctor", "now"}, 2, "", `unexpected "now"`},
		{[]string{"unlock", "k"}, 2, "", "-force"},
		{[]string{"unlock", "-force", "k"}, 2, "", "-yes"},
		{[]string{"run"}, 125, "", "give a KEY"},
		{[]string{"run", "k", "true"}, 125, "", "run k -- true"},
		{[]string{"run", "k", "j", "--", "true"}, 125, "", `unexpected "j"`},
		{[]string{"run", "k", "--"}, 125, "", "give a COMMAND"},
		{[]string{"run", "-shared", "-permits", "1/2", "k", "--", "true"}, 125, "", "exclude each other"},
		{[]string{"run", "-permits", "3/2", "k", "--", "true"}, 125, "", "such as 1/3"},
		{[]string{"run", "-wait", "-1s", "k", "--", "true"}, 125, "", "with its unit"},
		{[]string{"run", "k", "--", "no-such-command"}, 127, "", "not found"},
		{[]string{"run", "k", "--", "/no/such/command"}, 127, "", "no such file"},
		{[]string{"run", "-url", "valkey://127.0.0.1:1", "k", "--", "true"}, 125, "", "connection refused"},
	} {
		status, out, err := call("", c.args...)
		require.Equal(t, c.status, status, c.args)
		if c.out == "" {
			require.Empty(t, out, c.args)
		}
		require.Contains(t, out, c.out, c.args)
		require.Contains(t, err, c.err, c.args)
		require.NotContains(t, err, "hidden")
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	_, list, _ := call("", "help")
	for _, c := range commands() {
		require.Contains(t, list, "\n  "+c.name+" ")
		status, out, err := call("", "help", c.name)
		require.Equal(t, fine, status)
		require.Empty(t, err)
		require.Contains(t, out, "Usage: valkeysync "+c.name)
		for line := range strings.Lines(out) {
			require.LessOrEqual(t, len([]rune(line)), 121, line)
		}
		if c.usage != "" && c.name != "version" {
			require.Contains(t, out, "-url URL")
			require.Contains(t, out, "Exit status: ")
		}
	}
}

func TestFlagsMayStandOnBothSidesOfTheKey(t *testing.T) {
	j, err := parseRun(World{Getenv: func(string) string { return "" }},
		[]string{"-wait", "3s", "k", "-permits", "2/5", "-lease=1m", "--", "sleep", "-h", "--", "x"})
	require.NoError(t, err)
	require.Equal(t, "k", j.key)
	require.Equal(t, []string{"sleep", "-h", "--", "x"}, j.argv)
	require.Equal(t, []any{3 * time.Second, time.Minute, int64(2), int64(5)}, []any{j.wait, j.lease, j.n, j.size})

	j, err = parseRun(World{Getenv: func(name string) string { return map[string]string{urlVariable: "valkey://env:1"}[name] }}, []string{"k", "--", "true"})
	require.NoError(t, err)
	require.Equal(t, "valkey://env:1", j.server.url)
	require.Equal(t, forever, j.wait)
}

func TestTheNameOfAHolderCanAlwaysBeShown(t *testing.T) {
	for _, command := range []string{"x", "/bin/x\ny", strings.Repeat("ä", 200), "\xff"} {
		name := holderName(command)
		require.LessOrEqual(t, len(name), 128)
		require.Equal(t, name, words.Printable(name))
	}
}

func TestWhatAShellReads(t *testing.T) {
	for s, want := range map[string]string{
		"orders": "orders", "{a}:b": "'{a}:b'", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "": "''", "a\x1b": "KEY",
	} {
		require.Equal(t, want, shellWord(s), s)
	}
}

// TestWhatOthersNamedDoesNotSteerTheTerminal: keys and values are anybody's.
func TestWhatOthersNamedDoesNotSteerTheTerminal(t *testing.T) {
	st := valkeysync.Status{
		Key: "k\x1b[2J", State: valkeysync.StateNoExpiry, Waiting: 150,
		Holders: []valkeysync.HolderStatus{{Name: "v\x1b]0;x\a", Mode: "foreign", Weight: 1, Remaining: -1}},
		Queue:   []valkeysync.WaiterStatus{{Name: "w\r", Mode: "permit", Weight: 2}},
	}
	text := table(st) + changeText(st)
	for _, r := range text {
		require.True(t, r == '\n' || r >= ' ', "%q", text)
	}
	require.Contains(t, text, "without an expiry")
	require.Contains(t, text, "for 2 permits")
	require.Contains(t, text, "and 149 more")
	require.Contains(t, text, "unlock -force KEY")
}

func TestRemediesAreFound(t *testing.T) {
	require.Contains(t, connectRemedy(errors.New("dial tcp: connection refused")), "is the server running")
	require.Contains(t, connectRemedy(errors.New("x509: certificate signed by unknown authority")), "-cacert")
	require.Contains(t, connectRemedy(errors.New("what")), "is the server running")
	require.Contains(t, rightRemedy(errors.New("OOM"), ""), "maxmemory")
	require.Empty(t, rightRemedy(errors.New("what"), ""))
}
