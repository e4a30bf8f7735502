package protocol

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
)

// Outcome is what a script says of an attempt or a hold.
type Outcome string

// The outcomes.
const (
	Held     Outcome = "held"     // the attempt holds the lock, for Remaining
	Queued   Outcome = "queued"   // the attempt waits, at Place
	Gone     Outcome = "gone"     // the attempt is not known: it was dropped
	Busy     Outcome = "busy"     // somebody else holds it or waits for it
	Late     Outcome = "late"     // the request came after its latest time and did nothing
	Mismatch Outcome = "mismatch" // another kind of primitive is in use on the key: Holder says which
	Released Outcome = "released" // given back
	LostIt   Outcome = "lost"     // not ours (any more)
	Left     Outcome = "left"     // nothing of the attempt remains
	Resized  Outcome = "resized"  // the size is in force
	Forced   Outcome = "forced"   // taken from whoever had it: Holder says from whom
	Changed  Outcome = "changed"  // not taken: it is not held as it was seen. Holder says who has it
)

// Forever is the Remaining of a holder without expiry.
const Forever = time.Duration(-1)

// Reply is what a script answered. Which fields are set depends on the outcome.
type Reply struct {
	Outcome   Outcome
	Now       int64         // server ms; 0 where the script needed no clock
	Number    int64         // of the hold
	Since     int64         // server ms when the hold began
	New       bool          // the hold is of this moment, with its full lease
	Remaining time.Duration // of the hold, or of whoever holds; Forever without expiry
	Place     int           // in the queue, from 1
	DeadFront bool          // whoever is at the front of the queue has died
	Waiting   int           // how many wait
	Holder    string        // the lock's value: ParseHolder
}

// Server runs the scripts through one valkey.Client. All its calls can be repeated.
type Server struct {
	Client  valkey.Client
	Cluster bool // the scripts speak through shard channels
}

// Tag is the hash tag of the shard channels on which the scripts for k speak; "" where they use ordinary ones.
func (s *Server) Tag(k *Keys) string {
	if s.Cluster {
		return k.tag
	}
	return ""
}

// Channel is the channel on which the scripts speak to that client, for keys of that Tag.
func (s *Server) Channel(client, tag string) string {
	if tag == "" {
		return ChannelFor(client)
	}
	return ShardChannelFor(client, tag)
}

func (s *Server) call(ctx context.Context, sc *script, k *Keys, args ...string) (Reply, error) {
	m, err := sc.run(ctx, s, k, args...)
	if err != nil {
		return Reply{}, err
	}
	return parseReply(sc, k, m)
}

func parseReply(sc *script, k *Keys, m valkey.ValkeyMessage) (Reply, error) {
	bad := func() (Reply, error) { return Reply{}, sc.wrap(k, errReply) }
	if m.IsString() {
		word, _ := m.ToString()
		if r, ok := short(word); ok {
			return r, nil
		}
		return bad()
	}
	fields, err := m.ToArray()
	if err != nil || len(fields) < 2 {
		return bad()
	}
	word, err := fields[0].ToString()
	if err != nil {
		return bad()
	}
	r := Reply{Outcome: Outcome(word)}
	var n [7]int64
	for i := 1; i < len(n) && i < len(fields); i++ {
		if n[i], err = fields[i].ToInt64(); err != nil {
			return bad()
		}
	}
	r.Now, r.Number, r.Since = n[1], n[2], n[3]
	r.Remaining = ms(n[4])
	r.Place, r.Waiting = int(n[5]), int(n[6])
	if r.Outcome == Queued {
		r.Number, r.DeadFront = 0, n[2] == 1
	}
	if len(fields) > 7 {
		r.Holder, _ = fields[7].ToString()
	}
	return r, nil
}

// short reads the replies that are one string: those of the common cases. A new hold says its number, which is the
// server's time in µs, and the time in ms where it is not.
func short(reply string) (Reply, bool) {
	if reply == string(Released) {
		return Reply{Outcome: Released}, true
	}
	r := Reply{Outcome: Held, New: true}
	number, since, apart := strings.Cut(reply, " ")
	var err1, err2 error
	r.Number, err1 = strconv.ParseInt(number, 10, 64)
	r.Since = r.Number / 1000
	if apart {
		r.Since, err2 = strconv.ParseInt(since, 10, 64)
	}
	r.Now = r.Since
	return r, err1 == nil && err2 == nil
}

// full gives a new hold of e its lease, which the short reply leaves out.
func (r Reply) full(e *Entry) Reply {
	if r.New {
		r.Remaining = e.Lease
	}
	return r
}

func ms(n int64) time.Duration {
	if n < 0 {
		return Forever
	}
	return time.Duration(n) * time.Millisecond
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Acquire takes the lock for e where it is free and nobody waits, or joins the queue, or, with try, says
// Busy. The server refuses the request after latest (its own time; 0 for no limit).
func (s *Server) Acquire(ctx context.Context, k *Keys, e Entry, try bool, latest int64) (Reply, error) {
	entry, lease := e.text()
	if e.Kind != MutexKind {
		lease = ""
	}
	args := []string{entry, itoa(latest), lease, "try"}
	if !try {
		args = args[:3]
	}
	r, err := s.call(ctx, acquireScript, k, args...)
	return r.full(&e), err
}

// AcquireAll takes all locks, each for the entry in the same place, in one call, where all are free and nobody
// waits for any; otherwise nothing is done, and the outcome of the one Reply is Busy or Late. The locks must
// share a slot.
func (s *Server) AcquireAll(ctx context.Context, ks []*Keys, es []*Entry, latest int64) ([]Reply, error) {
	keys := make([]string, 0, 4*len(ks))
	entries := make([]string, len(es))
	for i, k := range ks {
		keys = append(keys, k.list[:]...)
		entries[i] = es[i].String()
	}
	m, err := allScript.runOn(ctx, s, ks[0], keys, strings.Join(entries, "\n"), itoa(latest))
	if err != nil {
		return nil, err
	}
	fields, err := m.ToArray()
	if err != nil || len(fields) == 0 {
		return nil, allScript.wrap(ks[0], errReply)
	}
	if word, _ := fields[0].ToString(); word == string(Busy) || word == string(Late) {
		r, err := parseReply(allScript, ks[0], m)
		return []Reply{r}, err
	}
	replies := make([]Reply, len(fields))
	for i, f := range fields {
		held, _ := f.ToString()
		r, ok := short(held)
		if !ok || len(fields) != len(es) {
			return nil, allScript.wrap(ks[0], errReply)
		}
		replies[i] = r.full(es[i])
	}
	return replies, nil
}

// SameSlot: one script may use all of the locks.
func (s *Server) SameSlot(ks []*Keys) bool {
	for _, k := range ks[1:] {
		if s.Cluster && k.tag != ks[0].tag {
			return false
		}
	}
	return true
}

// After is what a release does with its second entry.
type After string

// What a release does after it.
const (
	Queue     After = "queue"     // puts it in the queue, behind the others
	Downgrade After = "downgrade" // a writer becomes the reader of that entry
	Shrink    After = "shrink"    // a permit goes on with the smaller weight of that entry
)

// Release gives back a hold (as Entry.Proof or Entry.Hold names it) and does with again, where it is not nil, what after
// says; a place in the queue is not taken if the call arrives after latest.
func (s *Server) Release(ctx context.Context, k *Keys, hold string, again *Entry, after After, latest int64) (Reply, error) {
	if again == nil {
		return s.call(ctx, releaseScript, k, hold)
	}
	r, err := s.call(ctx, releaseScript, k, hold, again.String(), itoa(latest), string(after))
	return r.full(again), err
}

// Leave takes away whatever the attempt has: its place or its hold. entry is "" where only the name of
// the attempt is known. heard is as in Check.
func (s *Server) Leave(ctx context.Context, k *Keys, ref, entry string, kind Kind, heard time.Duration) (Reply, error) {
	args := []string{ref, entry, string(kind), itoa(heard.Milliseconds())}
	if heard < 0 {
		args = args[:3]
	}
	return s.call(ctx, leaveScript, k, args...)
}

// Check looks at how things stand for e. With echo, an Echo is sent to the Client's channel. The lease of
// a holder that has died is cut where heard, for how long the Client has been subscribed, is at least twice
// the holder's grace; a negative heard cuts nothing.
func (s *Server) Check(ctx context.Context, k *Keys, e Entry, echo bool, heard time.Duration) (Reply, error) {
	ago := ""
	if heard >= 0 {
		ago = itoa(heard.Milliseconds())
	}
	return s.call(ctx, checkScript, k, e.String(), word(echo), ago)
}

// Renew sets the full lease of a hold anew, if it is still ours.
func (s *Server) Renew(ctx context.Context, k *Keys, hold string, lease time.Duration, echo bool) (Reply, error) {
	return s.call(ctx, renewScript, k, hold, itoa(lease.Milliseconds()), word(echo))
}

func word(echo bool) string {
	if echo {
		return "1"
	}
	return ""
}

// Replicate is Renew, and then waits until n replicas have that and all that came before it, or limit is
// over; it says how many do. Both go over one connection, to the node that owns the key: WAIT counts what
// that connection wrote. The reply is Renew's.
func (s *Server) Replicate(ctx context.Context, k *Keys, hold string, lease time.Duration, n int, limit time.Duration) (Reply, int, error) {
	conn, release := s.Client.Dedicate() // WAIT holds up what is behind it
	defer release()
	results := conn.DoMulti(ctx,
		conn.B().Eval().Script(renewScript.sent(s.Cluster)).Numkeys(int64(len(k.list))).Key(k.list[:]...).Arg(hold, itoa(lease.Milliseconds()), word(false)).Build(),
		conn.B().Wait().Numreplicas(int64(n)).Timeout(limit.Milliseconds()).Build(),
	)
	m, err := results[0].ToMessage()
	if err != nil {
		return Reply{}, 0, renewScript.wrap(k, err)
	}
	r, err := parseReply(renewScript, k, m)
	if err != nil {
		return Reply{}, 0, err
	}
	copies, err := results[1].AsInt64()
	if err != nil {
		return Reply{}, 0, fault.Errorf("wait %q: %w", k.Lock, err)
	}
	return r, int(copies), nil
}

// Beat publishes an Echo to a channel that a connection of the Client has for itself, and says how many
// subscribers were counted by the node that runs the scripts.
func (s *Server) Beat(ctx context.Context, channel string) (int64, error) {
	return s.Publish(ctx, channel, "echo - beat 0 0 0 0 -").AsInt64()
}

// Publish speaks on a channel as the scripts do. The reply is the number of subscribers.
func (s *Server) Publish(ctx context.Context, channel, message string) valkey.ValkeyResult {
	b := s.Client.B
	if s.Cluster {
		return s.Client.Do(ctx, b().Spublish().Channel(channel).Message(message).Build())
	}
	return s.Client.Do(ctx, b().Publish().Channel(channel).Message(message).Build())
}

// Resize puts the size of a semaphore in force for a key that may be in use with another.
func (s *Server) Resize(ctx context.Context, k *Keys, kind Kind) (Reply, error) {
	return s.call(ctx, resizeScript, k, string(kind))
}

// Force takes the lock from whoever has it.
func (s *Server) Force(ctx context.Context, k *Keys) (Reply, error) {
	return s.call(ctx, forceScript, k)
}

// ForceFrom is Force if the lock's value is the one that was seen: Standing.Value.
func (s *Server) ForceFrom(ctx context.Context, k *Keys, seen string) (Reply, error) {
	return s.call(ctx, forceScript, k, seen)
}

// Standing is how a lock stands.
type Standing struct {
	Now       int64
	Value     string        // of the lock key; "" when free
	Remaining time.Duration // Forever without expiry
	Last      int64         // the last number given out
	Shared    []Member      // shared holds, score = end of the lease
	Queue     []Member      // entries, score = place
	Waiting   int
}

// Member is a member of a sorted set.
type Member struct {
	Value string
	Score int64
}

// Status reads how a lock stands, with at most the given number of waiting entries.
func (s *Server) Status(ctx context.Context, k *Keys, most int) (Standing, error) {
	reply, err := statusScript.run(ctx, s, k, strconv.Itoa(most))
	if err != nil {
		return Standing{}, err
	}
	bad := statusScript.wrap(k, errReply)
	m, err := reply.ToArray()
	if err != nil || len(m) < 7 {
		return Standing{}, bad
	}
	var st Standing
	var left, waiting int64
	var last string
	var shared, queue []string
	for _, err := range []error{
		into(&st.Now)(m[0].ToInt64()), into(&st.Value)(m[1].ToString()), into(&left)(m[2].ToInt64()), into(&last)(m[3].ToString()),
		into(&shared)(m[4].AsStrSlice()), into(&queue)(m[5].AsStrSlice()), into(&waiting)(m[6].ToInt64()),
	} {
		if err != nil {
			return Standing{}, bad
		}
	}
	st.Last, _ = strconv.ParseInt(last, 10, 64)
	st.Remaining, st.Waiting = ms(left), int(waiting)
	st.Shared, st.Queue = pairs(shared), pairs(queue)
	return st, nil
}

func into[T any](p *T) func(T, error) error {
	return func(v T, err error) error {
		*p = v
		return err
	}
}

func pairs(flat []string) []Member {
	var out []Member
	for i := 0; i+1 < len(flat); i += 2 {
		score, _ := strconv.ParseFloat(flat[i+1], 64)
		out = append(out, Member{flat[i], int64(score)})
	}
	return out
}
