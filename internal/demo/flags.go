package demo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/valkeysync/valkeysync/internal/dial"
)

// settings are what the demo was asked for.
type settings struct {
	url        string // "" for the embedded server
	workers    int
	goroutines int
	duration   time.Duration
	noLock     bool
}

// The bounds of the flags: what one machine can do, and what a person waits for.
const (
	mostWorkers    = 64
	mostGoroutines = 1000
	leastDuration  = 100 * time.Millisecond
	mostDuration   = 24 * time.Hour
)

const usage = `Usage: valkeysync demo [flags]

Starts several processes of several goroutines that all increment one counter on one
server: read it, add one, write it back. Without a lock that loses updates; here each
of them holds a valkeysync Mutex meanwhile. Shows who holds and who waits, and at the
end what was lost and what it cost.

Flags:
  -url URL         a real server: valkey://, valkeys:// (TLS), redis://, rediss:// or
                   unix://, with user and password as in valkey://user:password@host:6379/0
                   (default: a server inside the demo)
  -workers N       processes, 1 to 64 (default 4)
  -goroutines N    goroutines in each of them, 1 to 1000 (default 4)
  -duration D      how long, such as 500ms, 10s or 1m (default 5s)
  -no-lock         the same without the lock: see updates get lost

Ctrl-C ends it early, with the table.

Exit status: 0 no update was lost; 1 updates were lost; 2 wrong usage, or it could not run.
`

// parse reads the flags. It reports flag.ErrHelp where help was asked for, and shown.
func parse(args []string, help io.Writer) (settings, error) {
	s := settings{workers: 4, goroutines: 4, duration: 5 * time.Second}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // whoever calls shows the error, once
	flags.Usage = func() {}
	flags.StringVar(&s.url, "url", "", "")
	flags.Func("workers", "", func(v string) error { return number(v, mostWorkers, &s.workers) })
	flags.Func("goroutines", "", func(v string) error { return number(v, mostGoroutines, &s.goroutines) })
	flags.Func("duration", "", func(v string) error { return duration(v, &s.duration) })
	flags.BoolVar(&s.noLock, "no-lock", false, "")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		_, _ = io.WriteString(help, usage)
		return s, err
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected %q: all that can be given are flags, and they begin with -", flags.Arg(0))
	}
	if err == nil && s.url != "" {
		err = dial.Check("-url", s.url)
	}
	return s, err
}

func number(v string, most int, to *int) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("give a whole number from 1 to %d", most)
	}
	*to = n
	return nil
}

func duration(v string, to *time.Duration) error {
	d, err := time.ParseDuration(v)
	if err != nil {
		return errors.New("give a number with its unit, such as 500ms, 10s or 1m")
	}
	if d < leastDuration || d > mostDuration {
		return fmt.Errorf("give %v to %v", leastDuration, mostDuration)
	}
	*to = d
	return nil
}
