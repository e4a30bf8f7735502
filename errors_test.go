package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// replyError is an error that a server answers with, as valkey-go tells it.
func replyError(t *testing.T, text string) error {
	t.Helper()
	var err error
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.dial(nil)
		b.SetError(text)
		err = c.Do(t.Context(), c.B().Ping().Build()).Error()
		b.SetError("")
	})
	require.Error(t, err)
	return err
}

func TestErrorsAreWhatTheySay(t *testing.T) {
	all := []error{
		ErrLocked, ErrNotLocked, ErrLeaseLost, ErrClosed, ErrInvalidKey, ErrInvalidOption, ErrMismatch, ErrDeadlock,
		ErrTooLarge, ErrInvalidWeight, context.Canceled, context.DeadlineExceeded, io.EOF,
	}
	for name, row := range map[string]struct {
		err error
		is  []error
	}{
		"a lost lease":                     {&LostError{Key: "k", Cause: CauseExpired}, []error{ErrLeaseLost}},
		"one lost by Close":                {&LostError{Key: "k", Cause: CauseClosed}, []error{ErrLeaseLost, ErrClosed}},
		"one lost to the network":          {&LostError{Key: "k", Cause: CauseUnreachable, Err: fmt.Errorf("renew: %w", io.EOF)}, []error{ErrLeaseLost, io.EOF}},
		"a try that found it taken":        {&WaitError{Key: "k", Holder: "p", Err: ErrLocked}, []error{ErrLocked}},
		"a try behind others":              {&WaitError{Key: "k", Err: ErrLocked}, []error{ErrLocked}},
		"a wait behind a holder":           {&WaitError{Key: "k", Holder: "p", Err: context.DeadlineExceeded}, []error{context.DeadlineExceeded, ErrLocked}},
		"a wait of which nothing is known": {&WaitError{Key: "k", Err: context.Canceled}, []error{context.Canceled}},
		"a wait without an answer":         {&WaitError{Key: "k", Err: context.Canceled, Server: io.EOF}, []error{context.Canceled, io.EOF}},
	} {
		t.Run(name, func(t *testing.T) {
			wrapped := fmt.Errorf("the job: %w", row.err)
			for _, target := range all {
				want := false
				for _, is := range row.is {
					want = want || is == target
				}
				require.Equal(t, want, errors.Is(wrapped, target), "errors.Is(%v)", target)
			}
			switch e := row.err.(type) {
			case *LostError:
				var got *LostError
				require.ErrorAs(t, wrapped, &got)
				require.Same(t, e, got)
			case *WaitError:
				var got *WaitError
				require.ErrorAs(t, wrapped, &got)
				require.Same(t, e, got)
			}
		})
	}
}

func TestErrorTextsTellAPersonWhatIsWrong(t *testing.T) {
	for want, err := range map[string]error{
		`valkeysync: lease of "orders" lost: taken`:                                                                                        &LostError{Key: "orders", Cause: CauseTaken},
		`valkeysync: lease of "orders" lost: unreachable: EOF`:                                                                             &LostError{Key: "orders", Cause: CauseUnreachable, Err: io.EOF},
		`valkeysync: "orders" held by web-1 for up to 1.235s, 3 waiting ahead: context deadline exceeded`:                                  &WaitError{Key: "orders", Holder: "web-1", Remaining: 1234567 * time.Microsecond, Ahead: 3, Err: context.DeadlineExceeded},
		`valkeysync: "orders" held by another program ("x") without expiry (nothing ends that but its own unlock, or ForceUnlock): locked`: &WaitError{Key: "orders", Holder: describe("x"), Remaining: -1, Err: ErrLocked},
		`valkeysync: "orders": context canceled (last: EOF)`:                                                                               &WaitError{Key: "orders", Err: context.Canceled, Server: io.EOF},
		`valkeysync: "a\nb": context canceled`:                                                                                             &WaitError{Key: "a\nb", Err: context.Canceled},
		`valkeysync: "orders" held by another program ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…") for up to 0s: locked`:                  &WaitError{Key: "orders", Holder: describe("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), Err: ErrLocked},
	} {
		require.EqualError(t, err, want)
	}
	require.Equal(t, "shared holders", describe("vs1 shared w"))
	require.Empty(t, describe(""))
}

func TestAWaitThatEndsTellsWhatItSaw(t *testing.T) {
	wait := func(t *testing.T, m *Mutex) *WaitError {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.LockContext(ctx)
		var e *WaitError
		require.ErrorAs(t, err, &e)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, "orders", e.Key)
		return e
	}
	t.Run("a holder of ours, and who waits before", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.client(WithName("web-1")).Mutex("orders").Lock()
			for range 2 {
				p := b.peer(fmt.Sprint("p", time.Now().UnixNano()), "orders")
				p.acquire(p.entry("1"))
				time.Sleep(time.Millisecond)
			}
			e := wait(t, b.client().Mutex("orders"))
			require.Equal(t, "web-1", e.Holder)
			require.Positive(t, e.Remaining)
			require.Equal(t, 2, e.Ahead)
			require.ErrorIs(t, e, ErrLocked)
		})
	})
	t.Run("goroutines of this process before", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			c := b.client(WithName("me"))
			c.Mutex("orders").Lock()
			lockAsync(t.Context(), c.Mutex("orders"))
			e := wait(t, c.Mutex("orders"))
			require.Equal(t, "this process, me", e.Holder)
			require.Equal(t, 1, e.Ahead)
			require.NoError(t, c.Close())
		})
	})
	t.Run("another program", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			require.NoError(t, b.Set("orders", "cron"))
			e := wait(t, b.client().Mutex("orders"))
			require.Equal(t, `another program ("cron")`, e.Holder)
			require.Negative(t, e.Remaining)
		})
	})
	t.Run("nobody, for the server does not answer", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			m := newClient(t, wire).Mutex("orders")
			b.SetError("LOADING the dataset")
			e := wait(t, m)
			b.SetError("")
			require.Empty(t, e.Holder)
			require.NotErrorIs(t, e, ErrLocked)
			var reply *valkey.ValkeyError
			require.ErrorAs(t, e, &reply)
			require.ErrorContains(t, e, "LOADING")
		})
	})
	t.Run("with the cause of its context", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			b.client().Mutex("orders").Lock()
			shutdown := errors.New("shutting down")
			ctx, cancel := context.WithCancelCause(t.Context())
			got := lockAsync(ctx, b.client().Mutex("orders"))
			cancel(shutdown)
			err := (<-got).err
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, shutdown)
		})
	})
	t.Run("a context that had ended before", func(t *testing.T) {
		inBubble(t, func(t *testing.T, b *bubble) {
			wire := b.tap()
			m := newClient(t, wire).Mutex("orders")
			asked := wire.total()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			for _, lock := range []func(context.Context) (context.Context, error){m.LockContext, m.TryLockContext} {
				_, err := lock(ctx)
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, ErrLocked)
			}
			require.Equal(t, asked, wire.total(), "nothing is sent")
		})
	})
}

func TestWhatMayPassIsToldFromWhatCannot(t *testing.T) {
	for text, want := range map[string]severity{
		"LOADING the dataset in memory":                                  passing,
		"CLUSTERDOWN The cluster is down":                                passing,
		"READONLY You can't write":                                       passing,
		"MASTERDOWN Link with MASTER is down":                            passing,
		"TRYAGAIN Multiple keys":                                         passing,
		"BUSY Server is busy":                                            passing,
		"NOREPLICAS Not enough good replicas":                            passing,
		"NOAUTH Authentication required":                                 fatal,
		"WRONGPASS invalid":                                              fatal,
		"NOPERM User x has no permissions":                               fatal,
		"WRONGTYPE Operation against a key":                              fatal,
		"ERR user_script:1: WRONGTYPE Operation against a key script: 1": fatal,
		"ERR The user has NOPERM to run it":                              fatal,
		"OOM command not allowed":                                        refused,
		"MISCONF Errors writing to the AOF file":                         refused,
		"ERR unknown command 'EVALSHA'":                                  refused,
	} {
		err := fmt.Errorf("acquire: %w", replyError(t, text))
		require.Equal(t, want, judge(err), text)
		require.True(t, isReply(err), text)
	}
	for _, err := range []error{io.EOF, context.DeadlineExceeded, valkey.ErrClosing, errWire} {
		require.Equal(t, passing, judge(err))
		require.False(t, isReply(err))
	}
	for _, err := range []error{ErrClosed, ErrInvalidKey, ErrInvalidOption, ErrMismatch, ErrDeadlock, ErrTooLarge, ErrInvalidWeight} {
		require.Equal(t, fatal, judge(fmt.Errorf("x: %w", err)))
	}
}

func TestEachKindOfServerErrorReachesTheCallerAsItShould(t *testing.T) {
	for text, want := range map[string]severity{"LOADING x": passing, "OOM x": refused, "NOPERM x": fatal} {
		t.Run(text, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				m := b.client().Mutex("orders")
				b.SetError(text)
				time.AfterFunc(time.Minute, func() { b.SetError("") })
				start := time.Now()

				// LockContext waits out what may pass, and returns the rest.
				_, err := m.LockContext(t.Context())
				if want == passing {
					require.NoError(t, err)
					require.InDelta(t, time.Minute, time.Since(start), float64(maxPause))
					m.Unlock()
					return
				}
				require.Zero(t, time.Since(start))
				var reply *valkey.ValkeyError
				require.ErrorAs(t, err, &reply)
				require.ErrorContains(t, err, text)
				require.NotErrorIs(t, err, ErrLocked)
				_, err = m.TryLockContext(t.Context())
				require.ErrorAs(t, err, &reply)
				require.NotErrorIs(t, err, ErrLocked)

				// Lock has no error to return: it waits, or panics where that is no use.
				if want == fatal {
					defer func() {
						err, _ := recover().(error)
						require.ErrorAs(t, err, &reply)
						b.SetError("")
					}()
					m.Lock()
					return
				}
				require.False(t, m.TryLock())
				m.Lock()
				require.InDelta(t, time.Minute, time.Since(start), float64(maxPause))
				m.Unlock()
			})
		})
	}
}
