package valkeysync

import (
	"context"
	"sync"
)

// crew owns every goroutine of a Client. Zero value ready.
type crew struct {
	mu      sync.Mutex
	n       int
	stopped bool
	idle    chan struct{} // closed when n falls to 0; made by whoever waits
}

// run starts f on a goroutine of its own, and reports false once the crew was stopped.
func (c *crew) run(f func()) bool {
	if !c.enter() {
		return false
	}
	c.start(f)
	return true
}

// enter counts one more who works, until leave, and reports false once the crew was stopped.
func (c *crew) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.n++
	}
	return !c.stopped
}

// start is run for one who has entered.
func (c *crew) start(f func()) {
	go func() {
		defer c.leave()
		f()
	}()
}

func (c *crew) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n--
	if c.n == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// wait returns when nobody works, or ctx ends.
func (c *crew) wait(ctx context.Context) {
	for {
		c.mu.Lock()
		if c.n == 0 {
			c.mu.Unlock()
			return
		}
		if c.idle == nil {
			c.idle = make(chan struct{})
		}
		idle := c.idle
		c.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return
		}
	}
}

// stop lets nobody start any more.
func (c *crew) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
}
