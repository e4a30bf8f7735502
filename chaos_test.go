package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// Chaos: Clients that lock, hold, give up and unlock at random, over a network that loses and delays
// requests, replies and messages and cuts connections at random. What must never happen does not: two
// holds that are certain at once, a token that does not rise, a waiter that is never served, something
// that is left behind.

// referee sees every acquisition, and is the store that refuses an older token.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	holds  []*Lease
	token  int64
	got    int
	gaveUp int
	lost   int
}

func (r *referee) enter(l *Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got++
	if !l.Valid() {
		return // lost already, and it knows
	}
	living := r.holds[:0]
	for _, other := range r.holds {
		if other.Valid() {
			r.t.Errorf("two holds are certain at once: tokens %d and %d, until %v and %v", other.Token(), l.Token(), other.Until(), l.Until())
		}
	}
	r.holds = append(living, l)
	if l.Token() <= r.token {
		r.t.Errorf("token %d after %d", l.Token(), r.token)
	}
	r.token = max(r.token, l.Token())
}

// weather is how often, in a thousand, each fault happens.
type weather struct {
	loseRequest, loseReply, swallow, swallowReply, late, slow int
	keepMessage, loseMessage, cutEar, cutAll                  int
}

// storm bends every script run of a tap.
func (w weather) storm(rnd func(n int) int) relay {
	return func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
		n := rnd(1000)
		for _, fault := range []struct {
			odds int
			bend relay
		}{
			{w.loseRequest, loseRequest}, {w.loseReply, loseReply}, {w.swallow, swallow}, {w.swallowReply, swallowReply},
			{w.late, func(ctx context.Context, run func() valkey.ValkeyResult) valkey.ValkeyResult {
				// It arrives after its caller has given up, or just before.
				done := make(chan valkey.ValkeyResult, 1)
				after := time.Duration(rnd(5000)) * time.Millisecond
				go func() {
					time.Sleep(after)
					done <- run()
				}()
				select {
				case r := <-done:
					return r
				case <-ctx.Done():
					return valkey.NewErrorResult(ctx.Err())
				}
			}},
			{w.slow, slow(time.Duration(rnd(300))*time.Millisecond, time.Duration(rnd(300))*time.Millisecond)},
		} {
			if n -= fault.odds; n < 0 {
				return fault.bend(ctx, run)
			}
		}
		return run()
	}
}

func TestChaos(t *testing.T) {
	for name, w := range map[string]weather{
		"calm":            {},
		"lost replies":    {loseReply: 150, swallowReply: 30},
		"lost requests":   {loseRequest: 150, swallow: 30},
		"late requests":   {late: 150},
		"slow":            {slow: 500},
		"late messages":   {keepMessage: 300},
		"lost messages":   {loseMessage: 200},
		"cut connections": {cutEar: 20, cutAll: 5},
		"everything":      {loseReply: 50, swallowReply: 10, loseRequest: 50, swallow: 10, late: 50, slow: 100, keepMessage: 50, loseMessage: 50, cutEar: 5, cutAll: 2},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(4) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					inBubble(t, func(t *testing.T, b *bubble) { chaos(t, b, w, seed) })
				})
			}
		})
	}
}

func chaos(t *testing.T, b *bubble, w weather, seed uint64) {
	const clients, goroutines, turns = 4, 2, 8
	lock := sync.Mutex{}
	source := rand.New(rand.NewPCG(seed, 1))
	rnd := func(n int) int {
		lock.Lock()
		defer lock.Unlock()
		return source.IntN(n)
	}
	ref := &referee{t: t}
	var work sync.WaitGroup
	stop := make(chan struct{})
	var wires []*tap
	for range clients {
		wire := b.tap()
		wires = append(wires, wire)
		opts := []Option{WithLogger(quiet), WithLease(time.Duration(1+rnd(10)) * time.Second)}
		if seed%2 == 1 {
			opts = append(opts, WithCrashDetection(defaultGrace), WithTurn(defaultTurn))
		}
		if seed%3 == 2 {
			opts = append(opts, WithLinger(200*time.Millisecond))
		}
		c := newClient(t, wire, opts...)
		m := c.Mutex("orders")
		bend := w.storm(rnd)
		for _, script := range []string{"acquire", "release", "leave", "check", "renew"} {
			wire.always(script, bend)
		}
		wire.keepBack(func(protocol.Message) bool { return rnd(1000) < w.keepMessage+w.loseMessage })
		work.Go(func() { // what is kept back comes later, or never
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+rnd(1000)) * time.Millisecond):
				}
				if w.loseMessage == 0 || rnd(2) == 0 {
					wire.deliver()
				} else {
					wire.drop()
				}
				if rnd(100) < w.cutEar {
					wire.cutEar()
				}
				if rnd(100) < w.cutAll {
					wire.cut()
				}
			}
		})
		for range goroutines {
			work.Go(func() {
				for range turns {
					ref.turn(m, rnd)
					time.Sleep(time.Duration(rnd(100)) * time.Millisecond)
				}
			})
		}
	}
	go func() {
		// The others end when all turns are over.
		for {
			ref.mu.Lock()
			over := ref.got+ref.gaveUp == clients*goroutines*turns
			ref.mu.Unlock()
			if over {
				close(stop)
				return
			}
			time.Sleep(time.Second)
		}
	}()
	start := time.Now()
	work.Wait()
	require.Less(t, time.Since(start), 30*time.Minute)
	t.Logf("%d acquisitions, %d given up, %d lost, in %v", ref.got, ref.gaveUp, ref.lost, time.Since(start))

	// The network is well again: nothing is left, by itself and soon.
	for _, wire := range wires {
		for _, script := range []string{"acquire", "release", "leave", "check", "renew"} {
			wire.always(script, nil)
		}
		wire.keepBack(nil)
		wire.deliver()
	}
	time.Sleep(30 * time.Second) // and what comes late has come
	synctest.Wait()
	require.False(t, b.Exists("orders"))
	require.False(t, b.Exists("{orders}:queue"))
}

// turn is one lock and unlock, or a wait that is given up.
func (r *referee) turn(m *Mutex, rnd func(int) int) {
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	if rnd(3) == 0 {
		patience := time.Duration(rnd(3000)) * time.Millisecond
		if rnd(4) == 0 {
			patience = 0
		}
		time.AfterFunc(patience, cancel)
	}
	held, err := m.LockContext(ctx)
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			r.t.Errorf("a wait ended with %v", err)
		}
		r.mu.Lock()
		r.gaveUp++
		r.mu.Unlock()
		return
	}
	l, _ := FromContext(held)
	r.enter(l)
	hold := time.Duration(rnd(50)) * time.Millisecond
	if rnd(10) == 0 {
		hold = time.Duration(rnd(20)) * time.Second
	}
	select {
	case <-time.After(hold):
	case <-held.Done():
	}
	if err := m.UnlockContext(held); errors.Is(err, ErrLeaseLost) {
		r.mu.Lock()
		r.lost++
		r.mu.Unlock()
	}
}
