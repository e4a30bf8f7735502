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

// scanStep is how many keys one SCAN looks at.
const scanStep = 1000

// lister is one run of ls.
type lister struct {
	w         World
	prefix    string // the whole of it
	all, json bool
	limit     int
	scan      int
	locks     *valkeysync.Client
	client    valkey.Client

	seen  map[string]bool
	found []valkeysync.Status
	cut   string // why there may be more
}

func lsCommand(w World, args []string) int {
	f := flagSet("ls")
	s := serverFlags(w, f)
	l := &lister{w: w, limit: 100, scan: 1_000_000, seen: map[string]bool{}}
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
	l.prefix = s.prefix + strings.Join(plain, "")
	s.prefix = "" // what SCAN finds are whole keys
	var end func()
	if l.locks, l.client, end, err = s.both(w, nil); err != nil {
		return w.fail("ls", ofKey(err), cannotRun)
	}
	defer end()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := l.look(ctx); err != nil && ctx.Err() == nil {
		return w.fail("ls", err, cannotRun)
	}
	if ctx.Err() != nil {
		l.cut = "interrupted"
	}
	l.print()
	return fine
}

// look looks at all primaries.
func (l *lister) look(ctx context.Context) error {
	if l.client.Mode() != valkey.ClientModeCluster {
		return l.node(ctx, l.client)
	}
	for _, node := range l.client.Nodes() { // replicas too, which have nothing new to tell
		if err := l.node(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// patterns match the keys of the locks, and those of their helpers: {orders}:queue (docs/protocol.md).
func (l *lister) patterns() []string {
	escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(l.prefix)
	if l.prefix == "" || l.prefix[0] == '{' {
		return []string{escaped + "*"}
	}
	return []string{escaped + "*", "{" + escaped + "*"}
}

func (l *lister) node(ctx context.Context, node valkey.Client) error {
	for _, pattern := range l.patterns() {
		for cursor, looked := uint64(0), 0; ; looked += scanStep {
			if looked >= l.scan {
				l.cut = fmt.Sprintf("looked at about %d keys of each primary: -scan to look at more", l.scan)
				break
			}
			page, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(scanStep).Build()).AsScanEntry()
			if err != nil {
				return fmt.Errorf("scan: %w", err)
			}
			if err := l.page(ctx, node, page.Elements); err != nil || len(l.found) >= l.limit {
				return err
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// page looks at the keys of one step.
func (l *lister) page(ctx context.Context, node valkey.Client, keys []string) error {
	var names, plain []string
	for _, key := range keys {
		if name, ok := lockOf(key); ok {
			names = append(names, name)
		} else {
			plain = append(plain, key)
		}
	}
	var values valkey.Commands
	for _, key := range plain {
		values = append(values, node.B().Getrange().Key(key).Start(0).End(int64(len(ourMark))-1).Build())
	}
	for i, r := range node.DoMulti(ctx, values...) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if s, err := r.ToString(); err == nil && s == ourMark { // another type, or another slot by now, is an error
			names = append(names, plain[i])
		}
	}
	for _, name := range names {
		if l.seen[name] || !strings.HasPrefix(name, l.prefix) {
			continue
		}
		l.seen[name] = true
		if err := l.add(ctx, name); err != nil || len(l.found) >= l.limit {
			return err
		}
	}
	return nil
}

// ourMark is how the value of a lock of ours begins.
const ourMark = "vs1 "

// lockOf is the lock that a helper key belongs to.
func lockOf(key string) (lock string, ok bool) {
	for _, suffix := range []string{":shared", ":queue", ":fence"} {
		base, found := strings.CutSuffix(key, suffix)
		if !found || !strings.Contains(base, "}") {
			continue
		}
		if inner, whole := strings.CutPrefix(base, "{"); whole && strings.Index(inner, "}") == len(inner)-1 {
			return inner[:len(inner)-1], true
		}
		return base, true // it has a hash tag of its own
	}
	return "", false
}

func (l *lister) add(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	st, err := l.locks.Status(ctx, name)
	var reply *valkey.ValkeyError
	if errors.As(err, &reply) && strings.Contains(reply.Error(), "WRONGTYPE") {
		return nil // keys of another program that are named like ours
	}
	if err != nil {
		return err
	}
	ours := st.Last > 0 || len(st.Queue) > 0 || len(st.Holders) > 0 && st.Holders[0].Token > 0
	if ours && (l.all || st.State != valkeysync.StateFree || st.Waiting > 0) {
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
			holder = printable(h.Name)
			if more := len(st.Holders) - 1; more > 0 {
				holder += fmt.Sprintf(" and %d more", more)
			}
			if h.Token > 0 {
				held = short(h.Held)
			}
			if left = "never"; h.Remaining >= 0 {
				left = short(h.Remaining)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\n", printable(st.Key), st.State, holder, held, left, st.Waiting)
	}
	_ = t.Flush()
	for _, st := range l.found {
		if st.State == valkeysync.StateNoExpiry {
			fmt.Fprintf(l.w.Err, "%s has no expiry: if its program is gone, `valkeysync unlock -force %s`\n", printable(st.Key), shellWord(st.Key))
		}
	}
}
