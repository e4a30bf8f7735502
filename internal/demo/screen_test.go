package demo

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
)

func TestOnATerminalProgressIsOneLineThatIsWrittenOver(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, terminal: true}
	s.progress("one")
	s.progress(strings.Repeat("é", 200))
	s.note("something happened")
	s.progress("two")
	s.print("table\n")
	const wipe = "\r\x1b[K"
	require.Equal(t, "one"+wipe+strings.Repeat("é", width-1)+"…"+wipe+"something happened\n"+"two"+wipe+"table\n", out.String())
}

func TestInAFileProgressIsALineEachTime(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	s := newScreen(f)
	long := strings.Repeat("x", 200)
	s.progress("one")
	s.note("something happened")
	s.progress(long)
	s.print("table\n")
	b, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	require.Equal(t, "one\nsomething happened\n"+long+"\ntable\n", string(b))
	require.NoError(t, f.Close())
}

func TestWhoHoldsAndWhoWaits(t *testing.T) {
	var st valkeysync.Status
	require.Equal(t, "nobody holds", who(st))
	st.Holders = []valkeysync.HolderStatus{{Name: "worker 3"}}
	require.Equal(t, "worker 3 holds", who(st))
	for _, n := range []string{"1", "2", "4", "5", "6", "7", "8"} {
		st.Queue = append(st.Queue, valkeysync.WaiterStatus{Name: "worker " + n})
	}
	st.Waiting = 7
	require.Equal(t, "worker 3 holds; waiting: 1, 2, 4, 5, 6, 7 and 1 more", who(st))
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -100: "-100"} {
		require.Equal(t, want, grouped(n))
	}
}
