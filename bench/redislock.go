package main

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

const (
	redislockTTL   = 30 * time.Second
	redislockPause = 100 * time.Millisecond
)

// redislocks is bsm/redislock with the retries of its own example.
var redislocks = contestant{
	name:     "redislock",
	module:   "github.com/bsm/redislock",
	settings: "TTL 30 s (it has no default), not renewed; `LinearBackoff(100 ms)` as in its example of a retry, go-redis with its defaults",
	store:    inValkey,
	join: func(p place) (member, error) {
		client := redis.NewClient(p.redisOptions())
		locks := redislock.New(client)
		return member{
			locker: func(key string) (locker, error) { return &byRedislock{locks: locks, key: key}, nil },
			close:  func() { _ = client.Close() }, // nothing is lost with a connection
		}, nil
	},
}

type byRedislock struct {
	locks *redislock.Client
	key   string
	lock  *redislock.Lock
}

func (r *byRedislock) Lock(ctx context.Context) (err error) {
	for {
		// Obtain gives up after the TTL where ctx has no deadline.
		r.lock, err = r.locks.Obtain(ctx, r.key, redislockTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPause)})
		if ctx.Err() != nil || !errors.Is(err, redislock.ErrNotObtained) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

func (r *byRedislock) Unlock(context.Context) error { return r.lock.Release(context.Background()) }
