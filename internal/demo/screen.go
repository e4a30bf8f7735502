package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valkeysync/valkeysync"
)

// screen is where people look: a terminal, where the last line shows how things stand and is written
// over and over, or a file or pipe, where lines follow each other.
type screen struct {
	mu       sync.Mutex
	out      io.Writer
	terminal bool
	live     bool // the last line is one to be written over
}

// width is what a live line may fill: a longer one would be broken, and could not be written over.
const width = 79

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if f, ok := out.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// every is how often progress is shown.
func (s *screen) every() time.Duration {
	if s.terminal {
		return 200 * time.Millisecond
	}
	return time.Second
}

// print writes lines that stay.
func (s *screen) print(lines string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wipe()
	_, _ = io.WriteString(s.out, lines)
}

// note writes a line that stays, for something that happened on the way.
func (s *screen) note(line string) { s.print(line + "\n") }

// progress shows how things stand.
func (s *screen) progress(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		_, _ = io.WriteString(s.out, line+"\n")
		return
	}
	s.wipe()
	if r := []rune(line); len(r) > width {
		line = string(r[:width-1]) + "…"
	}
	_, _ = io.WriteString(s.out, line)
	s.live = true
}

// wipe makes room where the live line stands.
func (s *screen) wipe() {
	if s.live {
		_, _ = io.WriteString(s.out, "\r\x1b[K")
		s.live = false
	}
}

// grouped writes a number for people: 12,345.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// who says who holds and who waits.
func who(st valkeysync.Status) string {
	holds := "nobody holds"
	if len(st.Holders) > 0 {
		holds = st.Holders[0].Name + " holds"
	}
	if st.Waiting == 0 {
		return holds
	}
	const most = 6
	var names []string
	for _, w := range st.Queue[:min(most, len(st.Queue))] {
		names = append(names, strings.TrimPrefix(w.Name, "worker "))
	}
	waits := strings.Join(names, ", ")
	if more := st.Waiting - len(names); more > 0 {
		waits += fmt.Sprintf(" and %d more", more)
	}
	return holds + "; waiting: " + waits
}
