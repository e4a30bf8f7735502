package interop

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// soon is how long something may take that should take no time, on a machine that is busy with other things.
const soon = 15 * time.Second

// each runs a test with every outsider against a server of each flavor.
func each(t *testing.T, fn func(t *testing.T, s *testserver.Server, o outsider)) {
	t.Parallel()
	for _, flavor := range testserver.Flavors() {
		t.Run(string(flavor), func(t *testing.T) {
			s := testserver.Start(t, flavor, "--notify-keyspace-events", "Kgxe")
			for _, o := range outsiders {
				t.Run(o.name, func(t *testing.T) { fn(t, s, o) })
			}
		})
	}
}

func ours(t *testing.T, s *testserver.Server, opts ...valkeysync.Option) *valkeysync.Client {
	t.Helper()
	c, err := valkeysync.New(s.Client(t), append([]valkeysync.Option{valkeysync.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// What we hold, in whatever way, they cannot have; what they hold, we cannot.
func TestEachExcludesTheOther(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server, o outsider) {
		key := o.keyOf("excluded by " + o.name)
		c, try := ours(t, s), o.join(t, s)
		m, rw := c.Mutex(key), c.RWMutex(key)
		for name, ours := range map[string]sync.Locker{
			"Mutex": m, "writer": rw, "reader": rw.RLocker(),
		} {
			ours.Lock()
			require.Nil(t, try(key, time.Minute), "%s has it", name)
			ours.Unlock()
			unlock := try(key, time.Minute)
			require.NotNil(t, unlock, "%s has given it back", name)
			require.False(t, m.TryLock())
			require.False(t, rw.TryLock())
			require.False(t, rw.TryRLock())
			_, err := m.TryLockContext(t.Context())
			require.ErrorIs(t, err, valkeysync.ErrLocked)
			require.ErrorContains(t, err, "another program")
			st, err := c.Status(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, valkeysync.StateForeign, st.State)
			require.Equal(t, "foreign", st.Holders[0].Mode)
			require.InDelta(t, time.Minute, st.Holders[0].Remaining, float64(soon))
			require.True(t, unlock())
		}
	})
}

// Who of us waits for one of them is woken by their unlock, and not by a timer: their lock would last a minute
// longer, and ours are as long.
func TestTheirUnlockWakesUs(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server, o outsider) {
		key := o.keyOf("woken by " + o.name)
		m, try := ours(t, s, valkeysync.WithLease(time.Minute), valkeysync.WithCrashDetection(0)).Mutex(key), o.join(t, s)
		var waits []time.Duration
		for range 5 {
			unlock := try(key, time.Minute)
			require.NotNil(t, unlock)
			got := make(chan time.Time, 1)
			go func() {
				m.Lock()
				got <- time.Now()
			}()
			require.Eventually(t, func() bool {
				n, err := s.Do("PUBSUB", "NUMSUB", "__keyspace@0__:"+key)
				require.NoError(t, err)
				list, err := n.ToArray()
				require.NoError(t, err)
				subscribers, err := list[1].AsInt64()
				return err == nil && subscribers > 0
			}, soon, time.Millisecond, "the waiter watches the key")
			unlock()
			gone := time.Now()
			select {
			case at := <-got:
				waits = append(waits, at.Sub(gone))
			case <-time.After(soon):
				t.Fatal("not woken")
			}
			m.Unlock()
		}
		slices.Sort(waits)
		t.Logf("from the end of their unlock to the end of our Lock: %v", waits)
		require.Less(t, waits[0], 50*time.Millisecond)
	})
}

// A lock of theirs that they let run out is ours then, and their late unlock does nothing to it.
func TestTheirLateUnlockOpensNothing(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server, o outsider) {
		if o.name == "valkeylock" {
			t.Skip("it renews its lock for as long as it is held, so it does not run out") //nolint:forbidigo // there is nothing to be shown
		}
		key := o.keyOf("late " + o.name)
		m, try := ours(t, s).Mutex(key), o.join(t, s)
		unlock := try(key, 200*time.Millisecond)
		require.NotNil(t, unlock)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		defer cancel()
		held, err := m.LockContext(ctx)
		require.NoError(t, err)
		require.False(t, unlock(), "it is not theirs any more")
		require.NoError(t, held.Err())
		require.Nil(t, try(key, time.Minute))
		require.NoError(t, m.UnlockContext(held))
	})
}

// One of them that took our key from us, by whatever mistake, is told to the holder of ours at once, and our late
// unlock does nothing to theirs.
func TestOurLateUnlockOpensNothing(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server, o outsider) {
		key := o.keyOf("taken by " + o.name)
		m, try := ours(t, s, valkeysync.WithLease(2*time.Second)).Mutex(key), o.join(t, s)
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		_, err = s.Do("DEL", key)
		require.NoError(t, err)
		unlock := try(key, time.Minute)
		require.NotNil(t, unlock)
		select {
		case <-held.Done():
			require.ErrorIs(t, context.Cause(held), valkeysync.ErrLeaseLost)
		case <-time.After(soon):
			t.Fatal("not told")
		}
		require.ErrorIs(t, m.UnlockContext(held), valkeysync.ErrLeaseLost)
		require.True(t, unlock(), "it is still theirs")
	})
}

// Both count on one counter that nothing else protects: nothing is lost.
func TestNobodyIsInWithThem(t *testing.T) {
	each(t, func(t *testing.T, s *testserver.Server, o outsider) {
		const turns = 15
		key, counter := o.keyOf("counted with "+o.name), "counter with "+o.name
		count := func() {
			m, err := s.Do("GET", counter)
			n := int64(0)
			if err == nil && !m.IsNil() {
				n, err = m.AsInt64()
			}
			if err != nil {
				n = 0 // the first: there is none yet
			}
			_, err = s.Do("SET", counter, strconv.FormatInt(n+1, 10))
			require.NoError(t, err)
		}
		var all sync.WaitGroup
		for range 2 {
			m := ours(t, s).Mutex(key)
			all.Go(func() {
				for range turns {
					m.Lock()
					count()
					m.Unlock()
				}
			})
			try := o.join(t, s)
			all.Go(func() {
				for range turns {
					unlock := try(key, time.Minute)
					for ; unlock == nil; unlock = try(key, time.Minute) {
						time.Sleep(time.Millisecond) // they know nothing better
					}
					count()
					unlock()
				}
			})
		}
		all.Wait()
		n, err := s.Do("GET", counter)
		require.NoError(t, err)
		total, err := n.AsInt64()
		require.NoError(t, err)
		require.EqualValues(t, 4*turns, total)
	})
}

// A holder without expiry is called that, and what to do about it is said.
func TestAHolderWithoutExpiryIsNamed(t *testing.T) {
	t.Parallel()
	for _, flavor := range testserver.Flavors() {
		s := testserver.Start(t, flavor, "--notify-keyspace-events", "Kgxe")
		c := ours(t, s)
		_, err := s.Do("SET", "orders", "SETNX without an expiry")
		require.NoError(t, err)
		st, err := c.Status(t.Context(), "orders")
		require.NoError(t, err)
		require.Equal(t, valkeysync.StateNoExpiry, st.State)
		require.Equal(t, "SETNX without an expiry", st.Holders[0].Name)
		_, err = c.Mutex("orders").TryLockContext(t.Context())
		require.ErrorContains(t, err, "without expiry")
		require.ErrorContains(t, err, "ForceUnlock")
		require.NoError(t, c.ForceUnlock(t.Context(), "orders"))
		require.True(t, c.Mutex("orders").TryLock())
	}
}
