package valkeysync

import (
	"context"
	"log/slog"
	"time"
)

// logEvent is something that the log tells. Its name is for programs, and stays as it is; the text is for
// people.
type logEvent struct {
	name  string
	level slog.Level
	text  string
}

// events are all that the log tells. docs/operations.md has them in a table, and what to do about each.
var events = struct {
	leaseLost, renewalFailed, requestFailed, leaseTooShort, acquireRepeated, tryFailed, unlockFailed, cleanupFailed,
	noMajority, turnstileFailed, subscriberLost, watchRefused, slotsUnknown, mayEvict, isReplica, noNotifications,
	unknownMessage logEvent
}{
	leaseLost:       logEvent{"lease_lost", slog.LevelWarn, "lease lost"},
	renewalFailed:   logEvent{"renewal_failed", slog.LevelWarn, "renewal failed; repeating it until the lease ends"},
	requestFailed:   logEvent{"request_failed", slog.LevelWarn, "request failed; repeating it"},
	leaseTooShort:   logEvent{"lease_too_short", slog.LevelWarn, "the lease was over when the reply came; trying again. If this goes on, WithLease is too short for this network"},
	acquireRepeated: logEvent{"acquire_repeated", slog.LevelWarn, "acquired, but not as it should be; trying again"},
	tryFailed:       logEvent{"try_failed", slog.LevelWarn, "a try failed, and reports that the lock is taken"},
	unlockFailed:    logEvent{"unlock_failed", slog.LevelWarn, "an unlock found the lease lost, or is not confirmed"},
	cleanupFailed:   logEvent{"cleanup_failed", slog.LevelError, "could not clean up"},
	noMajority:      logEvent{"no_majority", slog.LevelWarn, "no majority of the servers answers; trying again"},
	turnstileFailed: logEvent{"turnstile_failed", slog.LevelDebug, "a queue's place could not be given up; it lapses with its lease"},
	subscriberLost:  logEvent{"subscriber_lost", slog.LevelWarn, "subscriber connection lost; connecting anew"},
	watchRefused:    logEvent{"watch_refused", slog.LevelWarn, "may not watch a key; waiting by timers instead"},
	slotsUnknown:    logEvent{"slots_unknown", slog.LevelWarn, "no node says where the slots are; asking on"},
	mayEvict:        logEvent{"may_evict", slog.LevelWarn, "the server may evict a lock when memory runs out, which would give it to two holders; use maxmemory-policy noeviction"},
	isReplica:       logEvent{"is_replica", slog.LevelWarn, "the server is a replica and cannot hold locks; connect to the primary"},
	noNotifications: logEvent{"no_notifications", slog.LevelInfo, "keyspace notifications do not arrive; what is not unlocked by this library is noticed by timers. Set notify-keyspace-events to include Kgxe, or use WithKeyspaceNotifications"},
	unknownMessage:  logEvent{"unknown_message", slog.LevelDebug, "unknown message"},
}

// to writes the event, with its attributes: those below, and no others.
func (e logEvent) to(l *slog.Logger, attrs ...slog.Attr) {
	l.LogAttrs(context.Background(), e.level, "valkeysync: "+e.text, append([]slog.Attr{slog.String("event", e.name)}, attrs...)...)
}

func logKey(key string) slog.Attr          { return slog.String("key", key) } // prefix included
func logCause(cause Cause) slog.Attr       { return slog.String("cause", string(cause)) }
func logLeft(d time.Duration) slog.Attr    { return slog.Duration("left", d.Round(time.Millisecond)) } // of the lease
func logLease(d time.Duration) slog.Attr   { return slog.Duration("lease", d) }
func logAfter(d time.Duration) slog.Attr   { return slog.Duration("after", d) }
func logCall(method string) slog.Attr      { return slog.String("call", method) }
func logNode(addr string) slog.Attr        { return slog.String("node", addr) }
func logChannel(channel string) slog.Attr  { return slog.String("channel", channel) }
func logPolicy(maxmemory string) slog.Attr { return slog.String("policy", maxmemory) }

// logError is left out where there is no error.
func logError(err error) slog.Attr {
	if err == nil {
		return slog.Attr{}
	}
	return slog.Any("error", err)
}
