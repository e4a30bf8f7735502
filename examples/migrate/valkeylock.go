package migrate

import (
	"context"
	"errors"

	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"

	"github.com/valkeysync/valkeysync"
)

func valkeylockBefore(ctx context.Context, option valkey.ClientOption, work job) error {
	locker, err := valkeylock.NewLocker(valkeylock.LockerOption{ClientOption: option, KeyMajority: 1, NoLoopTracking: true})
	if err != nil {
		return err
	}
	defer locker.Close()
	held, cancel, err := locker.WithContext(ctx, "orders")
	if err != nil {
		return err
	}
	defer cancel()
	return work(held)
}

func valkeylockTryBefore(ctx context.Context, locker valkeylock.Locker) (busy bool, err error) {
	_, cancel, err := locker.TryWithContext(ctx, "orders")
	if err == nil {
		cancel()
	}
	return errors.Is(err, valkeylock.ErrNotLocked), err
}

func valkeylockForceBefore(ctx context.Context, locker valkeylock.Locker, work job) error {
	held, cancel, err := locker.ForceWithContext(ctx, "orders")
	if err != nil {
		return err
	}
	defer cancel()
	return work(held)
}

// valkeylockAfter shares the lock with the processes that are not changed yet, by their key.
func valkeylockAfter(ctx context.Context, client valkey.Client, work job) error {
	locks, err := valkeysync.New(client)
	if err != nil {
		return err
	}
	defer locks.Close()
	mu := locks.Mutex("valkeylock:0:orders")
	held, err := mu.LockContext(ctx)
	if err != nil {
		return err
	}
	return errors.Join(work(held), mu.UnlockContext(held)) // which says whether the lease was lost
}

func valkeylockTryAfter(ctx context.Context, mu *valkeysync.Mutex) (busy bool, err error) {
	held, err := mu.TryLockContext(ctx)
	if err == nil {
		err = mu.UnlockContext(held)
	}
	return errors.Is(err, valkeysync.ErrLocked), err
}

// valkeylockForceAfter does not jump the queue: the lock goes to who waits, and to us in our turn.
func valkeylockForceAfter(ctx context.Context, locks *valkeysync.Client, work job) error {
	if err := locks.ForceUnlock(ctx, "valkeylock:0:orders"); err != nil {
		return err
	}
	return locks.Mutex("valkeylock:0:orders").Do(ctx, work)
}
