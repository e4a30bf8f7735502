package valkeysync

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// hasMethodsOf requires that like has all methods of model, with the same types.
func hasMethodsOf(t *testing.T, like, model any) {
	t.Helper()
	m, l := reflect.TypeOf(model), reflect.TypeOf(like)
	require.NotZero(t, m.NumMethod())
	for i := range m.NumMethod() {
		want := m.Method(i)
		got, ok := l.MethodByName(want.Name)
		require.True(t, ok, "%v has no %s", l, want.Name)
		signature := func(f reflect.Method) string { return strings.Replace(f.Type.String(), f.Type.In(0).String(), "", 1) }
		require.Equal(t, signature(want), signature(got), want.Name)
	}
}

func TestRWMutexHasTheMethodsOfSync(t *testing.T) {
	hasMethodsOf(t, (*RWMutex)(nil), (*sync.RWMutex)(nil))
}

// What a single goroutine sees is what it would see of a sync.RWMutex, in whichever process the next
// step is taken.
func TestRWMutexBehavesAsSyncs(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		locks := []*RWMutex{c.RWMutex("config"), c.RWMutex("config"), b.client().RWMutex("config")}
		var model sync.RWMutex
		var writer *RWMutex
		var readers []*RWMutex
		rnd := rand.New(rand.NewPCG(1, 2))
		for step := range 800 {
			rw := locks[rnd.IntN(len(locks))]
			switch rnd.IntN(6) {
			case 0:
				want := model.TryLock()
				require.Equal(t, want, rw.TryLock(), "step %d: TryLock", step)
				if want {
					writer = rw
				}
			case 1, 2:
				want := model.TryRLock()
				require.Equal(t, want, rw.TryRLock(), "step %d: TryRLock", step)
				if want {
					readers = append(readers, rw)
				}
			case 3:
				if writer != nil {
					model.Unlock()
					writer.Unlock()
					writer = nil
				}
			default:
				if n := len(readers); n > 0 {
					i := rnd.IntN(n)
					model.RUnlock()
					readers[i].RUnlock()
					readers[i] = readers[n-1]
					readers = readers[:n-1]
				}
			}
		}
	})
}

// Locks and unlocks of the two kinds are counted apart, in whatever order they come.
func TestRWMutexSequences(t *testing.T) {
	for _, steps := range []string{
		// L and R lock for writing and reading, - before a try says that it fails; U and r unlock, ! before
		// an unlock says that nothing is locked that way; D downgrades. a and b are two processes.
		"aL -aR -aL !ar aU aR ar",
		"aR aR -aL ar -aL ar aL aU",
		"aR bR -bL !aU ar !ar -aL br aL",
		"aL -bR -bL !bU !br aU bL -aR bU",
		"aL aD !aU aR -aL bR -bL ar ar -aL br aL aU",
		"aL aD -bL bR ar -aL br bL bD br aL aU",
		"aR ar !ar aL aU !aU aR -bL ar bL",
	} {
		t.Run(steps, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				locks := map[byte]*RWMutex{'a': b.client().RWMutex("config"), 'b': b.client().RWMutex("config")}
				for step := range strings.FieldsSeq(steps) {
					no := strings.ContainsAny(step[:1], "-!")
					op := strings.TrimLeft(step, "-!")
					rw := locks[op[0]]
					var err error
					switch op[1:] {
					case "L":
						_, err = rw.TryLockContext(t.Context())
					case "R":
						_, err = rw.TryRLockContext(t.Context())
					case "U":
						err = rw.UnlockContext(t.Context())
					case "r":
						err = rw.RUnlockContext(t.Context())
					case "D":
						_, err = rw.Downgrade(t.Context())
					default:
						continue
					}
					switch {
					case !no:
						require.NoError(t, err, step)
					case step[0] == '-':
						require.ErrorIs(t, err, ErrLocked, step)
					default:
						require.ErrorIs(t, err, ErrNotLocked, step)
					}
				}
			})
		})
	}
}

func TestRWMutexMisusePanics(t *testing.T) {
	for name, misuse := range map[string]struct {
		f    func(b *bubble)
		says string
	}{
		"Unlock of what is not locked":  {func(b *bubble) { b.client().RWMutex("k").Unlock() }, "Unlock of unlocked RWMutex"},
		"RUnlock of what is not locked": {func(b *bubble) { b.client().RWMutex("k").RUnlock() }, "RUnlock of unlocked RWMutex"},
		"Unlock of a read lock":         {func(b *bubble) { rw := b.client().RWMutex("k"); rw.RLock(); rw.Unlock() }, "Unlock of unlocked RWMutex"},
		"RUnlock of a write lock":       {func(b *bubble) { rw := b.client().RWMutex("k"); rw.Lock(); rw.RUnlock() }, "RUnlock of unlocked RWMutex"},
		"Unlock twice":                  {func(b *bubble) { rw := b.client().RWMutex("k"); rw.Lock(); rw.Unlock(); rw.Unlock() }, "Unlock of unlocked RWMutex"},
		"RUnlock twice":                 {func(b *bubble) { rw := b.client().RWMutex("k"); rw.RLock(); rw.RUnlock(); rw.RUnlock() }, "RUnlock of unlocked RWMutex"},
		"Unlock of the RLocker":         {func(b *bubble) { b.client().RWMutex("k").RLocker().Unlock() }, "RUnlock of unlocked RWMutex"},
		"Unlock by another handle":      {func(b *bubble) { c := b.client(); c.RWMutex("k").Lock(); c.RWMutex("k").Unlock() }, "Unlock of unlocked RWMutex"},
		"RUnlock by another handle":     {func(b *bubble) { c := b.client(); c.RWMutex("k").RLock(); c.RWMutex("k").RUnlock() }, "RUnlock of unlocked RWMutex"},
		"Unlock after Downgrade": {func(b *bubble) {
			rw := b.client().RWMutex("k")
			rw.Lock()
			_, _ = rw.Downgrade(b.t.Context())
			rw.Unlock()
		}, "Unlock of unlocked RWMutex"},
		"Lock of an empty key":              {func(b *bubble) { b.client().RWMutex("").Lock() }, ErrInvalidKey.Error()},
		"RLock of an empty key":             {func(b *bubble) { b.client().RWMutex(" ").RLock() }, ErrInvalidKey.Error()},
		"TryRLock of an empty key":          {func(b *bubble) { b.client().RWMutex("").TryRLock() }, ErrInvalidKey.Error()},
		"RLock with a bad option":           {func(b *bubble) { b.client().RWMutex("k", WithLease(3)).RLock() }, ErrInvalidOption.Error()},
		"Unlock with a bad option":          {func(b *bubble) { b.client().RWMutex("k", WithLease(3)).Unlock() }, "Unlock of unlocked RWMutex"},
		"RLock of a closed Client":          {func(b *bubble) { c := b.client(); _ = c.Close(); c.RWMutex("k").RLock() }, ErrClosed.Error()},
		"RLock where a Mutex is in use":     {func(b *bubble) { c := b.client(); c.Mutex("k").Lock(); c.RWMutex("k").RLock() }, "is in use by a Mutex, this is a RWMutex"},
		"Lock where a Semaphore is in use":  {func(b *bubble) { c := b.client(); c.Semaphore("k", 3).TryAcquire(1); c.RWMutex("k").Lock() }, "is in use by a Semaphore of size 3, this is a RWMutex"},
		"TryLock where a Mutex is in use":   {func(b *bubble) { c := b.client(); c.Mutex("k").Lock(); c.RWMutex("k").TryLock() }, "is in use by a Mutex, this is a RWMutex"},
		"RLock where the key is of no kind": {func(b *bubble) { c := b.client(); b.Lpush("k", "x"); c.RWMutex("k").RLock() }, "WRONGTYPE"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				defer func() {
					v := recover()
					require.NotNil(t, v, "no panic")
					if err, ok := v.(error); ok {
						v = err.Error()
					}
					require.Contains(t, v, misuse.says)
				}()
				misuse.f(b)
			})
		})
	}
}

func TestRLockerLocksForReading(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		rw, other := b.client().RWMutex("config"), b.client().RWMutex("config")
		l := rw.RLocker()
		l.Lock()
		require.True(t, other.TryRLock())
		require.False(t, other.TryLock())
		rw.RUnlock()
		rw.RLock()
		l.Unlock()
		other.RUnlock()
		require.True(t, other.TryLock())
	})
}

// What a context carries already it would wait for: that is told, and at once.
func TestRWMutexKnowsADeadlock(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		rw, handle, other := c.RWMutex("config"), c.RWMutex("config"), c.RWMutex("other")
		for name, outer := range map[string]func() (context.Context, func()){
			"write": func() (context.Context, func()) {
				ctx, err := rw.LockContext(t.Context())
				require.NoError(t, err)
				return ctx, rw.Unlock
			},
			"read": func() (context.Context, func()) {
				ctx, err := rw.RLockContext(t.Context())
				require.NoError(t, err)
				return ctx, rw.RUnlock
			},
		} {
			ctx, unlock := outer()
			within, err := other.LockContext(ctx)
			require.NoError(t, err, "another lock is another matter")
			for _, ctx := range []context.Context{ctx, within} {
				for _, rw := range []*RWMutex{rw, handle} {
					_, err = rw.LockContext(ctx)
					require.ErrorIs(t, err, ErrDeadlock, "write within %s", name)
					_, err = rw.TryLockContext(ctx)
					require.ErrorIs(t, err, ErrDeadlock, "write within %s", name)
					require.ErrorIs(t, rw.Do(ctx, func(context.Context) error { return nil }), ErrDeadlock)
				}
				inner, err := rw.RLockContext(ctx)
				if name == "write" {
					require.ErrorIs(t, err, ErrDeadlock, "read within write")
				} else {
					require.NoError(t, err)
					require.NoError(t, rw.RUnlockContext(inner))
				}
			}
			other.Unlock()
			unlock()
			ended, err := rw.LockContext(context.WithoutCancel(ctx))
			require.NoError(t, err, "it carries nothing any more")
			require.NoError(t, rw.UnlockContext(ended))
		}
	})
}

// Two readers that both would go on to write: neither waits for the other.
func TestNobodyWaitsToBecomeAWriter(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		start := time.Now()
		for range 2 {
			rw := b.client().RWMutex("config")
			r, err := rw.RLockContext(t.Context())
			require.NoError(t, err)
			_, err = rw.LockContext(r)
			require.ErrorIs(t, err, ErrDeadlock)
			require.False(t, rw.TryLock())
			require.NoError(t, r.Err())
		}
		require.Zero(t, time.Since(start))
	})
}

func TestRDoReadsAndGivesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		rw, other := b.client().RWMutex("config"), b.client().RWMutex("config")
		require.ErrorContains(t, rw.RDo(t.Context(), func(ctx context.Context) error {
			require.True(t, leaseOf(t, ctx).Valid())
			require.True(t, other.TryRLock())
			require.False(t, other.TryLock())
			other.RUnlock()
			return context.DeadlineExceeded
		}), "deadline")
		require.True(t, other.TryLock())
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		require.ErrorIs(t, rw.RDo(ctx, func(context.Context) error { t.Error("without the lock"); return nil }), context.DeadlineExceeded)
		other.Unlock()
		synctest.Wait() // nothing is left on the server of the wait that was given up

		require.Panics(t, func() { _ = rw.RDo(t.Context(), func(context.Context) error { panic("here") }) })
		require.True(t, other.TryLock())
	})
}

// What is said of one reader is not said of those who share the process's hold.
func TestReadersOfOneProcessAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newBubble(t).client()
		rw := c.RWMutex("config")
		first, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		second, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		gone, _ := FromContext(first)
		stays, _ := FromContext(second)

		require.NoError(t, rw.RUnlockContext(first))
		require.ErrorIs(t, first.Err(), context.Canceled)
		require.False(t, gone.Valid())
		require.True(t, gone.Until().IsZero())
		require.ErrorIs(t, rw.RUnlockContext(first), ErrNotLocked)
		require.NoError(t, second.Err())
		require.True(t, stays.Valid())

		// first carries nothing any more that a writer would wait for.
		ctx, stop := context.WithTimeout(context.WithoutCancel(first), time.Second)
		defer stop()
		_, err = rw.LockContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = rw.LockContext(second)
		require.ErrorIs(t, err, ErrDeadlock)
		require.NoError(t, rw.RUnlockContext(second))
	})
}

// Nobody need be told when a lock is lost that nobody holds any more.
func TestLingeringReadLockMayBeLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		rw := b.client(WithLinger(time.Second), WithOnLost(func(string, error) { t.Error("told") })).RWMutex("config")
		rw.RLock()
		rw.RUnlock()
		b.Del("{config}:shared")
		b.Del("config")
		time.Sleep(time.Minute)
		rw.Lock()
		rw.Unlock()
	})
}
