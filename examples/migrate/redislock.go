package migrate

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/valkeysync/valkeysync"
)

func redislockBefore(ctx context.Context, client *redis.Client, work job) error {
	locker := redislock.New(client)
	every := redislock.LinearBackoff(50 * time.Millisecond)
	ttl := 10 * time.Second
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // without a deadline it waits for ttl
	defer cancel()
	lock, err := locker.Obtain(ctx, "orders", ttl, &redislock.Options{RetryStrategy: every})
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return errors.Join(err, lock.Release(ctx))
	}
	if left, err := lock.TTL(ctx); err != nil || left < ttl/2 {
		err := lock.Refresh(ctx, ttl, nil)
		if errors.Is(err, redislock.ErrNotObtained) {
			return err // it is no longer ours
		}
	}
	return errors.Join(work(ctx), lock.Release(ctx)) // redislock.ErrLockNotHeld
}

func redislockTryBefore(ctx context.Context, locker *redislock.Client) (busy bool, err error) {
	lock, err := locker.Obtain(ctx, "orders", 10*time.Second, nil)
	if err == nil {
		err = lock.Release(ctx)
	}
	return errors.Is(err, redislock.ErrNotObtained), err
}

func redislockAfter(ctx context.Context, locks *valkeysync.Client, work job) error {
	mu := locks.Mutex("orders")
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // without a deadline it waits for ever
	defer cancel()
	held, err := mu.LockContext(ctx)
	if err != nil {
		return err
	}
	if err := work(held); err != nil {
		return errors.Join(err, mu.UnlockContext(held))
	}
	return errors.Join(work(held), mu.UnlockContext(held)) // valkeysync.ErrLeaseLost
}

func redislockTryAfter(ctx context.Context, mu *valkeysync.Mutex) (busy bool, err error) {
	held, err := mu.TryLockContext(ctx)
	if err == nil {
		err = mu.UnlockContext(held)
	}
	return errors.Is(err, valkeysync.ErrLocked), err
}
