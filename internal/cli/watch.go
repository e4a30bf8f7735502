package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/words"
)

const watchUsage = `Usage: valkeysync watch KEY

Shows who holds the lock and who waits for it, as that changes, until it is interrupted: on a terminal as a view
that is written over, otherwise a line for each change. It is woken by the server's keyspace notifications; where
they are off it says so, and looks every second. (The view on a terminal does that too, to show the times.)
` + serverUsage + `
Exit status: 0 when interrupted; 2 wrong usage, or the server cannot be used.
`

// lookEvery is for servers without notifications, and for the times in the view.
const lookEvery = time.Second

func watchCommand(w World, args []string) int {
	f := flagSet("watch")
	s := serverFlags(w, f)
	key, err := parseKey(f, args)
	if err != nil {
		return w.wrongArgs("watch", watchUsage, err, cannotRun)
	}
	locks, end, err := s.locks(w)
	if err != nil {
		return w.fail("watch", ofKey(err), cannotRun)
	}
	defer end()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	v := &view{w: w, live: isTerminal(w.Out) && w.Getenv("TERM") != "dumb"}
	if err := v.run(ctx, locks, key); err != nil {
		return w.fail("watch", ofKey(err), cannotRun)
	}
	return fine
}

// view is what watch shows.
type view struct {
	w     World
	live  bool // a terminal: it is written over
	last  valkeysync.Status
	at    time.Time // of last
	lines int       // that stand on the terminal
	plain string    // the line that was shown last, without a terminal
}

// seen is how the lock stood, or why that is not known.
type seen struct {
	st  valkeysync.Status
	err error
}

// run shows changes until ctx ends.
func (v *view) run(ctx context.Context, locks *valkeysync.Client, key string) error {
	changes := make(chan seen)
	go func() {
		defer close(changes)
		for st, err := range locks.Watch(ctx, key) {
			changes <- seen{st, err}
		}
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var last error // that was not told yet
	tell := func() {
		if last != nil {
			v.note(last)
			last = nil
		}
	}
	blind := false // there are no notifications
	for {
		select {
		case c, more := <-changes:
			switch {
			case !more && ctx.Err() != nil:
				return nil
			case !more && !blind:
				return orElseErr(last)
			case !more:
				changes = nil
			case errors.Is(c.err, valkeysync.ErrNoNotifications):
				blind = true
				fmt.Fprintf(v.w.Err, "valkeysync watch: the server's keyspace notifications are off: looking every %v. To have it told at once: CONFIG SET notify-keyspace-events Kgxe\n", lookEvery)
				v.look(ctx, locks, key)
			case protocol.Denied(c.err) && !v.at.IsZero(): // it could be looked at
				blind = true
				fmt.Fprintf(v.w.Err, "valkeysync watch: this user may not hear the key's notifications: looking every %v. To have it told at once: &__keyspace@0__:KEY &__keyspace@0__:{KEY}:queue\n", lookEvery)
				v.look(ctx, locks, key)
			case c.err != nil:
				tell()
				last = c.err // to be told with the status, if it is the end
			default:
				tell()
				v.show(c.st)
			}
		case <-tick.C:
			tell()
			if blind || v.live && v.lines > 0 {
				v.look(ctx, locks, key)
			}
		case <-ctx.Done():
			if changes == nil {
				return nil
			}
			for range changes { // let Watch end
			}
			return nil
		}
	}
}

func (v *view) look(ctx context.Context, locks *valkeysync.Client, key string) {
	limit, cancel := limited(ctx)
	defer cancel()
	switch st, err := locks.Status(limit, key); {
	case ctx.Err() != nil: // interrupted
	case err != nil:
		v.note(err)
	default:
		v.show(st)
	}
}

// note tells of an error, once.
func (v *view) note(err error) {
	text := time.Now().Format(clock) + "  " + strings.TrimPrefix(err.Error(), "valkeysync: ")
	if v.plain != text[len(clock):] {
		v.plain = text[len(clock):]
		v.lines = 0 // what stands there stays
		fmt.Fprintln(v.w.Err, text)
	}
}

const clock = "15:04:05.000"

func (v *view) show(st valkeysync.Status) {
	v.last, v.at = st, time.Now()
	if v.live {
		v.draw()
		return
	}
	if line := changeText(st); line != v.plain {
		v.plain = line
		fmt.Fprintf(v.w.Out, "%s  %s\n", v.at.Format(clock), line)
	}
}

// draw writes the view over the one that stands there.
func (v *view) draw() {
	rows, columns := size(v.w.Out)
	text := strings.Split(strings.TrimSuffix(v.at.Format(clock)+"\n"+table(v.last), "\n"), "\n")
	if len(text) > rows-1 {
		text = append(text[:rows-2], "…")
	}
	var b strings.Builder
	if v.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.lines)
	}
	b.WriteString("\r\x1b[J")
	for _, line := range text {
		if r := []rune(line); len(r) > columns {
			line = string(r[:columns-1]) + "…"
		}
		b.WriteString(line + "\n")
	}
	v.lines = len(text)
	fmt.Fprint(v.w.Out, b.String())
}

// changeText is the lock in one line, without anything that passes by itself.
func changeText(st valkeysync.Status) string {
	var holders []string
	for _, h := range st.Holders {
		s := words.Printable(h.Name)
		if h.Token > 0 {
			s += fmt.Sprintf(" (token %d)", h.Token)
		}
		holders = append(holders, s)
	}
	text := words.State(st)
	if len(holders) > 0 {
		text += ": " + strings.Join(holders, ", ")
	}
	if st.Waiting > 0 {
		var names []string
		for _, q := range st.Queue[:min(5, len(st.Queue))] {
			names = append(names, words.Printable(q.Name))
		}
		text += fmt.Sprintf("; %d waiting: %s", st.Waiting, strings.Join(names, ", "))
		if st.Waiting > len(names) {
			text += ", …"
		}
	}
	return text
}

// orElseErr is err; there is one where a watch has ended by itself.
func orElseErr(err error) error {
	if err == nil {
		err = errors.New("the server refuses to go on")
	}
	return err
}
