package valkeysync

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// vigil hears which of the servers have become free.
type vigil struct {
	watches []*watch
	stir    chan struct{} // capacity 1

	mu    sync.Mutex
	freed []bool // by server, since the last forget
}

// begin returns when all servers have confirmed that we listen, or did not in time.
func (v *vigil) begin(b *bid) {
	if v.watches != nil {
		return
	}
	v.stir, v.freed = make(chan struct{}, 1), make([]bool, len(b.q.members))
	for i, m := range b.q.members {
		free := func(event string, _ int64) {
			if event == "expire" || event == "set" {
				return // renewals and acquisitions
			}
			v.mu.Lock()
			v.freed[i] = true
			v.mu.Unlock()
			select {
			case v.stir <- struct{}{}:
			default:
			}
		}
		again := func(first bool) {
			if !first {
				free("", 0) // what was said meanwhile is lost
			}
		}
		for _, channel := range []string{m.c.keyspace(b.h.keys.Lock), b.h.keys.QuorumChannel()} {
			v.watches = append(v.watches, m.c.hub.join(channel, false, free, again))
		}
	}
	t := time.NewTimer(quorumLimit(b.opts.lease))
	defer t.Stop()
	for i, w := range v.watches {
		if b.q.members[i/2].away.Load() {
			continue // it will not say anything for a while
		}
		select {
		case <-w.confirmed():
		case <-t.C:
			return
		case <-b.ctx.Done():
			return
		}
	}
}

func (v *vigil) stop() {
	for _, w := range v.watches {
		w.stop()
	}
}

// forget: what was heard until now is what the next attempt will see.
func (v *vigil) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	clear(v.freed)
}

// maxJitter bounds the pause of one who was refused again and again.
const maxJitter = 64 * time.Millisecond

// wait returns when another attempt may succeed: when enough of the servers that refused the last one have said
// that they are free; when their leases, as far as is known, are over; after one lease of its own in any case.
// From the second attempt on a pause of random length follows, for somebody else may have been refused by us.
func (v *vigil) wait(ctx context.Context, r *refusal, longest time.Duration, tries int) {
	var pause time.Duration
	switch {
	case r.lack <= 0: // a majority had it, and was too late
	case r.lack <= len(r.left):
		pause = min(r.left[r.lack-1]+time.Millisecond, longest)
	default: // too few have answered
		pause = min(minPause<<min(tries, 10), maxPause)
	}
	enough := func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		n := 0
		for _, i := range r.servers {
			if v.freed[i] {
				n++
			}
		}
		return n >= max(r.lack, 1)
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	for over := false; !over && !enough(); {
		select {
		case <-v.stir:
		case <-t.C:
			over = true
		case <-ctx.Done():
			return
		}
	}
	if tries > 0 || r.lack <= 0 {
		sleep(ctx, rand.N(min(time.Millisecond<<min(tries+1, 10), maxJitter)))
	}
}
