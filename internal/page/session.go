package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/scan"
	"github.com/valkeysync/valkeysync/internal/words"
)

const (
	// atOnce is how many looks are under way at the same time: they share one connection.
	atOnce = 16
	// lookLimit is how long one look may take.
	lookLimit = 5 * time.Second
	// mostPlain is how many keys that may be locks, or anything, are looked at in a round.
	mostPlain = 2 * scan.Step
)

// session is what is done over one connection. All of it is done by one goroutine, but for the looks of a round.
type session struct {
	w      *watcher
	conn   *Connection
	listen bool // notifications arrive
	deaf   string
	began  time.Time
	listed time.Time // when the last list was through
	took   time.Duration
	left   bool // there are more keys than a list looks at
	full   bool // there are more locks than are kept
	doubt  bool // notifications seem to be missing
	spilt  bool // more was heard than could be taken
	mapped time.Time
	nodes  []valkey.Client

	rows  map[string]*row
	soon  map[string]bool // to be looked at
	later map[string]bool // … after those
}

// row is a lock that is shown.
type row struct {
	view    *view
	sent    time.Time            // when the last look was sent
	first   map[string]time.Time // when each hold was first seen
	heard   []event              // since the last look but one, or so
	endings []ending
}

// session connects and watches until ctx ends (nil), or another session is wanted (nil), or the connection is lost.
// up is called when the server has answered.
func (w *watcher) session(ctx context.Context, up func()) error {
	conn, err := w.config.Connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	w.inbox.take() // that is over
	s := &session{w: w, conn: conn, began: time.Now(), rows: map[string]*row{}, soon: map[string]bool{}, later: map[string]bool{}}
	if s.nodes, err = primaries(ctx, conn.Client); err != nil {
		return ignoreEnd(ctx, err)
	}
	s.mapped = time.Now()
	s.listen = conn.Locks.Stats().Notifications
	heard, err := w.subscribe(ctx, s.nodes)
	var refused *valkey.ValkeyError
	switch {
	case errors.As(err, &refused):
		s.listen, s.deaf = false, fmt.Sprintf("This user may not hear the server's notifications (%s).", words.Printable(refused.Error()))
	case err != nil:
		return ignoreEnd(ctx, err)
	case !s.listen:
		s.deaf = "The server's keyspace notifications are off. To switch them on: CONFIG SET notify-keyspace-events Kgxe"
	}
	defer heard.close()
	up()
	w.have(conn)
	defer w.have(nil)
	w.board.say(state{Phase: looking})
	if err := s.list(ctx); err != nil {
		return ignoreEnd(ctx, err)
	}
	tick := time.NewTicker(w.pace.tick)
	defer tick.Stop()
	for {
		s.say()
		select {
		case <-tick.C:
		case err := <-heard.ended():
			return ignoreEnd(ctx, err)
		case <-ctx.Done():
			return nil
		}
		if again, err := s.round(ctx); again || err != nil {
			return ignoreEnd(ctx, err)
		}
	}
}

// ignoreEnd: what fails because ctx has ended is no failure.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is what it is for
	}
	return err
}

// say says how the server is watched.
func (s *session) say() {
	st := state{Phase: live}
	if !s.listen {
		st.Phase = blind
		st.Text = fmt.Sprintf("%s Without them locks are looked at every %v, listed every %v or less often, and a loss cannot be told from a release.",
			s.deaf, s.w.pace.blind, s.w.pace.list)
	}
	switch {
	case s.full:
		st.Cut = fmt.Sprintf("There are more than %d locks: the rest is not shown. -prefix chooses.", s.w.pace.locks)
	case s.left:
		st.Cut = fmt.Sprintf("There are more than %d keys: locks among the rest are shown once something happens to them. -prefix chooses.", s.w.pace.keys)
	}
	s.w.board.say(st)
}

// list finds all locks, and looks at them.
func (s *session) list(ctx context.Context) error {
	began := time.Now()
	s.spilt = false
	found := map[string]bool{}
	left, err := scan.Locks(ctx, s.conn.Client, s.w.config.Prefix, s.w.pace.keys, func(lock string) (bool, error) {
		found[lock] = true
		return len(found) <= s.w.pace.locks, nil
	})
	if err != nil {
		return err
	}
	s.left, s.full = left, len(found) > s.w.pace.locks
	for key := range s.rows {
		found[key] = true
	}
	for keys := range slices.Chunk(slices.Collect(maps.Keys(found)), 512) {
		if err := s.look(ctx, keys); err != nil {
			return err
		}
	}
	s.w.board.keep(s.rows) // of an earlier session
	s.listed, s.took = time.Now(), time.Since(began)
	return nil
}

// round does what has come due since the last. again: a new session is wanted.
func (s *session) round(ctx context.Context) (again bool, err error) {
	heard, spilt := s.w.inbox.take()
	s.spilt = s.spilt || spilt
	if err := s.sort(ctx, heard); err != nil {
		return false, err
	}
	now := time.Now()
	// Whether notifications arrive is found out with a new connection.
	if (s.doubt || !s.listen && len(heard) > 0) && now.Sub(s.began) >= s.w.pace.list {
		return true, nil
	}
	s.remember(now)
	keys := s.next()
	if err := s.look(ctx, keys); err != nil {
		return false, err
	}
	s.settle(time.Now())
	if s.conn.Client.Mode() == valkey.ClientModeCluster && now.Sub(s.mapped) >= s.w.pace.mapped {
		nodes, err := primaries(ctx, s.conn.Client)
		if err != nil || !sameNodes(nodes, s.nodes) {
			return err == nil, err
		}
		s.mapped = now
	}
	if (s.spilt || !s.listen) && now.Sub(s.listed) >= max(s.w.pace.list, time.Duration(s.w.pace.rest)*s.took) {
		return false, s.list(ctx)
	}
	return false, nil
}

func sameNodes(a, b []valkey.Client) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(n valkey.Client) bool { return !slices.Contains(b, n) })
}

// sort has the locks that something was heard of looked at. A lock whose lease was only set anew can wait.
func (s *session) sort(ctx context.Context, heard map[string][]event) error {
	var plain []string // they may be locks, or anything
	for key, events := range heard {
		r := s.rows[key]
		helper := slices.ContainsFunc(events, func(e event) bool { return e.part != "" })
		written := slices.ContainsFunc(events, func(e event) bool { return e.name != "del" && e.name != "expired" && e.name != "evicted" })
		switch {
		case r != nil:
			r.heard = trim(append(r.heard, events...))
			renewed := !slices.ContainsFunc(events, func(e event) bool { return e.part != "" || e.name != "expire" })
			s.want(key, renewed && len(r.view.st.Holders) > 0)
		case helper:
			s.want(key, false)
		case written:
			plain = append(plain, key)
		}
	}
	if len(plain) > mostPlain {
		plain, s.spilt = plain[:mostPlain], true
	}
	for keys := range slices.Chunk(plain, scan.Step) {
		ours, err := scan.Marked(ctx, s.conn.Client, keys)
		if err != nil {
			return err
		}
		for _, key := range ours {
			s.want(key, false)
		}
	}
	return nil
}

// want has a lock looked at.
func (s *session) want(key string, later bool) {
	if later {
		s.later[key] = true
	} else {
		s.soon[key] = true
	}
}

// remember has looked at what nothing is heard of: a lease that should have ended, a look that is old. A lock that
// was free for long enough goes.
func (s *session) remember(now time.Time) {
	old := s.w.pace.old
	if !s.listen {
		old = s.w.pace.blind
	}
	for key, r := range s.rows {
		if f := r.view.free; !f.IsZero() && now.Sub(f) >= s.w.pace.fade {
			delete(s.rows, key)
			delete(s.later, key)
			s.w.board.put(key, nil)
			continue
		}
		end := time.Time{}
		for _, h := range r.view.st.Holders {
			if at := endOf(h, r.view.at); !at.IsZero() && (end.IsZero() || at.Before(end)) {
				end = at
			}
		}
		switch {
		case !end.IsZero() && now.After(end):
			s.want(key, false)
		case now.Sub(r.sent) >= old && r.view.free.IsZero():
			s.want(key, true)
		}
	}
}

// next are the locks to look at in this round. Of those that can wait, those come first that have waited longest.
func (s *session) next() []string {
	keys := slices.Collect(maps.Keys(s.soon))
	if len(keys) < s.w.pace.most {
		later := slices.DeleteFunc(slices.Collect(maps.Keys(s.later)), func(key string) bool { return s.soon[key] || s.rows[key] == nil })
		slices.SortFunc(later, func(a, b string) int { return s.rows[a].sent.Compare(s.rows[b].sent) })
		keys = append(keys, later...)
	}
	keys = keys[:min(len(keys), s.w.pace.most)]
	for _, key := range keys {
		delete(s.soon, key)
		delete(s.later, key)
	}
	return keys
}

// look looks at the locks, and shows them.
func (s *session) look(ctx context.Context, keys []string) error {
	type seen struct {
		st       valkeysync.Status
		err      error
		sent, at time.Time
	}
	all := make([]seen, len(keys))
	var work sync.WaitGroup
	each := (len(keys) + atOnce - 1) / atOnce
	for from := 0; from < len(keys); from += each {
		work.Go(func() {
			for i := from; i < min(from+each, len(keys)); i++ {
				limited, cancel := context.WithTimeout(ctx, lookLimit)
				o := seen{sent: time.Now()}
				o.st, o.err = s.conn.Locks.Status(limited, s.w.config.name(keys[i]))
				o.at = time.Now()
				all[i] = o
				cancel()
			}
		})
	}
	work.Wait()
	for i, o := range all {
		var reply *valkey.ValkeyError
		switch {
		case o.err == nil:
			s.show(keys[i], o.st, o.sent, o.at)
		case errors.As(o.err, &reply) || errors.Is(o.err, valkeysync.ErrInvalidKey):
			// Not a lock, or one that this user may not see, or a slot on its way elsewhere.
		default:
			return o.err
		}
	}
	return nil
}

// show shows a lock as a look has found it.
func (s *session) show(key string, st valkeysync.Status, sent, at time.Time) {
	r := s.rows[key]
	switch {
	case r != nil:
	case !scan.Ours(st) || !scan.Used(st):
		return
	case len(s.rows) >= s.w.pace.locks:
		s.full = true
		return
	default:
		r = &row{first: map[string]time.Time{}}
		s.rows[key] = r
	}
	slices.SortFunc(st.Holders, func(a, b valkeysync.HolderStatus) int { return cmp.Compare(a.Token, b.Token) }) // the server has them by their leases' ends
	v := &view{st: st, at: at}
	if old := r.view; old != nil {
		s.compare(r, st, sent, at)
		if !scan.Used(st) {
			if v.free = old.free; v.free.IsZero() {
				v.free = at
			}
		}
	}
	first := map[string]time.Time{}
	for _, h := range st.Holders {
		id := identity(h)
		if first[id] = r.first[id]; first[id].IsZero() {
			first[id] = sent
		}
	}
	if r.view == nil || !r.view.same(v) {
		s.w.board.put(key, v)
	}
	r.view, r.sent, r.first = v, sent, first
	s.forget(r)
}

// compare finds the holds that are no more.
func (s *session) compare(r *row, st valkeysync.Status, sent, at time.Time) {
	still := map[string]bool{}
	for _, h := range st.Holders {
		still[identity(h)] = true
	}
	for _, h := range r.view.st.Holders {
		if id := identity(h); !still[id] {
			r.endings = append(r.endings, ending{
				hold: h, before: r.view.st, until: endOf(h, r.view.at), looked: r.sent, first: r.first[id], gone: sent, seen: at, after: st,
			})
		}
	}
}

// forget drops what was heard before the last look, unless it is still to be judged by.
func (s *session) forget(r *row) {
	from := r.sent
	for _, e := range r.endings {
		if e.looked.Before(from) {
			from = e.looked
		}
	}
	r.heard = slices.DeleteFunc(r.heard, func(e event) bool { return e.at.Before(from) })
}

// settle writes into the log how holds have ended, once all that can be heard of it was heard.
func (s *session) settle(now time.Time) {
	for _, r := range s.rows {
		var open []ending
		for i, e := range r.endings {
			if now.Sub(e.seen) < s.w.pace.judge {
				open = r.endings[i:]
				break
			}
			if !s.listen {
				continue
			}
			if how := e.judge(r.heard, s.w.pace.judge/2); how != "" {
				s.doubt = s.doubt || how == lossVanished
				s.w.board.note(lossEntry(how, e.before, e.hold, e.seen))
			}
		}
		if len(r.endings) > 0 {
			r.endings = open
			s.forget(r)
		}
	}
}

// endOf is when a lease ends that a look at that time has found; zero: never.
func endOf(h valkeysync.HolderStatus, at time.Time) time.Time {
	if h.Remaining < 0 {
		return time.Time{}
	}
	return at.Add(h.Remaining)
}
