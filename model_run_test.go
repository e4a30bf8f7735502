package valkeysync

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// The primitives against model_rw_test.go: random steps of several Clients. After each the model says who
// has got in, who holds and who waits, and the server and the Clients must come to the same.

// play is one key that Clients play on.
type play struct {
	t       *testing.T
	rnd     *rand.Rand
	model   *modelOfKey
	key     string
	clients []*Client
	foreign func(args ...string) error // a command of another program
	settle  func()                     // lets a little time pass

	mutexes []*Mutex
	rws     []*RWMutex
	sems    map[int64][]*Semaphore

	events chan played
	in     map[int]played             // who has got in and not left
	stop   map[int]context.CancelFunc // of those who wait
	size   map[int]int64              // of the semaphore that they use
	ids    int
	steps  []string
}

type played struct {
	id  int
	ctx context.Context
	err error
}

// playSizes are the sizes of semaphores.
var playSizes = []int64{3, 5}

func newPlay(t *testing.T, seed uint64, kind byte, key string, clients []*Client) *play {
	p := &play{
		t: t, rnd: rand.New(rand.NewPCG(seed, uint64(kind))), model: &modelOfKey{kind: kind}, key: key, clients: clients,
		events: make(chan played, 100), in: map[int]played{}, stop: map[int]context.CancelFunc{}, size: map[int]int64{},
		sems: map[int64][]*Semaphore{},
	}
	for _, c := range clients {
		p.mutexes, p.rws = append(p.mutexes, c.Mutex(key)), append(p.rws, c.RWMutex(key))
		for _, size := range playSizes {
			p.sems[size] = append(p.sems[size], c.Semaphore(key, size))
		}
	}
	return p
}

// lock asks as the real thing does what the model does for h.
func (p *play) lock(ctx context.Context, h modelHold, size int64, try bool) (context.Context, error) {
	m, rw, s := p.mutexes[h.client], p.rws[h.client], p.sems[size]
	switch {
	case h.mode == protocol.Permit && try:
		return s[h.client].TryAcquireContext(ctx, h.weight)
	case h.mode == protocol.Permit:
		return s[h.client].AcquireContext(ctx, h.weight)
	case p.model.kind == 'm' && try:
		return m.TryLockContext(ctx)
	case p.model.kind == 'm':
		return m.LockContext(ctx)
	case h.mode == protocol.Reader && try:
		return rw.TryRLockContext(ctx)
	case h.mode == protocol.Reader:
		return rw.RLockContext(ctx)
	case try:
		return rw.TryLockContext(ctx)
	}
	return rw.LockContext(ctx)
}

func (p *play) unlock(h modelHold, weight int64) error {
	ctx := context.WithoutCancel(p.in[h.id].ctx)
	switch {
	case h.mode == protocol.Permit:
		return p.sems[p.size[h.id]][h.client].ReleaseContext(ctx, weight)
	case p.model.kind == 'm':
		return p.mutexes[h.client].UnlockContext(ctx)
	case h.mode == protocol.Reader:
		return p.rws[h.client].RUnlockContext(ctx)
	}
	return p.rws[h.client].UnlockContext(ctx)
}

// step takes one step and compares.
func (p *play) step() {
	p.t.Helper()
	m, rnd := p.model, p.rnd
	m.in, m.refused, m.fresh = nil, nil, 0
	ended := map[int]error{} // who has given up, and is told
	pick := func(hs []modelHold) modelHold { return hs[rnd.IntN(len(hs))] }
	switch n := rnd.IntN(20); {
	case n < 4: // try
		h, size := p.someone()
		p.note("try %v of %d", h, size)
		m.acquire(h, size, true)
		ctx, err := p.lock(context.Background(), h, size, true)
		if !slices.Contains(m.in, h.id) && !slices.Contains(m.refused, h.id) {
			require.ErrorIs(p.t, err, ErrLocked, p)
		} else {
			p.events <- played{h.id, ctx, err}
		}
	case n < 10: // acquire
		h, size := p.someone()
		if h.mode == protocol.Permit && slices.ContainsFunc(m.waiters, func(w modelHold) bool { return w.client == h.client }) {
			return // when several processes get in at once, it is open whose next one is first
		}
		p.note("acquire %v of %d", h, size)
		m.acquire(h, size, false)
		ctx, cancel := context.WithCancel(context.Background())
		p.stop[h.id] = cancel
		go func() {
			ctx, err := p.lock(ctx, h, size, false)
			p.events <- played{h.id, ctx, err}
		}()
	case n < 16 && len(m.holds) > 0: // release
		h := pick(m.holds)
		weight := h.weight
		if h.mode == protocol.Permit {
			weight = 1 + rnd.Int64N(h.weight)
		}
		p.note("release %d of %v", weight, h)
		m.release(h.id, weight)
		require.NoError(p.t, p.unlock(h, weight), p)
		if weight == h.weight {
			delete(p.in, h.id)
		}
	case n == 16 && len(m.waiters) > 0: // give up
		h := pick(m.waiters)
		p.note("give up %v", h)
		m.giveUp(h.id)
		p.stop[h.id]()
		ended[h.id] = context.Canceled
	case n == 17 && m.kind == 'w': // downgrade
		if len(m.holds) != 1 || m.holds[0].mode != protocol.Exclusive {
			return
		}
		h := m.holds[0]
		p.ids++
		p.note("downgrade %v to %d", h, p.ids)
		m.downgrade(h.id, p.ids)
		ctx, err := p.rws[h.client].Downgrade(p.in[h.id].ctx)
		delete(p.in, h.id)
		p.events <- played{p.ids, ctx, err}
	case n == 17 && m.kind == 's': // resize
		size := playSizes[rnd.IntN(len(playSizes))]
		p.note("resize to %d", size)
		m.resize(size)
		require.NoError(p.t, p.sems[size][rnd.IntN(len(p.clients))].Resize(context.Background()), p)
	case n == 18 && rnd.IntN(3) == 0: // force
		p.note("force")
		lost := m.force()
		require.NoError(p.t, p.clients[0].ForceUnlock(context.Background(), p.key), p)
		for _, h := range lost {
			held := p.in[h.id]
			p.until("the loss is told", func() bool { return held.ctx.Err() != nil })
			require.ErrorIs(p.t, p.unlock(h, h.weight), ErrLeaseLost, p)
			delete(p.in, h.id)
		}
	case n == 19 && m.foreign:
		p.note("the other program ends")
		m.plainEnds()
		require.NoError(p.t, p.foreign("DEL", p.key))
	case n == 19 && rnd.IntN(2) == 0:
		p.note("another program")
		ok := m.plain()
		require.Equal(p.t, ok, p.foreign("SET", p.key, "another program", "NX", "PX", "3600000") == nil, p)
	default:
		return
	}
	p.compare(ended)
}

// someone is who asks next, and for what.
func (p *play) someone() (h modelHold, size int64) {
	p.ids++
	h = modelHold{id: p.ids, client: p.rnd.IntN(len(p.clients)), mode: protocol.Exclusive, weight: 1}
	switch p.model.kind {
	case 'w':
		if p.rnd.IntN(3) > 0 {
			h.mode = protocol.Reader
		}
	case 's':
		size = p.model.size
		if size == 0 || p.rnd.IntN(8) == 0 {
			size = playSizes[p.rnd.IntN(len(playSizes))]
		}
		h.mode, h.weight = protocol.Permit, 1+p.rnd.Int64N(size)
		p.size[h.id] = size
	}
	return h, size
}

func (p *play) note(format string, args ...any) {
	p.steps = append(p.steps, fmt.Sprintf(format, args...))
}

// String is for the failure: the last steps.
func (p *play) String() string {
	last := p.steps[max(0, len(p.steps)-12):]
	out := p.key + "\nmodel: " + p.model.String()
	for _, s := range last {
		out += "\n  " + s
	}
	return out
}

func (p *play) until(what string, ok func() bool) {
	p.t.Helper()
	for range 5000 {
		if ok() {
			return
		}
		p.settle()
	}
	p.t.Fatalf("%s: not yet\n%v", what, p)
}

// compare waits for what the model says.
func (p *play) compare(ended map[int]error) {
	p.t.Helper()
	expected := map[int]error{}
	for _, id := range p.model.in {
		expected[id] = nil
	}
	for _, id := range p.model.refused {
		expected[id] = ErrMismatch
	}
	maps.Copy(expected, ended)
	take := func() {
		for len(p.events) > 0 {
			e := <-p.events
			want, ok := expected[e.id]
			require.True(p.t, ok, "%d got in, or failed (%v), and should wait\n%v", e.id, e.err, p)
			require.ErrorIs(p.t, e.err, want, "%d\n%v", e.id, p)
			delete(expected, e.id)
			delete(p.stop, e.id)
			if e.err == nil {
				p.in[e.id] = e
			}
		}
	}
	p.until("those get in who should", func() bool {
		take()
		return len(expected) == 0
	})
	p.until("those stand at their gates who wait", p.waits)
	var st Status
	defer func() {
		if p.t.Failed() {
			p.t.Logf("the server says: %+v", st)
		}
	}()
	p.until("the server says the same", func() bool {
		take()
		var err error
		st, err = p.clients[0].Status(context.Background(), p.key)
		require.NoError(p.t, err, p)
		return p.agrees(st)
	})
	p.until("who reads knows that somebody waits", func() bool { return p.told(st) })
	for _, h := range p.model.holds {
		require.NoError(p.t, p.in[h.id].ctx.Err(), p)
	}
}

// waits: the goroutines that wait have got so far, and stand in the order in which they came, also where the
// server does not hear of them: behind a holder of their own process, or behind a waiter of it.
func (p *play) waits() bool {
	for i, c := range p.clients {
		here, want := 0, 0
		c.each(nil, func(g *gate) {
			g.mu.Lock()
			defer g.unlock()
			if g.keys.Lock == p.key {
				here += len(g.waiters)
			}
		})
		for _, w := range p.model.waiters {
			if w.client == i {
				want++
			}
		}
		if here != want {
			return false
		}
	}
	return true
}

// told: the message that somebody else waits, which keeps new readers of a process from joining those that
// it has, has arrived everywhere.
func (p *play) told(st Status) bool {
	told := true
	for _, c := range p.clients {
		waits := slices.ContainsFunc(st.Queue, func(w WaiterStatus) bool { return w.Client != c.id })
		c.each(nil, func(g *gate) {
			g.mu.Lock()
			defer g.unlock()
			for _, h := range g.holds {
				if waits && g.keys.Lock == p.key && h.entry.Mode == protocol.Reader && !h.contended {
					told = false
				}
			}
		})
	}
	return told
}

// agrees compares a status with the model, and takes over the order of places that the model leaves open.
func (p *play) agrees(st Status) bool {
	m := p.model
	index := map[string]int{}
	for i, c := range p.clients {
		index[c.id] = i
	}
	var queue []modelEntry
	for _, w := range st.Queue {
		queue = append(queue, modelEntry{index[w.Client], protocol.Mode(w.Mode[0]), w.Weight})
	}
	for i := range queue {
		if queue[i].mode == 'e' {
			queue[i].mode = protocol.Exclusive
		}
	}
	certain := max(0, len(m.queue)-m.fresh)
	if len(queue) != len(m.queue) || !slices.Equal(queue[:certain], m.queue[:certain]) {
		return false
	}
	order := func(a, b modelEntry) int {
		return 1000*(a.client-b.client) + 10*(int(a.mode)-int(b.mode)) + int(a.weight-b.weight)
	}
	if !slices.Equal(slices.SortedFunc(slices.Values(queue[certain:]), order), slices.SortedFunc(slices.Values(m.queue[certain:]), order)) {
		return false
	}
	m.queue = queue
	if m.foreign {
		return st.State == StateForeign
	}
	var real, want []string
	for _, h := range st.Holders {
		real = append(real, fmt.Sprint(index[h.Client], h.Mode, h.Weight))
	}
	for _, h := range m.holds {
		want = append(want, fmt.Sprint(h.client, modeNames[h.mode], h.weight))
	}
	slices.Sort(real)
	slices.Sort(want)
	if m.kind == 'w' { // the readers of a process share holds
		real, want = slices.Compact(real), slices.Compact(want)
	}
	if m.kind == 's' && len(m.holds) > 0 && st.Size != m.size {
		return false
	}
	return slices.Equal(real, want)
}

func (p *play) end() {
	for _, stop := range p.stop {
		stop()
	}
}

func playAll(t *testing.T, seed uint64, steps int, clients []*Client, foreign func(args ...string) error, settle func()) {
	t.Logf("seed %d", seed)
	var plays []*play
	for _, kind := range []byte("mws") {
		p := newPlay(t, seed, kind, fmt.Sprintf("play %c", kind), clients)
		p.foreign, p.settle = foreign, settle
		defer p.end()
		plays = append(plays, p)
	}
	for range steps {
		for _, p := range plays {
			p.step()
		}
	}
}

func TestPrimitivesAgreeWithTheModel(t *testing.T) {
	eachServer(t, notifying, func(t *testing.T, s *testserver.Server) {
		var clients []*Client
		for range 4 {
			clients = append(clients, on(t, s, WithLease(time.Minute)))
		}
		playAll(t, rand.Uint64(), 1500, clients, func(args ...string) error {
			_, err := s.Do(args...)
			return err
		}, func() { <-time.After(time.Millisecond) })
	})
}

// The same in a bubble, where nothing but timers tells of the other program's end.
func TestPrimitivesAgreeWithTheModelWithoutNotifications(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var clients []*Client
		for range 4 {
			clients = append(clients, b.client())
		}
		v := b.dial(nil)
		playAll(t, rand.Uint64(), 150, clients, func(args ...string) error {
			return v.Do(t.Context(), v.B().Arbitrary(args...).Build()).Error()
		}, func() {
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		})
	})
}
