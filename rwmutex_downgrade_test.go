package valkeysync

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// writer is a writer of a Client of its own, in a bubble.
func writer(t *testing.T, b *bubble, key string, opts ...Option) (*RWMutex, context.Context) {
	rw := b.client(opts...).RWMutex(key)
	ctx, err := rw.LockContext(context.WithValue(t.Context(), valueKey{}, "mine"))
	require.NoError(t, err)
	return rw, ctx
}

type valueKey struct{}

func TestDowngradeLetsNoWriterInBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		rw, w := writer(t, b, "config")
		other := b.client().RWMutex("config")
		order := make(chan string, 3)
		go func() {
			if ctx, err := other.LockContext(t.Context()); err == nil {
				order <- "writer"
				_ = other.UnlockContext(ctx)
			}
		}()
		synctest.Wait()
		third := b.client().RWMutex("config")
		go func() {
			_, err := third.RLockContext(t.Context())
			if err == nil {
				order <- "reader of another process"
			}
		}()
		go func() {
			_, err := rw.RLockContext(t.Context())
			if err == nil {
				order <- "reader of this process"
			}
		}()
		synctest.Wait()

		r, err := rw.Downgrade(w)
		require.NoError(t, err)
		synctest.Wait()
		require.Len(t, order, 2, "the readers that waited are in, the writer is not")
		require.NotEqual(t, <-order, <-order)

		require.ErrorIs(t, w.Err(), context.Canceled, "the write lock is over")
		require.NoError(t, r.Err(), "and the read lock is not")
		require.Equal(t, "mine", r.Value(valueKey{}))
		was, _ := FromContext(w)
		is, ok := FromContext(r)
		require.True(t, ok)
		require.False(t, was.Valid())
		require.True(t, is.Valid())
		require.Greater(t, is.Token(), was.Token())
		require.ErrorIs(t, rw.UnlockContext(w), ErrNotLocked)

		require.NoError(t, rw.RUnlockContext(r))
		third.RUnlock()
		synctest.Wait()
		require.Empty(t, order)
		rw.RUnlock()
		require.Equal(t, "writer", <-order)
	})
}

func TestDowngradeNeedsTheWriteLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		rw := b.client().RWMutex("config")
		_, err := rw.Downgrade(t.Context())
		require.ErrorIs(t, err, ErrNotLocked)
		r, err := rw.RLockContext(t.Context())
		require.NoError(t, err)
		_, err = rw.Downgrade(r)
		require.ErrorIs(t, err, ErrNotLocked)
		require.NoError(t, r.Err())
		require.NoError(t, rw.RUnlockContext(r))
		w, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		r, err = rw.Downgrade(w)
		require.NoError(t, err)
		_, err = rw.Downgrade(w)
		require.ErrorIs(t, err, ErrNotLocked)
		require.NoError(t, rw.RUnlockContext(r))
		_, err = b.client().RWMutex(" ").Downgrade(t.Context())
		require.ErrorIs(t, err, ErrInvalidKey)
	})
}

func TestDowngradeOfALostLeaseSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		lose  func(b *bubble)
		cause Cause
	}{
		"deleted": {func(b *bubble) { b.Del("config") }, CauseDeleted},
		"taken":   {func(b *bubble) { require.NoError(b.t, b.Set("config", "an operator")) }, CauseTaken},
		"lapsed":  {func(b *bubble) { b.away(); time.Sleep(time.Minute); b.SetError("") }, CauseUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				told := make(chan error, 2)
				rw, w := writer(t, b, "config", WithOnLost(func(_ string, err error) { told <- err }))
				c.lose(b)
				_, err := rw.Downgrade(w)
				var lost *LostError
				require.ErrorAs(t, err, &lost)
				require.Equal(t, c.cause, lost.Cause)
				synctest.Wait()
				require.ErrorAs(t, <-told, &lost)
				require.Equal(t, c.cause, lost.Cause)
				require.Empty(t, told, "once")
				require.ErrorIs(t, rw.RUnlockContext(t.Context()), ErrNotLocked)
				require.ErrorIs(t, rw.UnlockContext(t.Context()), ErrNotLocked)
				b.Del("config")
				require.True(t, b.client().RWMutex("config").TryLock())
			})
		})
	}
}

// Who gives up holds nothing, and what it held is given back as soon as the server answers again.
func TestDowngradeGivenUpGivesTheLockBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		rw, w := writer(t, b, "config", WithLease(time.Hour), WithCrashDetection(0))
		other := b.client().RWMutex("config")
		b.away()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := rw.Downgrade(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, w.Err(), context.Canceled)
		b.SetError("")
		start := time.Now()
		other.Lock()
		require.Less(t, time.Since(start), 5*time.Second)
		other.Unlock()
		require.ErrorIs(t, rw.RUnlockContext(t.Context()), ErrNotLocked)
	})
}

// A reader that waits behind a downgrade is no part of its failure.
func TestDowngradeFailsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t)
		rw, _ := writer(t, b, "config", WithLease(time.Hour), WithCrashDetection(0))
		b.away()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		in := make(chan error, 1)
		go func() {
			_, err := rw.RLockContext(t.Context())
			in <- err
		}()
		synctest.Wait()
		_, err := rw.Downgrade(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, b.Set("config", "an operator"))
		b.SetError("")
		time.Sleep(10 * time.Second)
		require.Empty(t, in)
		b.Del("config")
		require.NoError(t, <-in)
		rw.RUnlock()
	})
}

func TestDowngradeAndClose(t *testing.T) {
	for _, first := range []string{"downgrade", "close"} {
		t.Run(first+" first", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBubble(t)
				c := b.client()
				rw := c.RWMutex("config")
				w, err := rw.LockContext(t.Context())
				require.NoError(t, err)
				over := make(chan error, 1)
				shut := make(chan struct{})
				downgrade := func() {
					r, err := rw.Downgrade(w)
					if err == nil {
						<-r.Done()
						err = context.Cause(r)
					}
					over <- err
				}
				stop := func() {
					_ = c.Close()
					close(shut)
				}
				if first == "downgrade" {
					go downgrade()
					go stop()
				} else {
					go stop()
					go downgrade()
				}
				start := time.Now()
				<-shut
				err = <-over
				require.True(t, errors.Is(err, ErrClosed) || errors.Is(err, ErrLeaseLost), "%v", err)
				other := b.client().RWMutex("config")
				require.True(t, other.TryLock(), "nothing is left behind")
				require.Less(t, time.Since(start), time.Second)
			})
		})
	}
}

// The answer comes when nothing certain is left of the read lock, and a writer was in meanwhile: the lock is
// lost, and not taken anew behind the writer's back.
func TestDowngradeThatIsAnsweredTooLateIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		rw, other := newClient(t, tap, WithLease(time.Second)).RWMutex("config"), b.client().RWMutex("config")
		w, err := rw.LockContext(t.Context())
		require.NoError(t, err)
		between := async(func() error { other.Lock(); return nil })
		reader := async(func() error { rw.RLock(); return nil }) // it comes behind, and may ask anew
		synctest.Wait()
		tap.on("release", slow(0, 1100*time.Millisecond))
		_, err = rw.Downgrade(w)
		require.ErrorIs(t, err, ErrLeaseLost)
		require.NoError(t, <-between)
		synctest.Wait()
		select {
		case <-reader:
			t.Fatal("a reader beside the writer")
		default:
		}
		other.Unlock()
		require.NoError(t, <-reader)
		rw.RUnlock()
		synctest.Wait()
		require.True(t, b.client().RWMutex("config").TryLock(), "nothing is left")
	})
}
