package proxy

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func strs(bs [][]byte) []string {
	var s []string
	for _, b := range bs {
		s = append(s, string(b))
	}
	return s
}

func TestSplitterFindsTheEndsOfCommands(t *testing.T) {
	cmds := []string{
		"*1\r\n$4\r\nPING\r\n",
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\na\r\n*1\r\n$b\r\n", // looks like a command inside
		"PING inline\r\n",
		"*0\r\n",
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
	}
	all := strings.Join(cmds, "")
	for size := 1; size <= len(all); size++ {
		var s splitter
		var got []string
		for chunk := range bytesChunks([]byte(all), size) {
			got = append(got, strs(s.feed(chunk))...)
		}
		require.Equal(t, cmds, got, "in chunks of %d", size)
	}
}

func bytesChunks(b []byte, size int) func(func([]byte) bool) {
	return func(yield func([]byte) bool) {
		for len(b) > 0 {
			n := min(size, len(b))
			if !yield(bytes.Clone(b[:n])) {
				return
			}
			b = b[n:]
		}
	}
}

func TestSplitterPassesOnWhatItDoesNotKnow(t *testing.T) {
	for _, bad := range []string{"*x\r\n", "*-1\r\n", "*1\r\n+PING\r\n", "*1\r\n$1\r\nab\r\n", "*1\r\n$99999999999999999999\r\n", "*11111111111111111111"} {
		var s splitter
		got := s.feed([]byte("PING\r\n" + bad))
		require.Equal(t, []string{"PING\r\n", bad}, strs(got), "%q", bad)
		require.Equal(t, []string{"*1\r\n"}, strs(s.feed([]byte("*1\r\n"))), "for ever after")
	}
}

func TestName(t *testing.T) {
	for cmd, want := range map[string]string{
		"*2\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n":   "SUBSCRIBE",
		"subscribe c\r\n":                        "SUBSCRIBE",
		"\r\n":                                   "",
		"*0\r\n":                                 "",
		"*2\r\n$3\r\nGET\r\n$9\r\nSUBSCRIBE\r\n": "GET",
	} {
		require.Equal(t, want, name([]byte(cmd)), "%q", cmd)
		require.Equal(t, want == "SUBSCRIBE", subscribes([]byte(cmd)))
	}
}

// FuzzSplitter: nothing is lost, doubled or reordered, however it is cut.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("*1\r\n$4\r\nPING\r\n"), uint8(3))
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$-1\r\n"), uint8(1))
	f.Add([]byte("PING\r\n*"), uint8(0))
	// Found by fuzzing: counts that are none, too long or too small, and what ends within a word.
	for _, in := range []string{
		"*\n\xff", "*\n*0", "*A0\n0000000  000 ", "*0000000000000000000    ", "*1\r\n$0\r\n", "*10\n$00000A\r\n000  ",
		"*1\r\n$7\r\n00000", "*2\n$3\n000\r\n$00", "*1\r\n$3\r\n0\xfa0\r\n0", "\n0\n00\n00 \n", "\x81\x8400 \n0 \n0\xfa0 \n",
	} {
		f.Add([]byte(in), uint8(0))
		f.Add([]byte(in), uint8(19))
	}
	f.Fuzz(func(t *testing.T, in []byte, size uint8) {
		var s splitter
		var out []byte
		for chunk := range bytesChunks(in, int(size)+1) {
			for _, cmd := range s.feed(chunk) {
				out = append(out, cmd...)
				name(cmd)
			}
		}
		if got := append(out, s.rest...); !bytes.Equal(in, got) {
			t.Fatalf("in %q, out %q", in, got)
		}
	})
}
