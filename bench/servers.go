package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// servers are those that one measure runs against.
type servers struct {
	place
	valkey *testserver.Server
	etcd   *child // nil: not needed, or left out
	dir    string
}

// startServers starts a valkey-server, and an etcd server where it is wanted and built in.
func startServers(withEtcd bool) (_ *servers, err error) {
	s := &servers{}
	if s.dir, err = os.MkdirTemp("", "valkeysync-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.valkey, err = testserver.Launch(testserver.Valkey, s.dir); err != nil {
		return nil, err
	}
	s.Valkey = s.valkey.Addr()
	if withEtcd && len(etcds) > 0 {
		if s.etcd, err = start(job{Kind: "etcd", Dir: s.dir}, &s.Etcd); err != nil {
			return nil, fmt.Errorf("etcd: %w", err)
		}
	}
	return s, nil
}

func (s *servers) close() {
	if s.etcd != nil {
		s.etcd.close()
	}
	if s.valkey != nil {
		s.valkey.Close()
	}
	_ = os.RemoveAll(s.dir) // a temporary folder, which the system clears as well
}

// pids are the servers' processes.
func (s *servers) pids() []int {
	pids := []int{s.valkey.Pid()}
	if s.etcd != nil {
		pids = append(pids, s.etcd.pid())
	}
	return pids
}

func prepareEtcd(j job) (any, func() (any, error), error) {
	addr, err := serveEtcd(j.Dir)
	if err != nil {
		return nil, nil, err
	}
	return addr, func() (any, error) { return nil, errors.New("etcd only serves") }, nil
}

// join has a contestant come to its store, and checks that it can lock there.
func join(c contestant, p place) (member, error) {
	m, err := c.join(p)
	if err != nil {
		return m, fmt.Errorf("%s: %w", c.name, err)
	}
	l, err := m.locker(fmt.Sprintf("warm-%d", os.Getpid()))
	if err == nil {
		ctx, cancel := limited()
		defer cancel()
		if err = l.Lock(ctx); err == nil { // the scripts get loaded, the connections opened
			err = l.Unlock(ctx)
		}
	}
	if err != nil {
		m.close()
		return m, fmt.Errorf("%s: %w", c.name, err)
	}
	return m, nil
}

// limited is a context for what hangs when it takes longer. It has no deadline: some take that for the lease.
func limited() (context.Context, context.CancelFunc) {
	const limit = 20 * time.Second
	ctx, cancel := context.WithCancelCause(context.Background())
	t := time.AfterFunc(limit, func() { cancel(fmt.Errorf("it hangs: nothing for %v", limit)) })
	return ctx, func() {
		t.Stop()
		cancel(nil)
	}
}

// pair locks and unlocks.
func pair(l locker) error {
	if err := l.Lock(context.Background()); err != nil {
		return err
	}
	return l.Unlock(context.Background())
}
