package valkeysynctest

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/valkeysync/valkeysync"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// both runs f by the clock and inside a bubble.
func both(t *testing.T, f func(t *testing.T)) {
	t.Run("clock", f)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, f) })
}

func locked(t *testing.T, c *valkeysync.Client, key string) context.Context {
	t.Helper()
	ctx, err := c.Mutex(key).LockContext(t.Context())
	require.NoError(t, err)
	return ctx
}

// ends waits for the end of a lock's context, and returns why.
func ends(t *testing.T, ctx context.Context) valkeysync.Cause {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("it was not lost")
	}
	var lost *valkeysync.LostError
	require.ErrorAs(t, context.Cause(ctx), &lost)
	return lost.Cause
}

func TestClientsOfAServerExcludeEachOther(t *testing.T) {
	both(t, func(t *testing.T) {
		s := New(t, valkeysync.WithPrefix("app:"))
		a, b := s.Client(), s.Client(valkeysync.WithName("the other"))
		ctx := locked(t, b, "k")
		require.False(t, a.Mutex("k").TryLock())
		st, err := a.Status(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, "app:k", st.Key)
		require.Equal(t, "the other", st.Holders[0].Name)
		value, err := s.Valkey().Do(t.Context(), s.Valkey().B().Get().Key("app:k").Build()).ToString()
		require.NoError(t, err)
		require.Contains(t, value, "the other")
		require.NoError(t, ctx.Err())
	})
}

func TestLeasesRunByTheBubblesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		holder, other := s.Client(), s.Client()
		ctx := locked(t, holder, "k")
		lease, _ := valkeysync.FromContext(ctx)
		time.Sleep(20 * time.Minute)
		require.True(t, lease.Valid(), "it was renewed")
		require.False(t, other.Mutex("k").TryLock())
	})
}

func TestLoseTellsTheHolderAtOnceAndServesTheNext(t *testing.T) {
	both(t, func(t *testing.T) {
		s := New(t)
		holder, next := s.Client(), s.Client()
		ctx := locked(t, holder, "k")
		got := make(chan struct{})
		go func() {
			defer close(got)
			next.Mutex("k").Lock()
		}()
		s.AwaitWaiting("k", 1)
		began := time.Now()
		s.Lose("k")
		require.Contains(t, []valkeysync.Cause{valkeysync.CauseTaken, valkeysync.CauseDeleted}, ends(t, ctx))
		<-got
		require.Less(t, time.Since(began), 2*time.Second, "not with its next renewal")
		s.Lose("k")
		s.Lose("free") // is no error
	})
}

func TestFlushIsFoundOutByTheNextRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t)
		ctx := locked(t, s.Client(), "k")
		began := time.Now()
		s.Flush()
		require.Equal(t, valkeysync.CauseDeleted, ends(t, ctx))
		require.LessOrEqual(t, time.Since(began), 10*time.Second/3+10*time.Millisecond)
	})
}

func TestKillFreesWhatTheClientHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(t, valkeysync.WithLease(time.Hour))
		holder, next := s.Client(), s.Client()
		ctx := locked(t, holder, "k")
		time.Sleep(time.Minute)
		died := time.Now()
		s.Kill(holder)
		lost := make(chan time.Time, 1)
		go func() {
			<-ctx.Done()
			lost <- time.Now()
		}()
		_ = locked(t, next, "k")
		require.LessOrEqual(t, time.Since(died), 2500*time.Millisecond)
		require.True(t, (<-lost).Before(time.Now()), "the holder knew before")
		require.Equal(t, valkeysync.CauseUnreachable, ends(t, ctx))
		s.Kill(holder) // is no error
	})
}

func TestTheEndOfATestDoesNotWaitForAClientThatWasKilled(t *testing.T) {
	began := time.Now()
	t.Run("its test", func(t *testing.T) {
		s := New(t)
		c := s.Client()
		_ = locked(t, c, "k")
		s.Kill(c)
	})
	require.Less(t, time.Since(began), 3*time.Second)
}

func TestAShortCutCostsNothingAndALongOneTheLease(t *testing.T) {
	for _, all := range []bool{false, true} {
		for _, long := range []bool{false, true} {
			t.Run(fmt.Sprintf("all=%v long=%v", all, long), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := New(t)
					c := s.Client()
					var which []*valkeysync.Client
					if !all {
						which = append(which, c)
					}
					ctx := locked(t, c, "k")
					time.Sleep(time.Minute)
					s.Cut(which...)
					if long {
						time.Sleep(time.Minute)
					} else {
						time.Sleep(300 * time.Millisecond)
					}
					s.Mend(which...)
					if long {
						require.Equal(t, valkeysync.CauseUnreachable, ends(t, ctx))
					} else {
						time.Sleep(time.Minute)
						require.NoError(t, ctx.Err())
						s.Lose("k")
					}
					mu := c.Mutex("k")
					mu.Lock()
					mu.Unlock()
				})
			})
		}
	}
}

func TestClientsThatAreCutGoOnByTheClock(t *testing.T) {
	s := New(t)
	c := s.Client()
	s.Cut(c)
	limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := c.Mutex("k").LockContext(limited)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	s.Mend(c)
	mu := c.Mutex("k")
	mu.Lock()
	mu.Unlock()
}

// victim is a test that may be ended.
type victim struct {
	testing.TB
	said string
}

func (v *victim) Fatal(args ...any) {
	v.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func (v *victim) Fatalf(format string, args ...any) { v.Fatal(fmt.Sprintf(format, args...)) }

func TestMisuseEndsTheTest(t *testing.T) {
	for want, misuse := range map[string]func(s *Server, c *valkeysync.Client){
		"Kill of a Client that is not of this Server": func(s *Server, _ *valkeysync.Client) { s.Kill(nil) },
		"Mend of a Client that was killed": func(s *Server, c *valkeysync.Client) {
			s.Kill(c)
			s.Mend()
			s.Mend(c)
		},
		"Clients before Cut": func(s *Server, _ *valkeysync.Client) {
			s.Cut()
			s.Client()
		},
		"invalid option": func(s *Server, _ *valkeysync.Client) { s.Client(valkeysync.WithLease(1)) },
		"invalid key":    func(s *Server, _ *valkeysync.Client) { s.Lose("") },
	} {
		t.Run(want, func(t *testing.T) {
			v := &victim{TB: t}
			done := make(chan struct{})
			go func() {
				defer close(done)
				s := New(v)
				misuse(s, s.Client())
			}()
			<-done
			require.Contains(t, v.said, want)
		})
	}
}

// TestTheLibraryDoesWithoutTheServer: who does not import this package does not get miniredis.
func TestTheLibraryDoesWithoutTheServer(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "github.com/valkeysync/valkeysync").CombinedOutput()
	require.NoError(t, err, string(out))
	require.Contains(t, string(out), "github.com/valkey-io/valkey-go\n")
	require.NotContains(t, string(out), "miniredis")
	require.NotContains(t, string(out), "testing\n")
}
