package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

// ours is this library with its defaults.
var ours = contestant{
	name:     "valkeysync",
	settings: "defaults (lease 10 s, renewed by itself; crash detection 2 s; turn 2.5 ms); `Lock` and `Unlock`",
	store:    inValkey,
	join:     joinOurs(),
}

// lingering keeps the lock after Unlock until somebody else wants it.
var lingering = contestant{
	name:  "valkeysync with WithLinger",
	store: inValkey,
	join:  joinOurs(valkeysync.WithLinger(time.Second)),
}

func joinOurs(opts ...valkeysync.Option) func(p place) (member, error) {
	return func(p place) (member, error) {
		conn, closeConn, err := p.valkeyConn()
		if err != nil {
			return member{}, err
		}
		opts := append([]valkeysync.Option{valkeysync.WithLogger(slog.New(slog.DiscardHandler))}, opts...)
		if p.Lease > 0 {
			opts = append(opts, valkeysync.WithLease(p.Lease))
		}
		locks, err := valkeysync.New(conn, opts...)
		if err != nil {
			closeConn()
			return member{}, err
		}
		return member{
			locker: func(key string) (locker, error) { return ourLocker{locks.Mutex(key)}, nil },
			close: func() {
				_ = locks.Close() // it returns nil
				closeConn()
			},
		}, nil
	}
}

type ourLocker struct{ *valkeysync.Mutex }

// Lock does not look at ctx: the others unlock soon enough in every measure.
func (l ourLocker) Lock(context.Context) error {
	l.Mutex.Lock()
	return nil
}

func (l ourLocker) Unlock(context.Context) error {
	l.Mutex.Unlock()
	return nil
}

// valkeyConn is a client of valkey-go and what closes it.
func (p place) valkeyConn() (valkey.Client, func(), error) {
	if p.conn != nil {
		return p.conn, func() {}, nil
	}
	c, err := valkey.NewClient(p.valkeyOption())
	if err != nil {
		return nil, nil, err
	}
	return c, c.Close, nil
}

// valkeyOption is as the README recommends it. Where commands are counted, the PINGs that valkey-go sends
// every second on each connection are left out of the count by not being sent.
func (p place) valkeyOption() valkey.ClientOption {
	o := valkey.ClientOption{InitAddress: []string{p.Valkey}, ConnWriteTimeout: 2 * time.Second}
	if p.wire != nil {
		o.DialCtxFn = p.wire.dialValkey
		o.Dialer.KeepAlive = time.Hour
	}
	return o
}
