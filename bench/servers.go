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
	l, err := m.locker(fmt.Sprintf("warm-%s-%d", c.name, os.Getpid()))
	if err == nil {
		err = watched(func() error { return pair(l) }) // the scripts get loaded, the connections opened
	}
	if err != nil {
		m.close()
		return m, fmt.Errorf("%s: %w", c.name, err)
	}
	return m, nil
}

// watchLimit is after what time something hangs.
const watchLimit = 20 * time.Second

// watched is f's error, or one of its own where f hangs: some do, when an answer comes too late for them.
func watched(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(watchLimit):
		return fmt.Errorf("it hangs, for %v already", watchLimit)
	}
}

// pair locks and unlocks.
func pair(l locker) error {
	if err := l.Lock(context.Background()); err != nil {
		return err
	}
	return l.Unlock(context.Background())
}
