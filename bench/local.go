package main

import (
	"context"
	"sync"
)

// floor is a lock of one process: nothing between processes can be faster.
var floor = contestant{
	name:     "sync.Mutex",
	settings: "inside one process; the floor",
	store:    inMemory,
	join: local(func() locker {
		var mu sync.Mutex
		return &lockPair{
			lock:   func(context.Context) error { mu.Lock(); return nil },
			unlock: func(context.Context) error { mu.Unlock(); return nil },
		}
	}),
}

// channel is a mutex made from a channel of Go, as one makes it that can be given up.
var channel = contestant{
	name:  "Go channel",
	store: inMemory,
	join: local(func() locker {
		ch := make(chan struct{}, 1)
		return &lockPair{
			lock:   func(context.Context) error { ch <- struct{}{}; return nil },
			unlock: func(context.Context) error { <-ch; return nil },
		}
	}),
}

// local makes one lock for each key.
func local(newLock func() locker) func(place) (member, error) {
	return func(place) (member, error) {
		var mu sync.Mutex
		locks := map[string]locker{}
		return member{
			locker: func(key string) (locker, error) {
				mu.Lock()
				defer mu.Unlock()
				if locks[key] == nil {
					locks[key] = newLock()
				}
				return locks[key], nil
			},
			close: func() {},
		}, nil
	}
}
