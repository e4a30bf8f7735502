package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/scan"
	"github.com/valkeysync/valkeysync/internal/words"
)

const lsUsage = `Usage: valkeysync ls [-all] [-json] [-limit N] [-scan N] [PREFIX]

Lists the locks whose keys begin with PREFIX (all without one) that are held or waited for. It looks through the
keys of the server with SCAN, of all primaries of a cluster, a thousand at a time, so that it is in nobody's way.

A key that another program locked (SET NX) looks like any other: it is listed where somebody waits for it, or
where valkeysync held it within the last hour.

Flags:
  -all           list free ones as well: locks that were in use within the last hour
  -json          for programs: a line for each lock, as of status -json
  -limit N       stop after N locks (default 100)
  -scan N        stop after about N keys of each primary (default 1000000)
` + serverUsage + `
Exit status: 0, also where there are none; 2 wrong usage, or the server cannot be used.
`

// lister is one run of ls.
type lister struct {
	w         World
	base      string // the Client's prefix
	prefix    string // the whole of it
	all, json bool
	limit     int
	scan      int
	locks     *valkeysync.Client
	client    valkey.Client

	found []valkeysync.Status
	cut   string // why there may be more
}

func lsCommand(w World, args []string) int {
	f := flagSet("ls")
	s := serverFlags(w, f)
	l := &lister{w: w, limit: 100, scan: 1_000_000}
	f.BoolVar(&l.all, "all", false, "")
	f.BoolVar(&l.json, "json", false, "")
	countVar(f, &l.limit, "limit")
	countVar(f, &l.scan, "scan")
	plain, behind, err := parse(f, args)
	plain = append(plain, behind...)
	if err == nil && len(plain) > 1 {
		err = fmt.Errorf("unexpected %q: give one PREFIX", plain[1])
	}
	if err != nil {
		return w.wrongArgs("ls", lsUsage, err, cannotRun)
	}
	l.base, l.prefix = s.prefix, s.prefix+strings.Join(plain, "")
	var end func()
	if l.locks, l.client, end, err = s.both(w, nil); err != nil {
		return w.fail("ls", ofKey(err), cannotRun)
	}
	defer end()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := l.look(ctx); err != nil && ctx.Err() == nil {
		if protocol.Denied(err) {
			err = fmt.Errorf("%w; ls needs +scan +getrange besides what README.md says in section ACL", err)
		}
		return w.fail("ls", err, cannotRun)
	}
	if ctx.Err() != nil {
		l.cut = "interrupted"
	}
	l.print()
	return fine
}

// look finds the locks.
func (l *lister) look(ctx context.Context) error {
	left, err := scan.Locks(ctx, l.client, l.prefix, l.scan, func(lock string) (bool, error) {
		err := l.add(ctx, lock)
		return len(l.found) < l.limit, err
	})
	if left && l.cut == "" {
		l.cut = fmt.Sprintf("looked at about %d keys of each primary: -scan to look at more", l.scan)
	}
	return err
}

func (l *lister) add(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	st, err := l.locks.Status(ctx, strings.TrimPrefix(name, l.base)) // what SCAN finds are whole keys
	var reply *valkey.ValkeyError
	if errors.As(err, &reply) && strings.Contains(reply.Error(), "WRONGTYPE") || errors.Is(err, valkeysync.ErrInvalidKey) {
		return nil // keys of another program that are named like ours, or one that is the prefix and no more
	}
	if err != nil {
		return err
	}
	if scan.Ours(st) && (l.all || scan.Used(st)) {
		if l.found = append(l.found, st); len(l.found) >= l.limit {
			l.cut = fmt.Sprintf("the first %d: -limit for more", l.limit)
		}
	}
	return nil
}

func (l *lister) print() {
	slices.SortFunc(l.found, func(a, b valkeysync.Status) int { return strings.Compare(a.Key, b.Key) })
	if l.json {
		enc := json.NewEncoder(l.w.Out)
		for _, st := range l.found {
			_ = enc.Encode(jsonOf(st))
		}
	} else {
		l.table()
	}
	if l.cut != "" {
		fmt.Fprintf(l.w.Err, "valkeysync ls: %s\n", l.cut)
	}
}

func (l *lister) table() {
	if len(l.found) == 0 {
		fmt.Fprintln(l.w.Err, "valkeysync ls: no locks")
		return
	}
	t := tabwriter.NewWriter(l.w.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "KEY\tSTATE\tHOLDER\tHELD\tLEASE ENDS IN\tWAITING")
	for _, st := range l.found {
		holder, held, left := "-", "-", "-"
		if len(st.Holders) > 0 {
			h := st.Holders[0]
			holder = words.Printable(h.Name)
			if more := len(st.Holders) - 1; more > 0 {
				holder += fmt.Sprintf(" and %d more", more)
			}
			if h.Token > 0 {
				held = words.Short(h.Held)
			}
			if left = "never"; h.Remaining >= 0 {
				left = words.Short(h.Remaining)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", words.Printable(st.Key), st.State, holder, held, left, st.Waiting)
	}
	_ = t.Flush()
	for _, st := range l.found {
		if st.State == valkeysync.StateNoExpiry {
			fmt.Fprintf(l.w.Err, "%s has no expiry: if its program is gone, `valkeysync unlock -force %s`\n", words.Printable(st.Key), shellWord(st.Key))
		}
	}
}
