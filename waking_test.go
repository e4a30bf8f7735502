package valkeysync

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Waking by keyspace notifications: whatever frees the lock without our release.

// aRoundTrip is how long a wake-up by an event may take here; far below any timer of these tests, which are
// of a lease of a minute.
const aRoundTrip = 3 * time.Second

const compareAndDelete = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`

// frees are the ways in which a key that another program set goes away.
var frees = []struct {
	name string
	free func(t testing.TB, s *testserver.Server, key string)
}{
	{"DEL", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "DEL", key) }},
	{"UNLINK", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "UNLINK", key) }},
	{"GETDEL", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "GETDEL", key) }},
	{"RENAME", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "RENAME", key, "was "+key) }},
	{"MOVE", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "MOVE", key, "1") }},
	{"the plain recipe's unlock", func(t testing.TB, s *testserver.Server, key string) {
		command(t, s, "EVAL", compareAndDelete, "1", key, "foreign")
	}},
	{"an end that is set later", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "PEXPIRE", key, "30") }},
	// An end in the past is a del for some versions, an expired for others.
	{"an end in the past", func(t testing.TB, s *testserver.Server, key string) { command(t, s, "PEXPIREAT", key, "1") }},
	{"SET with an end in the past", func(t testing.TB, s *testserver.Server, key string) {
		command(t, s, "SET", key, "foreign", "PXAT", "1")
	}},
	{"ForceUnlock", func(t testing.TB, s *testserver.Server, key string) {
		require.NoError(t, on(t, s).ForceUnlock(context.Background(), key))
	}},
}

func TestWaiterIsWokenByWhateverFreesTheKey(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for _, f := range frees {
			c := on(t, s, WithLease(time.Minute))
			cases = append(cases, sub{f.name, func(t *testing.T) {
				m := c.Mutex(f.name)
				command(t, s, "SET", f.name, "foreign", "NX", "PX", "600000")
				if f.name == "DEL" {
					command(t, s, "PERSIST", f.name) // a holder without expiry
				}
				waits := take(context.Background(), m)
				watches(t, m)
				start := time.Now()
				f.free(t, s, f.name)
				got := waits.got(t, soon)
				require.Less(t, waits.at.Sub(start), aRoundTrip)
				t.Logf("%v after it was freed", waits.at.Sub(start))
				if f.name != "ForceUnlock" { // that one sends a message
					require.Positive(t, c.Stats().WokenByEvent)
				}
				require.Zero(t, c.Stats().WokenByTimer)
				unlock(t, m, got)
			}})
		}
		together(t, cases...)
	})
}

// Who waits behind a holder of ours watches the key as well, after a while.
func TestWaiterBehindAHolderOfOursIsWokenByDEL(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		p := newPair(t, s, "orders", WithLease(time.Minute))
		watched(t, s, "orders", 2)
		start := time.Now()
		command(t, s, "DEL", "orders")
		got := p.waits.got(t, soon)
		require.Less(t, p.waits.at.Sub(start), aRoundTrip)
		require.Contains(t, []Cause{CauseDeleted, CauseTaken}, ends(t, p.held, aRoundTrip).Cause)
		require.Greater(t, tokenOf(t, got), tokenOf(t, p.held))
		unlock(t, p.waiter, got)
	})
}

// robs are the ways in which a holder of ours loses its key.
var robs = []struct {
	name  string
	cause Cause
	rob   func(t testing.TB, s *testserver.Server, key string)
}{
	{"DEL", CauseDeleted, func(t testing.TB, s *testserver.Server, key string) { command(t, s, "DEL", key) }},
	{"RENAME", CauseDeleted, func(t testing.TB, s *testserver.Server, key string) { command(t, s, "RENAME", key, "was "+key) }},
	{"an end in the past", CauseDeleted, func(t testing.TB, s *testserver.Server, key string) { command(t, s, "PEXPIREAT", key, "1") }},
	{"RENAME over it", CauseTaken, func(t testing.TB, s *testserver.Server, key string) {
		command(t, s, "SET", "new "+key, "mine")
		command(t, s, "RENAME", "new "+key, key)
	}},
	{"ForceUnlock", CauseDeleted, func(t testing.TB, s *testserver.Server, key string) {
		require.NoError(t, on(t, s).ForceUnlock(context.Background(), key))
	}},
}

// A hold that is older than a second is told within a round trip. (An overwriting SET makes an event only with
// the class $, which is not asked for, because every SET of everybody would be one: it is found out by the
// next renewal.)
func TestHolderIsToldOfWhateverTakesTheKey(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for _, r := range robs {
			c := on(t, s, WithLease(time.Minute))
			cases = append(cases, sub{r.name, func(t *testing.T) {
				m := c.Mutex(r.name)
				held := lock(t, m)
				watched(t, s, r.name, 1)
				start := time.Now()
				r.rob(t, s, r.name)
				lost := ends(t, held, soon)
				require.Less(t, time.Since(start), aRoundTrip)
				require.Equal(t, r.cause, lost.Cause)
				unlockLost(t, m, held, r.cause)
				if r.cause == CauseTaken {
					require.Equal(t, "mine", must(ptr(command(t, s, "GET", r.name)).ToString()), "another's key is left alone")
				}
			}})
		}
		together(t, cases...)
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Without notifications hand-overs go by messages as ever, and timers do the rest.
func TestNotificationsOff(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		c, other := on(t, s, WithLease(time.Second)), on(t, s, WithLease(time.Second))
		require.False(t, c.Stats().Notifications)
		together(t,
			sub{"hand-over", func(t *testing.T) {
				a, b := on(t, s, WithLease(time.Minute)), on(t, s, WithLease(time.Minute))
				ma, mb := a.Mutex("handed over"), b.Mutex("handed over")
				held := lock(t, ma)
				waits := take(context.Background(), mb)
				queued(t, s, a, "handed over", 1)
				start := time.Now()
				unlock(t, ma, held)
				unlock(t, mb, waits.got(t, soon))
				require.Less(t, waits.at.Sub(start), aRoundTrip)
				require.EqualValues(t, 1, b.Stats().ByMessage)
			}},
			sub{"a foreign lease that ends", func(t *testing.T) {
				m := c.Mutex("lapses")
				command(t, s, "SET", "lapses", "foreign", "PX", "700")
				start := time.Now()
				waits := take(context.Background(), m)
				unlock(t, m, waits.got(t, soon))
				require.GreaterOrEqual(t, waits.at.Sub(start), 600*time.Millisecond)
				require.Less(t, waits.at.Sub(start), 700*time.Millisecond+aRoundTrip)
			}},
			sub{"a foreign unlock", func(t *testing.T) {
				m := c.Mutex("deleted")
				command(t, s, "SET", "deleted", "foreign")
				waits := take(context.Background(), m)
				queued(t, s, c, "deleted", 1)
				command(t, s, "DEL", "deleted")
				unlock(t, m, waits.got(t, soon)) // within a lease of its own
			}},
			sub{"a holder whose key is deleted", func(t *testing.T) {
				m := other.Mutex("held")
				held := lock(t, m)
				command(t, s, "DEL", "held")
				require.Equal(t, CauseDeleted, ends(t, held, soon).Cause) // within a third of its lease
				unlockLost(t, m, held, CauseDeleted)
			}},
		)
		require.Zero(t, c.Stats().WokenByEvent)
		require.Positive(t, c.Stats().WokenByTimer)
	})
}

// Switched off and on at run time: what is so is found out with the next connection.
func TestNotificationsSwitchedAtRunTime(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := on(t, s, WithLease(time.Second))
		m := c.Mutex("orders")
		command(t, s, "SET", "orders", "foreign")
		waits := take(context.Background(), m)
		watches(t, m)
		command(t, s, "CONFIG", "SET", "notify-keyspace-events", "")
		command(t, s, "DEL", "orders")
		unlock(t, m, waits.got(t, soon)) // by its timer
		for _, flags := range []string{"", "Kgxe"} {
			command(t, s, "CONFIG", "SET", "notify-keyspace-events", flags)
			command(t, s, "CLIENT", "KILL", "TYPE", "pubsub")
			eventually(t, soon, fmt.Sprintf("found out: %q", flags), func() bool { return c.Stats().Notifications == (flags != "") })
		}
		command(t, s, "SET", "orders", "foreign")
		waits = take(context.Background(), m)
		watches(t, m)
		before := c.Stats().WokenByEvent
		command(t, s, "DEL", "orders")
		unlock(t, m, waits.got(t, soon))
		require.Greater(t, c.Stats().WokenByEvent, before)
	})
}

// The option adds what is missing and takes nothing away.
func TestWithKeyspaceNotificationsKeepsWhatIsSet(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		conn := s.Client(t)
		for _, before := range []string{"", "K", "E", "A", "KEA", "AKE", "Km", "mnE", "Kgx", "$lshzt", "KAn", "KAm", "Ex"} {
			command(t, s, "CONFIG", "SET", "notify-keyspace-events", before)
			c, err := New(conn, WithLogger(testLogger(t)), WithKeyspaceNotifications())
			require.NoError(t, err)
			require.True(t, c.Stats().Notifications, "%q", before)
			require.NoError(t, c.Close())
			after := must(ptr(command(t, s, "CONFIG", "GET", "notify-keyspace-events")).AsStrMap())["notify-keyspace-events"]
			for _, flag := range before + "Kgxe" {
				switch {
				case strings.ContainsRune(after, flag), flag != 'm' && flag != 'n' && flag != 'K' && flag != 'E' && strings.Contains(after, "A"):
				case flag == 'n': // not shown beside A: look
					requireMissEvent(t, s)
				default:
					t.Errorf("%q became %q: %q is missing", before, after, flag)
				}
			}
		}
	})
}

// requireMissEvent requires that the class n (new keys) is on: the first SET of a key makes two events.
func requireMissEvent(t testing.TB, s *testserver.Server) {
	t.Helper()
	events := make(chan string, 10)
	conn := s.Client(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	listening := make(chan struct{})
	go func() {
		hook := valkey.WithOnSubscriptionHook(ctx, func(valkey.PubSubSubscription) { close(listening) })
		_ = conn.Receive(hook, conn.B().Subscribe().Channel("__keyspace@0__:new").Build(), func(m valkey.PubSubMessage) { events <- m.Message })
	}()
	<-listening
	command(t, s, "SET", "new", "1")
	command(t, s, "DEL", "new")
	var got []string
	for len(got) == 0 || got[len(got)-1] != "del" {
		got = append(got, <-events)
	}
	require.Contains(t, got, "new")
}

// Keyspace channels carry the number of the database.
func TestAnotherDatabase(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		in3 := func(o *valkey.ClientOption) { o.SelectDB = 3 }
		c := newClient(t, s.Client(t, in3), WithLease(time.Minute))
		require.True(t, c.Stats().Notifications)
		m, zero := c.Mutex("orders"), on(t, s).Mutex("orders")
		other := lock(t, zero) // another database, another lock
		db3 := s.Client(t, in3)
		do := func(args ...string) {
			t.Helper()
			require.NoError(t, db3.Do(context.Background(), db3.B().Arbitrary(args...).Build()).Error())
		}
		do("SET", "orders", "foreign")
		waits := take(context.Background(), m)
		watches(t, m)
		require.EqualValues(t, 1, subscribers(t, s, "__keyspace@3__:orders"))
		do("DEL", "orders")
		got := waits.got(t, soon)
		require.Positive(t, c.Stats().WokenByEvent)
		require.NoError(t, other.Err())
		unlock(t, m, got)
		unlock(t, zero, other)
	})
}

// Only the front of the queue hears what happens to the key: however often the holder renews, it wakes
// nobody, and the many who wait hear nothing of it.
func TestRenewalsDisturbNoWaiters(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const waiters, renewals = 100, 200
		command(t, s, "SET", "orders", "foreign", "PX", "600000")
		ctx, cancel := context.WithCancel(context.Background())
		var all []*Client
		var waits []*taking
		for range waiters {
			c := on(t, s, WithLease(time.Minute))
			all = append(all, c)
			waits = append(waits, take(ctx, c.Mutex("orders")))
		}
		queued(t, s, all[0], "orders", waiters)
		watched(t, s, "orders", 1)
		ours := func() map[string]int64 {
			return s.Calls(append(testserver.AdminCommands(), "pexpire", "pubsub")...)
		}
		calls := ours()
		eventually(t, soon, "all is quiet", func() bool {
			before := calls
			calls = ours()
			return maps.Equal(before, calls)
		})
		before := must(strconv.Atoi(field(t, s, "stats", "total_net_output_bytes")))
		for range renewals {
			command(t, s, "PEXPIRE", "orders", "600000")
		}
		after := must(strconv.Atoi(field(t, s, "stats", "total_net_output_bytes")))
		require.Less(t, after-before, renewals*200+20_000, "one watcher's events, not a hundred's")
		require.EqualValues(t, 1, subscribers(t, s, "__keyspace@0__:orders"))
		require.Equal(t, calls, ours(), "nobody asked anything")
		cancel()
		for _, k := range waits {
			require.ErrorIs(t, k.failed(t, soon), context.Canceled)
		}
		command(t, s, "DEL", "orders")
		nothingLeft(t, s, "orders")
	})
}
