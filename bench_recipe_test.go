package valkeysync

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"
)

// recipe is the baseline of the benchmarks: what most programs do, and most libraries. SET NX PX with a
// fresh value takes the lock, a script that compares and deletes gives it back, and whoever is refused
// tries again after a pause.
type recipe struct {
	client  valkey.Client
	key     string
	value   string
	refused func() // called before every pause; may be nil
}

var _ sync.Locker = (*recipe)(nil)

const (
	recipeLease = 10 * time.Second
	recipePause = 10 * time.Millisecond // libraries wait for 50 to 500 ms
)

var recipeUnlock = valkey.NewLuaScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func newRecipe(c valkey.Client, key string) *recipe { return &recipe{client: c, key: key} }

func (r *recipe) Lock() {
	r.value = strconv.FormatUint(rand.Uint64(), 36)
	for {
		err := r.client.Do(context.Background(), r.client.B().Set().Key(r.key).Value(r.value).Nx().Px(recipeLease).Build()).Error()
		if err == nil {
			return
		}
		if !valkey.IsValkeyNil(err) {
			panic(err)
		}
		if r.refused != nil {
			r.refused()
		}
		time.Sleep(recipePause)
	}
}

func (r *recipe) Unlock() {
	n, err := recipeUnlock.Exec(context.Background(), r.client, []string{r.key}, []string{r.value}).AsInt64()
	if err != nil {
		panic(err)
	}
	if n != 1 {
		panic("the lock was not ours any more")
	}
}

// permit is a Semaphore of which one permit is a lock.
type permit struct{ *Semaphore }

func (p permit) Lock() {
	if err := p.Acquire(context.Background(), 1); err != nil {
		panic(err)
	}
}

func (p permit) Unlock() { p.Release(1) }

// primitive is a way of one Client to a key, as a sync.Locker.
type primitive struct {
	name string
	make func(c *Client, i int, key string) sync.Locker // the i-th Client's
}

// crowd is a locker of each Client.
func (p primitive) crowd(clients []*Client, key string) []sync.Locker {
	var lockers []sync.Locker
	for i, c := range clients {
		lockers = append(lockers, p.make(c, i, key))
	}
	return lockers
}

// primitives: of an RWMutex every fourth Client writes, of a Semaphore two may hold at a time.
var primitives = []primitive{
	{"mutex", func(c *Client, _ int, key string) sync.Locker { return c.Mutex(key) }},
	{"rwmutex", func(c *Client, i int, key string) sync.Locker {
		if i%4 == 0 {
			return c.RWMutex(key)
		}
		return c.RWMutex(key).RLocker()
	}},
	{"semaphore", func(c *Client, _ int, key string) sync.Locker { return permit{c.Semaphore(key, 2)} }},
}

// uncontended are the primitives' ways of which nobody else is in the way.
var uncontended = []primitive{
	primitives[0],
	{"rwmutex-write", func(c *Client, _ int, key string) sync.Locker { return c.RWMutex(key) }},
	{"rwmutex-read", func(c *Client, _ int, key string) sync.Locker { return c.RWMutex(key).RLocker() }},
	primitives[2],
}

// contend has all lockers lock and unlock, each in a goroutine of its own, until it was done n times in
// all, and tells how long that took.
func contend(lockers []sync.Locker, n int) time.Duration {
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := time.Now()
	for _, l := range lockers {
		wg.Go(func() {
			for {
				mu.Lock()
				n--
				over := n < 0
				mu.Unlock()
				if over {
					return
				}
				l.Lock()
				l.Unlock()
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}
