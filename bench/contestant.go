package main

import (
	"context"
	"time"

	"github.com/valkey-io/valkey-go"
)

// contestant is one way to lock between processes, set up as its authors recommend.
type contestant struct {
	name     string
	module   string // whose version the page names; "" where there is none
	settings string // for the page
	store    store
	join     func(p place) (member, error)
}

// store is what a contestant keeps its locks in.
type store int

const (
	inValkey store = iota
	inEtcd
	inMemory // of one process
)

// place is where a member finds its store.
type place struct {
	Valkey, Etcd string        // addresses
	Lease        time.Duration // where the contestant leaves it to its caller; 0: its usual one

	wire *wire         // counts what is sent; nil: nobody counts
	conn valkey.Client // to be shared with others, where the contestant can; nil: one of its own
}

// member is what one process sets up once: connections, sessions.
type member struct {
	locker func(key string) (locker, error) // one for each goroutine
	close  func()
}

// locker is one goroutine's way to one key. Lock fails when ctx ends before it has the lock.
type locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// contestants are all that are compared, in the order of the tables. The first is this library.
var contestants = append([]contestant{ours, recipe, redsyncs, redislocks, valkeylocks}, append(etcds, floor)...)

// named finds a contestant, also one that takes part in one measure only.
func named(name string) (contestant, bool) {
	for _, c := range append(contestants, extras...) {
		if c.name == name {
			return c, true
		}
	}
	return contestant{}, false
}

var extras = []contestant{lingering, channel, unlocked}

// shared are the contestants that lock between processes.
func shared() []contestant {
	var s []contestant
	for _, c := range contestants {
		if c.store != inMemory {
			s = append(s, c)
		}
	}
	return s
}

// lockPair makes a locker of two functions.
type lockPair struct {
	lock, unlock func(ctx context.Context) error
}

func (l *lockPair) Lock(ctx context.Context) error   { return l.lock(ctx) }
func (l *lockPair) Unlock(ctx context.Context) error { return l.unlock(ctx) }
