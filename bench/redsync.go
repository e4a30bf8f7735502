package main

import (
	"context"
	"errors"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncs is redsync as its README has it, on one server. Its Lock gives up after 32 tries; its comment
// says to call it again then.
var redsyncs = contestant{
	name:     "redsync",
	module:   "github.com/go-redsync/redsync/v4",
	settings: "defaults (expiry 8 s, not renewed; refused: again after 50 to 250 ms), go-redis with its defaults; `Lock` is called again when its 32 tries are over",
	store:    inValkey,
	join: func(p place) (member, error) {
		client := redis.NewClient(p.redisOptions())
		rs := redsync.New(goredis.NewPool(client))
		return member{
			locker: func(key string) (locker, error) { return byRedsync{rs.NewMutex(key)}, nil },
			close:  func() { _ = client.Close() }, // nothing is lost with a connection
		}, nil
	},
}

type byRedsync struct{ *redsync.Mutex }

func (r byRedsync) Lock(ctx context.Context) error {
	for {
		err := r.LockContext(ctx)
		var taken *redsync.ErrTaken
		if err == nil || ctx.Err() != nil || !errors.Is(err, redsync.ErrFailed) && !errors.As(err, &taken) {
			return err
		}
	}
}

func (r byRedsync) Unlock(context.Context) error {
	_, err := r.UnlockContext(context.Background())
	return err
}

// redisOptions are go-redis's defaults.
func (p place) redisOptions() *redis.Options {
	o := &redis.Options{Addr: p.Valkey}
	if p.wire != nil {
		o.Dialer = p.wire.dialRedis
	}
	return o
}
