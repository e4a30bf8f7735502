// Package valkeysync is Go's sync across processes: [Mutex], [RWMutex] and [Semaphore] with the method sets
// of [sync.Mutex], [sync.RWMutex] and golang.org/x/sync/semaphore.Weighted, held in Valkey or Redis through
// valkey-go.
//
//	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{"127.0.0.1:6379"}})
//	…
//	c, err := valkeysync.New(client)
//	…
//	mu := c.Mutex("orders")
//	mu.Lock()
//	defer mu.Unlock()
//
// The context forms tell what Lock cannot: the acquire ends with its context, and the context it gives back
// ends, with the reason, when the lease is lost.
//
//	ctx, err := mu.LockContext(ctx)
//	if err != nil {
//		return err // who has it, and for how long
//	}
//	defer mu.UnlockContext(ctx)
//
// Whoever waits sleeps until a message wakes it; whoever unlocks hands the lock to the next in the queue in
// the same request. Nobody polls. A [Quorum] makes mutexes that are held on a majority of several independent
// servers. README.md says what is promised and what is not, docs/protocol.md how it
// works.
package valkeysync
