package valkeysync

import "sync/atomic"

// Stats is what a Client has counted since New. See (*Client).Stats.
type Stats struct {
	Acquired       uint64 // acquisitions, of any kind
	ByReply        uint64 // of them, told by the reply of our own request
	ByMessage      uint64 // of them, handed over by somebody's release, in a message
	HandedOver     uint64 // of them, handed over by another goroutine of this process, without the server
	Waits          uint64 // acquisitions that had to wait
	GaveUp         uint64 // waits that ended by their context
	WokenByMessage uint64 // looks at the lock because a script told us to
	WokenByEvent   uint64 // looks at the lock because of a keyspace event
	WokenByTimer   uint64 // looks at the lock because a timer ran out
	WokenByGap     uint64 // looks at the lock because a subscription is new: another connection, or another node of a cluster
	Renewals       uint64 // confirmed renewals
	RenewalErrors  uint64 // renewals that failed and were repeated
	Reconnects     uint64 // of subscriber connections
	Lost           map[Cause]uint64
	// Notifications says whether the server's keyspace notifications arrive, as New (and every new
	// subscriber connection) found out by trying. Without them, what does not pass through an Unlock of
	// ours is noticed by timers. In a cluster one node, that of a key of the probe's own, stands for all.
	Notifications bool
}

var causes = [...]Cause{CauseExpired, CauseTaken, CauseDeleted, CauseUnreachable, CauseMaxHold, CauseClosed}

type counters struct {
	byReply, byMessage, handedOver, waits, gaveUp          atomic.Uint64
	wokenByMessage, wokenByEvent, wokenByTimer, wokenByGap atomic.Uint64
	renewals, renewalErrors, reconnects, acquired          atomic.Uint64
	lost                                                   [len(causes)]atomic.Uint64 // in the order of causes
	notifications                                          atomic.Bool
}

func (c *counters) lose(cause Cause) {
	for i, known := range causes {
		if known == cause {
			c.lost[i].Add(1)
		}
	}
}

// Stats returns what the Client has counted so far. It neither blocks nor calls the server.
func (c *Client) Stats() Stats {
	n := &c.stats
	s := Stats{
		Acquired: n.acquired.Load(), ByReply: n.byReply.Load(), ByMessage: n.byMessage.Load(), HandedOver: n.handedOver.Load(),
		Waits: n.waits.Load(), GaveUp: n.gaveUp.Load(),
		WokenByMessage: n.wokenByMessage.Load(), WokenByEvent: n.wokenByEvent.Load(),
		WokenByTimer: n.wokenByTimer.Load(), WokenByGap: n.wokenByGap.Load(),
		Renewals: n.renewals.Load(), RenewalErrors: n.renewalErrors.Load(), Reconnects: n.reconnects.Load(),
		Lost:          map[Cause]uint64{},
		Notifications: n.notifications.Load(),
	}
	for i, cause := range causes {
		if lost := n.lost[i].Load(); lost > 0 {
			s.Lost[cause] = lost
		}
	}
	return s
}
