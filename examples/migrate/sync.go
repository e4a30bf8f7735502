package migrate

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/valkeysync/valkeysync"
)

func syncBefore(ctx context.Context, work job) error {
	var mu sync.Mutex
	mu.Lock()
	defer mu.Unlock()

	var rw sync.RWMutex
	rw.RLock()
	defer rw.RUnlock()

	cond := sync.NewCond(new(sync.Mutex))
	cond.Broadcast()

	sem := semaphore.NewWeighted(10)
	if err := sem.Acquire(ctx, 1); err != nil {
		return err
	}
	defer sem.Release(1)
	return work(ctx)
}

// syncAfter changes where the locks come from, and nothing else: whoever uses Lock is told of a lost lease by
// WithOnLost only.
func syncAfter(ctx context.Context, locks *valkeysync.Client, onLost func(key string, err error), work job) error {
	mu := locks.Mutex("orders", valkeysync.WithOnLost(onLost))
	mu.Lock()
	defer mu.Unlock()

	rw := locks.RWMutex("config")
	rw.RLock()
	defer rw.RUnlock()

	cond := sync.NewCond(locks.Mutex("batch"))
	cond.Broadcast() // it wakes those of this process only

	sem := locks.Semaphore("api", 10)
	if err := sem.Acquire(ctx, 1); err != nil {
		return err
	}
	defer sem.Release(1)
	return work(ctx)
}

// syncBetter has the context that ends with the lease.
func syncBetter(ctx context.Context, locks *valkeysync.Client, work job) error {
	mu := locks.Mutex("orders")
	return mu.Do(ctx, work)
}
