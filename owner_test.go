package valkeysync

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The processes of an owner hold together, past whoever waits; the last that leaves gives the lock back.
func TestAnOwnersProcessesHoldTogether(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		workflow := WithOwner("workflow 17/é")
		a, b := on(t, s).Mutex("orders", workflow), on(t, s).Mutex("orders", workflow)
		other, plain := on(t, s).Mutex("orders", WithOwner("workflow 18")), on(t, s).Mutex("orders")

		first := lock(t, a)
		require.False(t, other.TryLock())
		waits := take(context.Background(), plain)
		queued(t, s, plain.c, "orders", 1)
		waitsToo := take(context.Background(), other)
		queued(t, s, other.c, "orders", 2)
		second := lock(t, b)
		third := lock(t, b)
		require.Greater(t, tokenOf(t, second), tokenOf(t, first))
		st, err := plain.c.Status(t.Context(), "orders")
		require.NoError(t, err)
		require.Len(t, st.Holders, 2)
		require.Equal(t, "owner workflow 17/é", st.Holders[0].Mode)
		require.Equal(t, 2, st.Waiting)
		require.False(t, plain.TryLock())
		_, err = s.Do("SET", "orders", "x", "NX", "PX", "1000")
		require.Error(t, err, "the plain recipe is excluded")

		unlock(t, b, second)
		unlock(t, a, first)
		require.False(t, on(t, s).Mutex("orders").TryLock())
		select {
		case <-waits.done:
			t.Fatal("one is still in")
		default:
		}
		unlock(t, b, third)
		held := waits.got(t, soon)
		require.Greater(t, tokenOf(t, held), tokenOf(t, third))
		require.False(t, a.TryLock())
		unlock(t, plain, held)
		held = waitsToo.got(t, soon)
		unlock(t, other, held)
		nothingLeft(t, s, "orders")
	})
}

// Those of one owner who wait come in together, past the others between them.
func TestAnOwnersProcessesThatWaitComeInTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		plain, between := b.client().Mutex("orders"), b.client().Mutex("orders")
		one, two := b.client().Mutex("orders", WithOwner("w")), b.client().Mutex("orders", WithOwner("w"))
		plain.Lock()
		first := lockAsync(t.Context(), one)
		then := lockAsync(t.Context(), between)
		second := lockAsync(t.Context(), two)
		notYet(t, first)
		plain.Unlock()
		a, c := now(t, first), now(t, second)
		notYet(t, then)
		require.NoError(t, one.UnlockContext(a))
		notYet(t, then)
		require.NoError(t, two.UnlockContext(c))
		require.NoError(t, between.UnlockContext(now(t, then)))
	})
}

// One of an owner's processes dies: its part comes back, and the others hold on; when all have died the lock
// is free.
func TestAnOwnersDeadProcessLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		dead, _, line := b.lined()
		w := WithOwner("w")
		dead.Mutex("orders", w).Lock()
		living := b.client(WithCrashDetection(defaultGrace))
		m := living.Mutex("orders", w)
		m.Lock()
		waiter := b.client(WithCrashDetection(defaultGrace)).Mutex("orders")
		waits := lockAsync(t.Context(), waiter)
		time.Sleep(time.Minute)
		line.cut(true, false)
		time.Sleep(time.Minute)
		notYet(t, waits)
		st, err := living.Status(t.Context(), "orders")
		require.NoError(t, err)
		require.Len(t, st.Holders, 1)
		m.Unlock()
		require.NoError(t, waiter.UnlockContext(now(t, waits)))
	})
}

// Within a process, more of the same owner costs the server nothing, also while others wait.
func TestAnOwnerInsideAProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		tap := b.tap()
		m := newClient(t, tap).Mutex("orders", WithOwner("w"))
		outer, err := m.LockContext(t.Context())
		require.NoError(t, err)
		waits := lockAsync(t.Context(), b.client().Mutex("orders"))
		before := tap.total()
		inner, err := m.LockContext(outer)
		require.NoError(t, err)
		another := now(t, lockAsync(t.Context(), m))
		require.Equal(t, before, tap.total())
		for _, ctx := range []context.Context{another, inner, outer} {
			notYet(t, waits)
			require.NoError(t, m.UnlockContext(ctx))
		}
		now(t, waits)
	})
}

// The marker that stands for an owner's holds can be deleted by hand. Nobody of ours takes that for their end, and the
// next renewal sets it again: who was in does not find out by a lower token that another was in between.
func TestDeletedMarkerOfAnOwnerComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		const lease = 3 * time.Second
		m, beside := b.client(WithLease(lease)).Mutex("orders", WithOwner("w")), b.client(WithLease(lease)).Mutex("orders", WithOwner("w"))
		others := []*Mutex{b.client().Mutex("orders"), b.client().Mutex("orders", WithOwner("other"))}
		held, err := m.LockContext(t.Context())
		require.NoError(t, err)
		b.Del("orders")
		for _, other := range others {
			require.False(t, other.TryLock())
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err = b.client().LockAll(soon, "orders", "others")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		synctest.Wait()
		require.True(t, beside.TryLock(), "the others have left, and the owner's holds are the only ones")
		require.True(t, b.Exists("orders"))
		beside.Unlock()

		b.Del("orders")
		waits := lockAsync(t.Context(), others[0])
		time.Sleep(2 * lease)
		notYet(t, waits)
		require.True(t, b.Exists("orders"))
		require.NoError(t, held.Err())
		b.Del("orders")
		require.NoError(t, m.UnlockContext(held))
		require.NoError(t, others[0].UnlockContext(now(t, waits)))
	})
}

// The answer to an owner's request is lost while another of it holds: it holds once, and leaves once.
func TestAnOwnersRequestIsRepeated(t *testing.T) {
	for name, bend := range map[string]relay{"request lost": loseRequest, "reply lost": loseReply, "silent": swallowReply} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				tap := b.tap()
				one, two := b.client().Mutex("orders", WithOwner("w")), newClient(t, tap).Mutex("orders", WithOwner("w"))
				one.Lock()
				tap.on("acquire", bend)
				two.Lock()
				st, err := one.c.Status(t.Context(), "orders")
				require.NoError(t, err)
				require.Len(t, st.Holders, 2)
				two.Unlock()
				one.Unlock()
				synctest.Wait()
				require.True(t, b.client().Mutex("orders").TryLock())
			})
		})
	}
}

func TestWithOwnerIsForAMutexOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		c := b.client()
		require.ErrorIs(t, c.Semaphore("a", 1, WithOwner("w")).Acquire(t.Context(), 1), ErrInvalidOption)
		for _, id := range []string{"", "a\nb", strings.Repeat("x", maxName+1)} {
			_, err := c.Mutex("a", WithOwner(id)).LockContext(t.Context())
			require.ErrorIs(t, err, ErrInvalidOption, "%q", id)
		}
		_, err := c.RWMutex("a", WithOwner("w")).RLockContext(t.Context())
		require.ErrorIs(t, err, ErrInvalidOption)
		_, err = New(b.dial(nil), WithOwner("w"))
		require.ErrorIs(t, err, ErrInvalidOption)
		rw := c.RWMutex("config")
		rw.Lock()
		_, err = c.Mutex("config", WithOwner("w")).TryLockContext(t.Context())
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, `Mutex of owner "w"`)
	})
}
