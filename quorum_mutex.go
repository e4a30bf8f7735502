package valkeysync

import (
	"context"
	"sync"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

var _ sync.Locker = (*QuorumMutex)(nil)

// QuorumMutex is a [Mutex] that is held on a majority of several independent servers, so that it outlives the
// loss of a minority of them, and of what they remember. It has Mutex's methods, and what Mutex says of leases,
// contexts, handles and misuse holds here too. Make it with [Quorum.Mutex].
//
// Exclusion. At most one acquisition is certain at a time, as long as the servers remember what they have promised.
// One that is restarted without its data may give away what it had promised to a holder, until that has given it
// the key again: as soon as it is connected to it, or with the next renewal. A hold that all servers had outlives
// that as long as those that forget are a minority; one that had a bare majority may not. Keep what must not happen
// twice behind the fencing token, as always.
//
// Tokens rise as those of a Mutex do: before an acquisition is told, a majority of the servers knows its token.
// They are those of a Mutex for the same key on the server with the highest. Where a server has lost its memory
// they rise as far as the servers' clocks agree.
//
// Order. Who is refused waits in a queue on one of the servers (the first of [NewQuorum] that answers), and the
// first of that queue gets the lock next. Somebody who has not met any other may come in between, once. Where the
// queue's server is lost those who wait there go to the next one's, and their order is lost.
//
// Lease. The lock of a holder that died is free when its lease ends: there is no crash detection, and no turn, no
// linger and no replicas. With [WithTurn], [WithLinger], [WithCrashDetection] or [WithReplicas] of its own it is
// ErrInvalidOption; what its Clients have of these goes for their own locks alone. The other options are those
// of the first Client, unless it has its own.
//
// For people. To [Client.Status] of one of the servers it is a foreign holder, whose value has the name of its
// first Client; [Client.ForceUnlock] on a majority takes it away. [Client.Stats] counts of it only what happens in
// the queue.
//
// It costs each server two commands to get it and one to give it back. Where no more is lost with a failover than
// a lock now and then, a [Mutex] on one server with replicas costs less.
type QuorumMutex struct {
	handle
}

// Mutex returns a mutex for the key. See [Client.Mutex].
func (q *Quorum) Mutex(key string, opts ...Option) *QuorumMutex {
	m := new(QuorumMutex)
	m.init(q.members[0].c, protocol.MutexKind, key, opts)
	m.noOwner("Quorum.Mutex", key)
	m.refuseFor(q)
	own := *m.opts
	own.contest = newContest(q, &m.handle)
	m.opts = &own
	return m
}

// Lock locks m. If the lock is in use, or no majority of the servers can be asked, it blocks until it has it.
//
// It panics, with an error, where waiting is no use: ErrClosed, ErrInvalidKey, ErrInvalidOption, and where a
// majority of the servers refuses for good (NOAUTH, NOPERM, WRONGTYPE …).
func (m *QuorumMutex) Lock() { m.mustLock(protocol.Exclusive) }

// TryLock tries to lock m and reports whether it succeeded. It asks all servers once, waits for an answer for an
// eighth of the lease (a second at most), and does not wait for the lock. It panics where Lock does.
func (m *QuorumMutex) TryLock() bool { return m.tryLock(protocol.Exclusive) }

// Unlock unlocks m. It panics if m is not locked. It blocks until a majority of the servers has given it back, for
// 2 s at most, and goes on in the background, at the others in any case; what cannot be given back lapses with its
// lease. See [Mutex.Unlock].
func (m *QuorumMutex) Unlock() { m.mustUnlock("unlock of unlocked mutex") }

// LockContext locks m, and blocks until it has the lock or ctx ends. The context it returns ends, with a
// *LostError as its cause, when the lease is lost, and when m is unlocked or ctx ends; [FromContext] finds the
// [Lease] in it.
//
// Errors: a *WaitError around ctx's error, whose Server is a *QuorumError with each server's own reason;
// ErrClosed (the Quorum, or the Clients of a majority), ErrInvalidKey, ErrInvalidOption; ErrDeadlock if ctx
// already carries this lock; a *QuorumError where so many servers refuse (NOPERM, WRONGTYPE, OOM …) that there is
// no majority. After an error nothing is held, and what any server may have of it is taken back in the
// background.
func (m *QuorumMutex) LockContext(ctx context.Context) (context.Context, error) {
	return m.lockContext(ctx, protocol.Exclusive, false)
}

// TryLockContext is LockContext without the wait: it asks as TryLock does. If the lock is in use the error is a
// *WaitError that is ErrLocked; so it is where several try at once and none gets a majority. If no server has said
// that it is in use, and no majority has said that it is ours, the error is a *QuorumError.
func (m *QuorumMutex) TryLockContext(ctx context.Context) (context.Context, error) {
	return m.lockContext(ctx, protocol.Exclusive, true)
}

// UnlockContext unlocks m; where ctx comes from this lock, that acquisition and no other. It works with a ctx
// that has ended: then it blocks as Unlock does, otherwise until ctx ends or a majority has given it back, or so many had
// lost it that none can. Where a bare majority had it, that takes the answer of each.
//
// Errors: as of [Mutex.UnlockContext]; those of the servers in a *QuorumError.
func (m *QuorumMutex) UnlockContext(ctx context.Context) error { return m.unlockContext(ctx) }

// Do runs fn while holding m, with the context that LockContext gives, and unlocks m when fn returns or panics.
// See [Mutex.Do].
func (m *QuorumMutex) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	return m.do(ctx, protocol.Exclusive, fn)
}
