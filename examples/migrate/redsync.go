package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/valkeysync/valkeysync"
)

func redsyncBefore(ctx context.Context, client *redis.Client, work job) error {
	rs := redsync.New(goredis.NewPool(client))
	m := rs.NewMutex("orders", redsync.WithExpiry(8*time.Second), redsync.WithTries(32))
	if err := m.LockContext(ctx); err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return errors.Join(err, redsyncUnlock(ctx, m))
	}
	if time.Until(m.Until()) < 4*time.Second {
		if ok, err := m.ExtendContext(ctx); !ok {
			return fmt.Errorf("no longer ours: %w", err)
		}
	}
	return errors.Join(work(ctx), redsyncUnlock(ctx, m))
}

func redsyncUnlock(ctx context.Context, m *redsync.Mutex) error {
	ok, err := m.UnlockContext(ctx)
	if !ok && errors.Is(err, redsync.ErrLockAlreadyExpired) {
		return fmt.Errorf("others may have worked at the same time: %w", err)
	}
	return err
}

func redsyncTryBefore(ctx context.Context, m *redsync.Mutex) (busy bool, err error) {
	err = m.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	return errors.As(err, &taken), err
}

func redsyncAfter(ctx context.Context, locks *valkeysync.Client, work job) error {
	m := locks.Mutex("orders", valkeysync.WithLease(8*time.Second), valkeysync.WithMaxHold(time.Minute))
	held, err := m.LockContext(ctx)
	if err != nil {
		return err // ctx has ended: who has the lock, and for how long
	}
	if err := work(held); err != nil { // it ends with the lease; nothing is to be extended
		return errors.Join(err, m.UnlockContext(held))
	}
	return errors.Join(work(held), m.UnlockContext(held)) // valkeysync.ErrLeaseLost: others may have worked at the same time
}

func redsyncTryAfter(ctx context.Context, m *valkeysync.Mutex) (held context.Context, busy bool, err error) {
	held, err = m.TryLockContext(ctx)
	return held, errors.Is(err, valkeysync.ErrLocked), err
}

// until is what redsync's m.Until() says.
func until(held context.Context) time.Time {
	lease, _ := valkeysync.FromContext(held)
	return lease.Until()
}

// redsyncSeveralBefore and redsyncSeveralAfter are the lock on a majority of several servers.
func redsyncSeveralBefore(clients []*redis.Client) *redsync.Mutex {
	a, b, c := goredis.NewPool(clients[0]), goredis.NewPool(clients[1]), goredis.NewPool(clients[2])
	rs := redsync.New(a, b, c)
	return rs.NewMutex("orders")
}

func redsyncSeveralAfter(clients []*valkeysync.Client) (*valkeysync.QuorumMutex, func() error, error) {
	quorum, err := valkeysync.NewQuorum(clients...)
	if err != nil {
		return nil, nil, err
	}
	return quorum.Mutex("orders"), quorum.Close, nil
}
