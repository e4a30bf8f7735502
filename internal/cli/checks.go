package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/dial"
	"github.com/valkeysync/valkeysync/internal/words"
)

// patient is the server that doctor looks at.
type patient struct {
	w      World
	s      *server
	client valkey.Client
	key    string // of our own, which the rights in the README cover
	tell   func(finding)
	failed bool
}

// examine runs all checks, as far as one does not need another that failed.
func examine(w World, s *server, tell func(finding)) {
	p := &patient{w: w, s: s, key: s.prefix + "valkeysync:probe:" + uuid.NewString()}
	p.tell = func(f finding) {
		p.failed = p.failed || f.verdict == broken
		tell(f)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if p.client, err = s.connect(nil); err != nil {
		p.tell(finding{broken, "connect", err.Error(), connectRemedy(err)})
		return
	}
	defer p.client.Close()
	p.tell(finding{good, "connect", dial.Shown(s.url), ""})
	if !p.identity(ctx) {
		return
	}
	p.rights(ctx)
	if !p.failed {
		p.lock(ctx)
	}
	p.eviction(ctx)
	p.clocks(ctx)
	p.distance(ctx)
}

func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callLimit)
}

// identity says which server this is, and whether it can hold locks at all.
func (p *patient) identity(ctx context.Context) bool {
	ctx, cancel := limited(ctx)
	defer cancel()
	hello, err := p.client.Do(ctx, p.client.B().Arbitrary("HELLO").Build()).ToMap()
	if err != nil {
		p.tell(finding{dark, "server", "does not say which it is: " + err.Error(), ""})
		return true
	}
	say := func(field string) string {
		m := hello[field]
		s, _ := m.ToString()
		return words.Printable(s)
	}
	name, version, mode, role := say("server"), say("version"), say("mode"), say("role")
	f := finding{good, "server", fmt.Sprintf("%s %s, %s, %s", name, version, mode, role), ""}
	major, _, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(major)
	switch {
	case mode == "sentinel":
		f.verdict, f.remedy = broken, "this is a Sentinel, not the server: add ?master_set=NAME to the URL"
	case role != "master" && mode != "cluster" && role != `""`:
		f.verdict, f.remedy = broken, "this is a replica, which cannot hold locks: connect to the primary, or through Sentinel (?master_set=NAME)"
	case n > 0 && n < 7:
		f.verdict, f.remedy = warned, "it is older than what is tested: Valkey 8 and Redis 7"
	}
	p.tell(f)
	return f.verdict != broken
}

// rights tries one by one what New needs, so that each that is missing is named.
func (p *patient) rights(ctx context.Context) {
	b := p.client.B
	cluster := p.client.Mode() == valkey.ClientModeCluster
	channel := "valkeysync:" + uuid.NewString()
	if cluster {
		channel = "valkeysync:{" + p.key + "}:" + uuid.NewString() // in the slot of the key
	}
	publish, count, right := b().Publish().Channel(channel).Message("").Build(), b().PubsubNumsub().Channel(channel).Build(), "+publish &valkeysync:*"
	subscribe := b().Subscribe().Channel(channel).Build()
	if cluster {
		publish, count, right = b().Spublish().Channel(channel).Message("").Build(), b().PubsubShardnumsub().Channel(channel).Build(), "+spublish &valkeysync:*"
		subscribe = b().Ssubscribe().Channel(channel).Build()
	}
	script := "redis.call('SET', KEYS[1], 'vs', 'PX', 1000); return redis.call('DEL', KEYS[1])"
	missing := 0
	try := func(name, right string, err error) {
		if err != nil {
			missing++
			p.tell(finding{broken, name, err.Error(), rightRemedy(err, right)})
		}
	}
	tryCount := func(right string, err error) {
		if err != nil {
			missing++
			p.tell(finding{warned, "count", err.Error(), "who died cannot be told from who lives, so that the lock is free when its lease ends.\n" + rightRemedy(err, right)})
		}
	}
	do := func(cmd valkey.Completed) error {
		ctx, cancel := limited(ctx)
		defer cancel()
		return p.client.Do(ctx, cmd).Error()
	}
	err := do(b().Set().Key(p.key).Value("probe").Px(time.Second).Build())
	if err == nil {
		err = do(b().Del().Key(p.key).Build())
	}
	try("write", "+set +del", err)
	ran := do(b().Eval().Script(script).Numkeys(1).Key(p.key).Build())
	try("scripts", "+eval +evalsha", ran)
	try("publish", right, do(publish))
	err = do(count)
	tryCount("+pubsub|numsub (in a cluster +pubsub|shardnumsub)", err)
	heard := p.heard(channel, cluster, err == nil && ran == nil)
	try("subscribe", "+subscribe (in a cluster +ssubscribe) &valkeysync:*", p.subscribe(ctx, subscribe, heard))
	if missing == 0 {
		p.tell(finding{good, "rights", "write, scripts, publish, subscribe, count listeners", ""})
	}
}

// heard has a script count who listens to the channel, as it is done to tell the living from the dead. Behind a
// proxy others may be asked than those who are subscribed.
func (p *patient) heard(channel string, cluster, counts bool) func(context.Context) error {
	if !counts {
		return func(context.Context) error { return nil }
	}
	what := "NUMSUB"
	if cluster {
		what = "SHARDNUMSUB"
	}
	script := "return redis.call('PUBSUB', ARGV[1], ARGV[2])[2]"
	return func(ctx context.Context) error {
		cmd := p.client.B().Eval().Script(script).Numkeys(1).Key(p.key).Arg(what, channel).Build()
		n, err := p.client.Do(ctx, cmd).AsInt64()
		if err == nil && n == 0 {
			err = errUncounted
		}
		return err
	}
}

// errUncounted: whoever lives would be taken for dead.
var errUncounted = errors.New("a script does not count who has subscribed")

// subscribe is over when the subscription is confirmed, and heard has said that it counts. The connection that had
// it is ended.
func (p *patient) subscribe(ctx context.Context, cmd valkey.Completed, heard func(context.Context) error) error {
	ctx, cancel := limited(ctx)
	defer cancel()
	conn, release := p.client.Dedicate()
	defer release()
	confirmed := make(chan struct{}, 1)
	closed := conn.SetPubSubHooks(valkey.PubSubHooks{OnSubscription: func(valkey.PubSubSubscription) { confirmed <- struct{}{} }})
	defer conn.Close()
	if err := conn.Do(ctx, cmd).Error(); err != nil {
		return err
	}
	select {
	case <-confirmed:
		return heard(ctx)
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the subscription is not confirmed: %w", ctx.Err())
	}
}

// lock makes a Client, takes a lock and gives it back, and tells of notifications.
func (p *patient) lock(ctx context.Context) {
	locks, err := valkeysync.New(p.client, valkeysync.WithLogger(p.w.logger()), valkeysync.WithPrefix(p.s.prefix), valkeysync.WithName("valkeysync doctor"))
	if err != nil {
		p.tell(finding{broken, "lock", err.Error(), rightRemedy(err, "…")})
		return
	}
	defer locks.Close()
	mu := locks.Mutex(strings.TrimPrefix(p.key, p.s.prefix))
	limit, cancel := limited(ctx)
	defer cancel()
	held, err := mu.LockContext(limit)
	if err == nil {
		err = mu.UnlockContext(held)
	}
	if err != nil {
		p.tell(finding{broken, "lock", err.Error(), rightRemedy(err, "…")})
		return
	}
	p.tell(finding{good, "lock", "taken and given back", ""})
	p.tidy(ctx)
	p.notifications(ctx, locks.Stats().Notifications)
}

// tidy deletes what a lock leaves: the last number given out, which would lapse within an hour.
func (p *patient) tidy(ctx context.Context) {
	ctx, cancel := limited(ctx)
	defer cancel()
	_ = p.client.Do(ctx, p.client.B().Del().Key("{"+p.key+"}:fence", p.key).Build()).Error()
}

func (p *patient) notifications(ctx context.Context, arrive bool) {
	const name = "notify-keyspace-events"
	flags := "its flags may not be asked for"
	if is, err := p.config(ctx, name); err == nil {
		flags = fmt.Sprintf("%s is %q", name, is[name])
	}
	if arrive {
		p.tell(finding{good, "notifications", "arrive; " + flags, ""})
		return
	}
	p.tell(finding{warned, "notifications", "do not arrive; " + flags,
		"what is not unlocked by valkeysync (DEL, other programs, leases that run out) is noticed by timers.\n" +
			"CONFIG SET " + name + " Kgxe, or the service's parameter of that name, or WithKeyspaceNotifications;\n" +
			"and the right to the channels: &__keyspace@0__:YOUR:KEYS*"})
}

// config asks for settings, of any node.
func (p *patient) config(ctx context.Context, names ...string) (map[string]string, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	return p.client.Do(ctx, p.client.B().ConfigGet().Parameter(names...).Build()).AsStrMap()
}

func (p *patient) eviction(ctx context.Context) {
	is, err := p.config(ctx, "maxmemory-policy", "maxmemory")
	policy, most := is["maxmemory-policy"], is["maxmemory"]
	switch {
	case err != nil || policy == "":
		p.tell(finding{dark, "eviction", "its policy may not be asked for", "see that maxmemory-policy is noeviction"})
	case policy == "noeviction":
		p.tell(finding{good, "eviction", "none (noeviction)", ""})
	case most == "0":
		p.tell(finding{good, "eviction", "none: there is no maxmemory (the policy would be " + policy + ")", ""})
	default:
		p.tell(finding{warned, "eviction", policy + ", beyond " + most + " bytes",
			"a lock that is evicted can be given to another: CONFIG SET maxmemory-policy noeviction, or a server of its own for locks"})
	}
}

// clockLimit is how far the clocks of servers that follow each other may differ without a word.
const clockLimit = time.Second

// clocks compares the servers' clocks with ours, and with each other.
func (p *patient) clocks(ctx context.Context) {
	ahead := map[string]time.Duration{}
	nodes := p.client.Nodes()
	for addr, node := range nodes {
		d, err := clockAhead(ctx, node)
		if err != nil {
			p.tell(finding{dark, "clock", addr + " does not say: " + err.Error(), ""})
			continue
		}
		ahead[addr] = d
	}
	if len(ahead) == 0 {
		return
	}
	all := slices.Sorted(maps.Values(ahead))
	least, most := all[0], all[len(all)-1]
	here := most
	if -least > most {
		here = least
	}
	text := fmt.Sprintf("%s this machine's", apart(here))
	if len(all) > 1 {
		text = fmt.Sprintf("%s between %d nodes, %s", words.Short(most-least), len(all), text)
	}
	if most-least > clockLimit {
		p.tell(finding{warned, "clock", text, "after a failover tokens rise by the next server's clock: set the clocks by NTP"})
		return
	}
	if max(here, -here) > time.Minute {
		p.tell(finding{warned, "clock", text, "nothing depends on this machine's clock, but tokens on the server's: if that one is wrong, set it by NTP\n(slowly: a clock that is set forward ends leases)"})
		return
	}
	p.tell(finding{good, "clock", text, ""})
}

func apart(d time.Duration) string {
	if d < 0 {
		return words.Short(-d) + " behind"
	}
	return words.Short(d) + " ahead of"
}

// clockAhead is how much a server's clock is ahead of ours, give or take half a round trip.
func clockAhead(ctx context.Context, node valkey.Client) (time.Duration, error) {
	ctx, cancel := limited(ctx)
	defer cancel()
	before := time.Now()
	parts, err := node.Do(ctx, node.B().Time().Build()).AsStrSlice()
	if err != nil {
		return 0, err
	}
	passed := time.Since(before)
	if len(parts) != 2 {
		return 0, errors.New("no time")
	}
	s, err1 := strconv.ParseInt(parts[0], 10, 64)
	us, err2 := strconv.ParseInt(parts[1], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return 0, err
	}
	return time.Unix(s, us*1000).Sub(before.Add(passed / 2)), nil
}

// distance is how long an answer takes.
func (p *patient) distance(ctx context.Context) {
	const times = 20
	ctx, cancel := limited(ctx)
	defer cancel()
	var took []time.Duration
	for range times {
		began := time.Now()
		if err := p.client.Do(ctx, p.client.B().Ping().Build()).Error(); err != nil {
			p.tell(finding{dark, "round trip", err.Error(), ""})
			return
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	f := finding{good, "round trip", fmt.Sprintf("%s, %s at the most", words.Short(took[times/2]), words.Short(took[times-1])), ""}
	if took[times/2] > 100*time.Millisecond {
		f.verdict, f.remedy = warned, "every lock that somebody waits for costs half of it: a server nearby is better for locks"
	}
	p.tell(f)
}
