package main

import (
	"context"

	"github.com/valkey-io/valkey-go/valkeylock"
)

// valkeylocks is valkeylock as its README has it for one server.
var valkeylocks = contestant{
	name:     "valkeylock",
	module:   "github.com/valkey-io/valkey-go",
	settings: "`KeyMajority: 1, NoLoopTracking: true` as in its README, for one server; validity 5 s, renewed by itself; woken by client-side caching",
	store:    inValkey,
	join: func(p place) (member, error) {
		o := p.valkeyOption()
		o.ConnWriteTimeout = 0 // its default
		locks, err := valkeylock.NewLocker(valkeylock.LockerOption{
			ClientOption:   o,
			KeyMajority:    1,
			NoLoopTracking: true,
		})
		if err != nil {
			return member{}, err
		}
		return member{
			locker: func(key string) (locker, error) { return &byValkeylock{locks: locks, key: key}, nil },
			close:  locks.Close,
		}, nil
	},
}

type byValkeylock struct {
	locks  valkeylock.Locker
	key    string
	cancel context.CancelFunc
}

func (v *byValkeylock) Lock(ctx context.Context) (err error) {
	_, v.cancel, err = v.locks.WithContext(ctx, v.key)
	return err
}

func (v *byValkeylock) Unlock(context.Context) error {
	v.cancel()
	return nil
}
