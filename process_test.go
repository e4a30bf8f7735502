package valkeysync

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Processes that are killed, and processes that are stopped and go on later. The lease decides: crash
// detection is off.

func TestCounterOverProcesses(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const processes, goroutines, rounds = 3, 4, 40
		var all []*worker
		for range processes {
			all = append(all, startWorker(t, s, 30*time.Second))
		}
		for _, w := range all {
			w.tell("count", goroutines, rounds, "orders")
		}
		for _, w := range all {
			w.expect("counted", "orders")
		}
		n, err := ptr(command(t, s, "HGET", "store of orders", "value")).AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, processes*goroutines*rounds, n)
		nothingLeft(t, s, "orders")
	})
}

func TestKilledHolderIsFollowedWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease = 2 * time.Second
		w := startWorker(t, s, lease)
		w.tell("lock", "orders")
		old := w.token("orders")
		m := on(t, s).Mutex("orders")
		waits := take(context.Background(), m)
		queued(t, s, m.c, "orders", 1)
		w.kill()
		left := must(ptr(command(t, s, "PTTL", "orders")).AsInt64())
		killed := time.Now()
		got := waits.got(t, soon)
		late := waits.at.Sub(killed) - time.Duration(left)*time.Millisecond
		require.Less(t, late, time.Second)
		require.Greater(t, late, -100*time.Millisecond, "the lease is the dead holder's")
		require.Greater(t, tokenOf(t, got), old)
		unlock(t, m, got)
		nothingLeft(t, s, "orders")
	})
}

// A process that is stopped for several leases while it holds: when it goes on it knows at once that it
// has lost, and can do no harm to the next holder; and the store refuses it even where it does not look.
func TestStoppedHolderDoesNoHarm(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease = 600 * time.Millisecond
		w := startWorker(t, s, lease)
		conn := s.Client(t)
		m := newClient(t, conn).Mutex("orders")
		for range 2 {
			w.tell("lock", "orders")
			old := w.token("orders")
			waits := take(context.Background(), m)
			queued(t, s, m.c, "orders", 1)
			w.signal(syscall.SIGSTOP)
			got := waits.got(t, soon)
			require.Greater(t, tokenOf(t, got), old)
			require.NoError(t, fencedWrite(conn, "orders", tokenOf(t, got), "by the new one"))
			<-time.After(3 * lease)
			value := must(ptr(command(t, s, "GET", "orders")).ToString())

			w.tell("look", "orders") // it reads this first
			w.tell("write", "orders")
			w.tell("unlock", "orders")
			w.signal(syscall.SIGCONT)
			cause := w.expect("dead", "orders")
			require.Contains(t, []string{string(CauseExpired), string(CauseUnreachable)}, cause)
			w.expect("refused", "orders")
			require.Equal(t, cause, w.expect("lost", "orders"))
			// Whatever it had under way has come by the time it is granted something new.
			w.tell("lock", "another")
			w.expect("locked", "another")
			w.tell("unlock", "another")
			w.expect("unlocked", "another")
			require.NoError(t, got.Err())
			require.Equal(t, value, must(ptr(command(t, s, "GET", "orders")).ToString()))
			require.Equal(t, "by the new one", must(ptr(command(t, s, "HGET", "store of orders", "value")).ToString()))
			unlock(t, m, got)
		}
		nothingLeft(t, s, "orders")
	})
}

// Those who died in the queue are passed over, all at once.
func TestKilledWaitersCostNoTime(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		m, last := on(t, s, WithLease(time.Minute)).Mutex("orders"), on(t, s, WithLease(time.Minute)).Mutex("orders")
		held := lock(t, m)
		w := startWorker(t, s, time.Minute)
		w.tell("queue", 10, "orders")
		w.expect("queued", 10, "orders")
		queued(t, s, m.c, "orders", 10)
		waits := take(context.Background(), last)
		queued(t, s, m.c, "orders", 11)
		w.kill()
		eventually(t, soon, "the server has noticed", func() bool { return subscribersLike(t, s, "valkeysync:"+strings.Repeat("?", 36)) == 2 }) // two Clients' own channels
		start := time.Now()
		unlock(t, m, held)
		got := waits.got(t, soon)
		require.Less(t, waits.at.Sub(start), time.Second)
		unlock(t, last, got)
		nothingLeft(t, s, "orders")
	})
}

// A waiter that is stopped when its turn comes keeps the lock for its first lease, and no longer; and when
// it goes on it does not believe the grant that lies there.
func TestStoppedWaiterDoesNotBelieveAnOldGrant(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease = 800 * time.Millisecond
		m, next := on(t, s).Mutex("orders"), on(t, s).Mutex("orders")
		held := lock(t, m)
		w := startWorker(t, s, lease)
		w.tell("lock", "orders")
		queued(t, s, m.c, "orders", 1)
		waits := take(context.Background(), next)
		queued(t, s, m.c, "orders", 2)
		w.signal(syscall.SIGSTOP)
		start := time.Now()
		unlock(t, m, held)
		got := waits.got(t, soon)
		require.Less(t, waits.at.Sub(start), lease+2*time.Second)
		l, _ := FromContext(got)
		w.signal(syscall.SIGCONT)
		queued(t, s, m.c, "orders", 1) // it has looked, and waits again
		require.True(t, l.Valid())
		select {
		case line := <-w.lines:
			t.Fatalf("the worker says %q", line)
		default:
		}
		unlock(t, next, got)
		require.Greater(t, w.token("orders"), l.Token())
		w.tell("unlock", "orders")
		w.expect("unlocked", "orders")
		nothingLeft(t, s, "orders")
	})
}

// Tokens rise over processes, deaths, and the loss of everything.
func TestTokensRiseOverDeathsAndDataLoss(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		conn := s.Client(t)
		m := newClient(t, conn).Mutex("orders")
		last := int64(0)
		write := func(token int64) {
			t.Helper()
			require.Greater(t, token, last)
			last = token
			require.NoError(t, fencedWrite(conn, "orders", token, "x"))
		}
		w := startWorker(t, s, 500*time.Millisecond)
		for range 3 {
			w.tell("lock", "orders")
			write(w.token("orders"))
			w.tell("unlock", "orders")
			w.expect("unlocked", "orders")
			held := lock(t, m)
			write(tokenOf(t, held))
			unlock(t, m, held)
			store := must(ptr(command(t, s, "HGET", "store of orders", "token")).ToString())
			command(t, s, "FLUSHALL")
			command(t, s, "HSET", "store of orders", "token", store) // the store is another machine's
		}
		w.tell("lock", "orders")
		write(w.token("orders"))
		w.kill()
		held := lock(t, m)
		write(tokenOf(t, held))
		command(t, s, "DEL", "orders", "{orders}:fence")
		other := on(t, s).Mutex("orders")
		second := lock(t, other)
		write(tokenOf(t, second))
		unlock(t, other, second)
	})
}

// A process whose processor is busy with other things renews in time, or knows that it did not.
func TestBusyHolderRenewsOrKnows(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		const lease = 400 * time.Millisecond
		w := startWorker(t, s, lease, "GOMAXPROCS=1")
		m := on(t, s).Mutex("orders")
		w.tell("spin", "orders")
		w.expect("spinning", "orders")
		w.tell("lock", "orders")
		w.expect("locked", "orders")
		waits := take(context.Background(), m)
		queued(t, s, m.c, "orders", 1)
		<-time.After(4 * lease)
		another := false
		select {
		case <-waits.done:
			another = true
		default:
		}
		w.tell("look", "orders")
		select {
		case line := <-w.lines:
			require.True(t, !another || strings.HasPrefix(line, "dead"), "it believes that it holds what another has: %s", line)
			t.Log(line)
		case <-time.After(soon):
			t.Fatal("the worker is stuck")
		}
		w.kill()
		unlock(t, m, waits.got(t, soon))
	})
}

// The row of the dead may be the front of a queue of the living: each of those is served in its turn.
func TestQueueAfterManyDeaths(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		m := on(t, s, WithLease(2*time.Second)).Mutex("orders")
		held := lock(t, m)
		var waits []*taking
		var living []*Mutex
		for i := range 4 {
			w := startWorker(t, s, 2*time.Second)
			w.tell("lock", "orders")
			queued(t, s, m.c, "orders", 2*i+1)
			// Long, so that none of the living takes the dead before it out of the queue while that is made.
			n := on(t, s, WithLease(time.Minute), WithCrashDetection(0)).Mutex("orders")
			living = append(living, n)
			waits = append(waits, take(context.Background(), n))
			queued(t, s, m.c, "orders", 2*i+2)
			w.kill()
		}
		unlock(t, m, held)
		last := tokenOf(t, held)
		for i, k := range waits {
			got := k.got(t, soon)
			require.Greater(t, tokenOf(t, got), last, fmt.Sprint(i))
			last = tokenOf(t, got)
			if i+1 < len(waits) {
				select {
				case <-waits[i+1].done:
					t.Fatal("out of order")
				default:
				}
			}
			unlock(t, living[i], got)
		}
		nothingLeft(t, s, "orders")
	})
}
