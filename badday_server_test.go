package valkeysync

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The server stops, is restarted, loads its data, becomes a replica.

// pair is a holder and a waiter on one key.
type pair struct {
	t        *testing.T
	s        *testserver.Server
	key      string
	holder   *Mutex
	held     context.Context
	waiter   *Mutex
	waits    *taking
	lostWhen chan time.Time // when the holder's context ended
}

func newPair(t *testing.T, s *testserver.Server, key string, opts ...Option) *pair {
	t.Helper()
	p := &pair{
		t: t, s: s, key: key,
		holder: on(t, s, opts...).Mutex(key), waiter: on(t, s, opts...).Mutex(key),
		lostWhen: make(chan time.Time, 1),
	}
	p.held = lock(t, p.holder)
	context.AfterFunc(p.held, func() { p.lostWhen <- time.Now() })
	p.waits = take(context.Background(), p.waiter)
	queued(t, s, p.holder.c, key, 1)
	return p
}

// stillHeld: nothing was lost; the waiter gets it by the unlock.
func (p *pair) stillHeld() {
	p.t.Helper()
	require.NoError(p.t, p.held.Err())
	select {
	case <-p.waits.done:
		p.t.Fatal("two holders")
	default:
	}
	unlock(p.t, p.holder, p.held)
	p.handedOn()
	require.Empty(p.t, p.holder.c.Stats().Lost)
}

// lost: the holder was told, before the waiter had it, and its unlock says so.
func (p *pair) lost(causes ...Cause) {
	p.t.Helper()
	require.Contains(p.t, causes, ends(p.t, p.held, soon).Cause)
	var lost *LostError
	require.ErrorAs(p.t, p.holder.UnlockContext(p.held), &lost)
	p.handedOn()
}

func (p *pair) handedOn() {
	p.t.Helper()
	got := p.waits.got(p.t, soon)
	require.Greater(p.t, tokenOf(p.t, got), tokenOf(p.t, p.held))
	unlock(p.t, p.waiter, got)
	// Both go on by themselves.
	unlock(p.t, p.holder, lock(p.t, p.holder))
	nothingLeft(p.t, p.s, p.key)
}

func TestServerFrozen(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		long, short := newPair(t, s, "long", WithLease(5*time.Second)), newPair(t, s, "short", WithLease(800*time.Millisecond))
		s.Freeze()
		start := time.Now()
		tried, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := long.holder.c.Mutex("free").TryLockContext(tried)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrLocked, "nobody was seen to have it")
		cause := ends(t, short.held, soon).Cause
		require.Contains(t, []Cause{CauseUnreachable, CauseExpired}, cause)
		require.Less(t, time.Since(start), 2*time.Second)
		// An unlock whose answer does not come is told in time, and goes on.
		limited, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		within(t, soon, "unlock of a lost lease", func() { err = short.holder.UnlockContext(limited) })
		require.ErrorIs(t, err, ErrLeaseLost)
		s.Thaw()

		lostAt := <-short.lostWhen
		got := short.waits.got(t, soon)
		require.False(t, short.waits.at.Before(lostAt), "two holders for %v", lostAt.Sub(short.waits.at))
		unlock(t, short.waiter, got)
		nothingLeft(t, s, "short")
		long.stillHeld()
		nothingLeft(t, s, "free")
	})
}

func TestUnlockOfAFrozenServer(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		p := newPair(t, s, "orders")
		s.Freeze()
		limited, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		err := p.holder.UnlockContext(limited)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, ErrLeaseLost)
		require.ErrorContains(t, err, "not confirmed yet")
		require.Error(t, p.held.Err(), "it is not held any more, whatever the server knows")
		s.Thaw()
		unlock(t, p.holder, p.held) // called again: waits for the first
		p.handedOn()
	})
}

func TestServerRestartedEmpty(t *testing.T) {
	t.Parallel()
	onBothByDefault(t, notifying, func(t *testing.T, s *testserver.Server, opts ...Option) {
		p := newPair(t, s, "orders", append(opts, WithLease(3*time.Second))...)
		s.Restart()
		p.lost(CauseDeleted, CauseTaken)
		require.Positive(t, p.waiter.c.Stats().Reconnects)
		require.Positive(t, p.waiter.c.Stats().WokenByGap)
	})
}

func TestServerRestartedWithItsData(t *testing.T) {
	t.Parallel()
	// Every write before its reply: by default it may wait while an earlier one is on its way to the disk.
	args := append([]string{"--appendonly", "yes", "--appendfsync", "always"}, notifying...)
	onBothByDefault(t, args, func(t *testing.T, s *testserver.Server, opts ...Option) {
		p := newPair(t, s, "orders", append(opts, WithLease(4*time.Second))...)
		l, _ := FromContext(p.held)
		s.Restart()
		before := l.Until()
		eventually(t, soon, "renewed", func() bool { return l.Until().After(before) })
		eventually(t, soon, "hears again", p.waiter.c.hub.hears)
		p.stillHeld()
	})
}

func TestServerGoneForLongerThanTheLease(t *testing.T) {
	t.Parallel()
	onBoth(t, append([]string{"--appendonly", "yes"}, notifying...), func(t *testing.T, s *testserver.Server) {
		p := newPair(t, s, "orders", WithLease(time.Second))
		s.Kill()
		require.Equal(t, CauseUnreachable, ends(t, p.held, soon).Cause)
		tried, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		_, err := p.holder.c.Mutex("other").LockContext(tried)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "connection refused", "why")
		s.Restart()
		p.lost(CauseUnreachable)
	})
}

func TestServerLoadsItsData(t *testing.T) {
	t.Parallel()
	// Every key takes a while to load, so that there is time to look; on a busy machine several times as long.
	args := append([]string{"--key-load-delay", "6000", "--loading-process-events-interval-bytes", "1024"}, notifying...)
	onBoth(t, args, func(t *testing.T, s *testserver.Server) {
		p := newPair(t, s, "orders", WithLease(30*time.Second))
		for i := range 500 {
			_, err := s.Do("SET", fmt.Sprint("filler", i), strings.Repeat("x", 1024))
			require.NoError(t, err)
		}
		command(t, s, "SAVE")
		l, _ := FromContext(p.held)
		before := l.Until()
		s.Kill() // or the first of those who ask below could have it before
		started := make(chan struct{})
		go func() {
			defer close(started)
			s.Restart()
		}()
		// Whoever is in a hurry is told.
		eventually(t, soon, "is told that the server loads", func() bool {
			limited, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			defer cancel()
			_, err := p.holder.c.Mutex("free").LockContext(limited)
			return err != nil && strings.Contains(err.Error(), "LOADING")
		})
		eventually(t, soon, "renewed", func() bool { return l.Until().After(before) })
		<-started
		eventually(t, soon, "hears again", p.waiter.c.hub.hears)
		p.stillHeld()
	})
}

func TestServerBecomesAReplica(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		kept, lost := newPair(t, s, "kept", WithLease(5*time.Second)), newPair(t, s, "lost", WithLease(time.Second))
		command(t, s, "REPLICAOF", "127.0.0.1", "1") // nobody there: it keeps its data
		limited, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := kept.holder.c.Mutex("free").LockContext(limited)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		requireReply(t, err, "READONLY")
		limited, cancel = context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err = kept.holder.c.Mutex("free").TryLockContext(limited)
		requireReply(t, err, "READONLY")
		gone := ends(t, lost.held, soon)
		require.Equal(t, CauseUnreachable, gone.Cause)
		requireReply(t, gone, "READONLY")
		command(t, s, "REPLICAOF", "NO", "ONE")
		lost.lost(CauseUnreachable)
		kept.stillHeld()
		nothingLeft(t, s, "free")
	})
}
