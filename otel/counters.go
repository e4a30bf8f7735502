package valkeysyncotel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/valkeysync/valkeysync"
)

// causes are all there are. Each has its series from the beginning, at 0: whoever looks at an increase would miss the
// first loss otherwise.
var causes = []valkeysync.Cause{
	valkeysync.CauseExpired, valkeysync.CauseTaken, valkeysync.CauseDeleted, valkeysync.CauseUnreachable,
	valkeysync.CauseMaxHold, valkeysync.CauseClosed,
}

// counters are what Clients have counted, and what has to be counted here.
type counters struct {
	losses, handovers, renewals, renewalErrors, wakeups, reconnects, clients metric.Int64Observable

	mu       sync.Mutex
	observed map[*valkeysync.Client]struct{}
	past     totals                      // of those that are not observed any more: a counter never falls
	quorum   map[valkeysync.Cause]uint64 // losses of a Quorum's locks, which no Client counts
}

func newCounters(m *maker) *counters {
	return &counters{
		losses:        m.counter("valkeysync.losses", "{loss}", "Leases that were lost before the unlock."),
		handovers:     m.counter("valkeysync.handovers", "{handover}", "Acquisitions that were handed over by the unlock of another."),
		renewals:      m.counter("valkeysync.renewals", "{renewal}", "Confirmed renewals."),
		renewalErrors: m.counter("valkeysync.renewal.errors", "{error}", "Renewals that failed and were repeated."),
		wakeups:       m.counter("valkeysync.wakeups", "{wakeup}", "Looks at a lock that is waited for."),
		reconnects:    m.counter("valkeysync.reconnects", "{reconnect}", "Connections for messages that broke."),
		clients:       m.state("valkeysync.client.count", "{client}", "Clients, by whether keyspace notifications arrive."),
		observed:      map[*valkeysync.Client]struct{}{},
		quorum:        map[valkeysync.Cause]uint64{},
	}
}

func (c *counters) add(client *valkeysync.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.observed[client] = struct{}{}
}

func (c *counters) remove(client *valkeysync.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.observed[client]; ok {
		delete(c.observed, client)
		c.past.add(client.Stats())
	}
}

// lostQuorum counts the loss of a Quorum's lock.
func (c *counters) lostQuorum(cause valkeysync.Cause) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quorum[cause]++
}

// collect tells the metrics how things stand.
func (c *counters) collect(_ context.Context, o metric.Observer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.past
	clients := map[bool]uint64{}
	for client := range c.observed {
		s := client.Stats()
		sum.add(s)
		clients[s.Notifications]++
	}
	count := func(i metric.Int64Observable, n uint64, by ...attribute.KeyValue) {
		o.ObserveInt64(i, int64(n), metric.WithAttributes(by...))
	}
	for i, cause := range causes {
		count(c.losses, sum.lost[i]+c.quorum[cause], lossCauseKey.String(word(cause)))
	}
	count(c.handovers, sum.local, grantKey.String(string(valkeysync.GrantLocal)))
	count(c.handovers, sum.byMessage, grantKey.String(string(valkeysync.GrantMessage)))
	count(c.renewals, sum.renewals)
	count(c.renewalErrors, sum.renewalErrors)
	count(c.wakeups, sum.wokenByMessage, wakeupCauseKey.String("message"))
	count(c.wakeups, sum.wokenByEvent, wakeupCauseKey.String("event"))
	count(c.wakeups, sum.wokenByTimer, wakeupCauseKey.String("timer"))
	count(c.wakeups, sum.wokenByGap, wakeupCauseKey.String("gap"))
	count(c.reconnects, sum.reconnects)
	for _, arrive := range []bool{false, true} {
		count(c.clients, clients[arrive], notificationsKey.Bool(arrive))
	}
	return nil
}

// totals are sums of several Clients' Stats.
type totals struct {
	local, byMessage, renewals, renewalErrors, reconnects  uint64
	wokenByMessage, wokenByEvent, wokenByTimer, wokenByGap uint64
	lost                                                   [6]uint64 // in the order of causes
}

func (t *totals) add(s valkeysync.Stats) {
	t.local += s.HandedOver
	t.byMessage += s.ByMessage
	t.renewals += s.Renewals
	t.renewalErrors += s.RenewalErrors
	t.reconnects += s.Reconnects
	t.wokenByMessage += s.WokenByMessage
	t.wokenByEvent += s.WokenByEvent
	t.wokenByTimer += s.WokenByTimer
	t.wokenByGap += s.WokenByGap
	for i, cause := range causes {
		t.lost[i] += s.Lost[cause]
	}
}
