package valkeysync

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

// What New finds out about a server. Nothing of it needs CONFIG, INFO or ROLE: where they are forbidden
// the answer is taken to be the harmless one.

const probeAttempt = "probe"

// probeGate enters the gate of a key that is this Client's alone.
func (c *Client) probeGate() (*gate, error) {
	keys, err := protocol.KeysFor(c.opts.client.prefix, "valkeysync:probe:"+c.id)
	if err != nil {
		return nil, err
	}
	return c.enter(protocol.MutexKind, &keys)
}

// reach waits until messages can reach us.
func (c *Client) reach(ctx context.Context) error {
	g, err := c.probeGate()
	if err != nil {
		return err
	}
	defer c.leave(g)
	return g.ear.ready(ctx)
}

// listen checks that a script runs and that its message arrives, and finds out whether keyspace
// notifications do: it writes and deletes a key of its own, and then has a script send an echo. Messages
// of one server arrive in order, so when the echo is there, the event either is or never will be.
func (c *Client) listen(ctx context.Context) error {
	select {
	case c.probing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.probing }()
	g, err := c.probeGate()
	if err != nil {
		return err
	}
	defer c.leave(g)
	keys := *g.keys
	if err := g.ear.ready(ctx); err != nil {
		return err
	}
	entry := protocol.Entry{
		Client: c.id, Attempt: probeAttempt, Kind: protocol.MutexKind, Mode: protocol.Exclusive, Weight: 1,
		Lease: minLease, First: minLease, Name: c.opts.client.name,
	}
	if c.trial == nil { // watched from now on: a hub does not like channels that come and go
		c.trial = c.hub.watch(c.keyspace(keys.Lock), func(string) { c.events.Add(1) })
	}
	select {
	case <-c.trial.confirmed():
	case <-ctx.Done():
		return ctx.Err()
	}
	events := c.events.Load()
	b := c.server.Client.B
	if err := c.server.Client.Do(ctx, b().Set().Key(keys.Lock).Value("probe").Px(time.Second).Build()).Error(); err != nil {
		return fault.Errorf("write %q: %w", keys.Lock, err)
	}
	if err := c.server.Client.Do(ctx, b().Del().Key(keys.Lock).Build()).Error(); err != nil {
		return fault.Errorf("delete %q: %w", keys.Lock, err)
	}
	// A script says nothing of a message that it may not send, so that is tried first, where nobody listens.
	channel := c.server.Channel(c.id, g.ear.tag)
	if err := c.server.Publish(ctx, channel+":"+probeAttempt, "").Error(); err != nil {
		return fault.Errorf("publish to %s: %w", channel, err)
	}
	select {
	case <-c.probed: // of a probe that was given up
	default:
	}
	r, err := c.server.Check(ctx, &keys, entry, true, -1)
	if err != nil {
		return err
	}
	g.ear.heard(r.Now)
	select {
	case <-c.probed:
	case <-ctx.Done():
		return fault.Errorf("a script's message on the channel %s did not arrive: %w", channel, ctx.Err())
	}
	c.stats.notifications.Store(c.events.Load() > events)
	if c.server.Cluster {
		c.trial.stop() // a link to a node is for those who wait
		c.trial = nil
	}
	return nil
}

// database is the number of the database that the client has selected, as far as it may be asked.
func (c *Client) database(ctx context.Context) int {
	info, err := c.server.Client.Do(ctx, c.server.Client.B().ClientInfo().Build()).ToString()
	if err != nil {
		return 0
	}
	for field := range strings.FieldsSeq(info) {
		if v, ok := strings.CutPrefix(field, "db="); ok {
			n, _ := strconv.Atoi(v)
			return n
		}
	}
	return 0
}

// configure adds the flags that waking needs to the server's notify-keyspace-events; in a cluster to every
// node's, for a replica may be the next primary.
func (c *Client) configure(ctx context.Context) error {
	if !c.server.Cluster {
		return configure(ctx, c.server.Client)
	}
	for addr, node := range c.server.Client.Nodes() {
		if err := configure(ctx, node); err != nil {
			return fault.Errorf("node %s: %w", addr, err)
		}
	}
	return nil
}

func configure(ctx context.Context, node valkey.Client) error {
	const name = "notify-keyspace-events"
	b := node.B
	is, err := node.Do(ctx, b().ConfigGet().Parameter(name).Build()).AsStrMap()
	if err != nil {
		return fault.Errorf("WithKeyspaceNotifications: read %s: %w; set it to include Kgxe by hand and leave the option out", name, err)
	}
	want := addFlags(is[name])
	if want == is[name] {
		return nil
	}
	if err := node.Do(ctx, b().ConfigSet().ParameterValue().ParameterValue(name, want).Build()).Error(); err != nil {
		return fault.Errorf("WithKeyspaceNotifications: set %s to %q: %w; set it by hand and leave the option out", name, want, err)
	}
	return nil
}

// addFlags adds K, g, x and e to notification flags where they are missing. "A" stands for all classes
// but m and n. Valkey 8.0 does not show n where it shows A, so it might be set: it is then kept.
func addFlags(is string) string {
	out := is
	for _, flag := range "Kgxe" {
		if !strings.ContainsRune(out, flag) && (flag == 'K' || !strings.Contains(is, "A")) {
			out += string(flag)
		}
	}
	if out != is && strings.Contains(is, "A") && !strings.Contains(is, "n") {
		out += "n"
	}
	return out
}

// warn tells of what can break a lock from the outside.
func (c *Client) warn(ctx context.Context) {
	log := c.opts.client.logger
	b := c.server.Client.B
	if policy, err := c.server.Client.Do(ctx, b().ConfigGet().Parameter("maxmemory-policy", "maxmemory").Build()).AsStrMap(); err == nil {
		if p := policy["maxmemory-policy"]; p != "" && p != "noeviction" && policy["maxmemory"] != "0" {
			events.mayEvict.to(log, logPolicy(p))
		}
	}
	// In a cluster any node may answer: whether it is a replica says nothing.
	if role, err := c.server.Client.Do(ctx, b().Role().Build()).ToArray(); err == nil && len(role) > 0 && !c.server.Cluster {
		if r, _ := role[0].ToString(); r == "slave" || r == "replica" {
			events.isReplica.to(log)
		}
	}
	if !c.stats.notifications.Load() {
		events.noNotifications.to(log)
	}
}
