package valkeysync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quorumJudge knows who believes that it holds.
type quorumJudge struct {
	t      *testing.T
	mu     sync.Mutex
	inside map[*Lease]bool
	last   int64
	got    int
}

func (j *quorumJudge) enter(l *Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for other := range j.inside {
		if other.Valid() && l.Valid() {
			j.t.Errorf("two hold: tokens %d and %d", other.Token(), l.Token())
		}
	}
	if l.Token() <= j.last {
		j.t.Errorf("token %d after %d", l.Token(), j.last)
	}
	j.last = l.Token()
	j.inside[l] = true
	j.got++
}

func (j *quorumJudge) leave(l *Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.inside, l)
}

// Requests and replies between four processes and their servers are lost, late or never answered at random, on as
// many servers at a time as it happens to be. No two hold at once, tokens rise, and when it is over nothing remains.
func TestQuorumUnderRandomFaults(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubbles(t, []int{3, 5, 4}[seed%3], func(t *testing.T, b *bubbles) {
				judge := &quorumJudge{t: t, inside: map[*Lease]bool{}}
				over, stop := context.WithTimeout(t.Context(), 30*time.Second)
				defer stop()
				var parties []*party
				var all sync.WaitGroup
				for i := range uint64(4) {
					p := b.party(WithLogger(quiet), WithLease(3*time.Second))
					parties = append(parties, p)
					all.Go(func() { p.misfortune(over, rand.New(rand.NewPCG(seed, i))) })
					all.Go(func() { judge.work(over, p.Mutex("orders"), rand.New(rand.NewPCG(seed, 100+i))) })
				}
				all.Wait()
				t.Logf("%d acquisitions", judge.got)
				require.Positive(t, judge.got)
				time.Sleep(20 * time.Second)
				b.free("orders")
				for _, p := range parties {
					m := p.Mutex("orders")
					held, err := m.LockContext(t.Context())
					require.NoError(t, err)
					judge.enter(leaseOf(t, held))
					judge.leave(leaseOf(t, held))
					require.NoError(t, m.UnlockContext(held))
				}
			})
		})
	}
}

// misfortune bends what passes between a process and its servers, until ctx ends; then all is well.
func (p *party) misfortune(ctx context.Context, rnd *rand.Rand) {
	ms := func(n int) time.Duration { return time.Duration(rnd.IntN(n)) * time.Millisecond }
	for sleep(ctx, ms(3000)) {
		i := rnd.IntN(len(p.taps))
		relays := []relay{nil, nil, nil, loseRequest, loseReply, swallow, swallowReply, slow(ms(1000), ms(1000))}
		p.bend(relays[rnd.IntN(len(relays))], i)
	}
	for i := range p.taps {
		p.thaw(i)
	}
}

// work locks and unlocks until ctx ends.
func (j *quorumJudge) work(ctx context.Context, m *QuorumMutex, rnd *rand.Rand) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+rnd.IntN(15))*time.Second)
		held, err := m.LockContext(limited)
		if err != nil {
			cancel()
			sleep(ctx, time.Duration(rnd.IntN(100))*time.Millisecond)
			continue
		}
		l, _ := FromContext(held)
		j.enter(l)
		rest(time.Duration(rnd.IntN(5000))*time.Millisecond, held.Done())
		j.leave(l)
		_ = m.UnlockContext(held)
		cancel()
	}
}
