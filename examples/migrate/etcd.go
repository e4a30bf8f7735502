package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

func etcdBefore(ctx context.Context, client *clientv3.Client, work func(ctx context.Context, token int64) error) error {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	if err != nil {
		return err
	}
	defer session.Close()
	m := concurrency.NewMutex(session, "/orders")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-session.Done():
			cancel()
		case <-held.Done():
		}
	}()
	return errors.Join(work(held, m.Header().Revision), m.Unlock(ctx))
}

func etcdTryBefore(ctx context.Context, m *concurrency.Mutex) (busy bool, err error) {
	err = m.TryLock(ctx)
	return errors.Is(err, concurrency.ErrLocked), err
}

func etcdAfter(ctx context.Context, client valkey.Client, work func(ctx context.Context, token int64) error) error {
	locks, err := valkeysync.New(client, valkeysync.WithLease(10*time.Second))
	if err != nil {
		return err
	}
	defer locks.Close()
	mu := locks.Mutex("orders")
	held, err := mu.LockContext(ctx)
	if err != nil {
		return err
	}
	lease, _ := valkeysync.FromContext(held)
	if err := work(held, lease.Token()); err != nil {
		err = fmt.Errorf("%w (%w)", err, context.Cause(held)) // a *valkeysync.LostError, if it was that
		return errors.Join(err, mu.UnlockContext(held))
	}
	return mu.UnlockContext(held)
}

func etcdTryAfter(ctx context.Context, mu *valkeysync.Mutex) (held context.Context, busy bool, err error) {
	held, err = mu.TryLockContext(ctx)
	return held, errors.Is(err, valkeysync.ErrLocked), err
}
