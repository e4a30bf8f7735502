package valkeysync

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// The alarm goes from hold to hold of a gate, and may ring for the next one too early: whatever came before, and however
// many there are, the end of each is told the moment that it comes.
func TestWhateverHoldsCameBeforeTheEndOfEachIsToldInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		wire := b.tap()
		s := newClient(t, wire, WithLogger(quiet)).Semaphore("k", 9)
		rnd := rand.New(rand.NewPCG(1, 2))
		type one struct {
			ctx   context.Context
			began time.Time
		}
		var held []one
		release := func() {
			i := rnd.IntN(len(held))
			require.NoError(t, s.ReleaseContext(held[i].ctx, 1))
			held = append(held[:i], held[i+1:]...)
		}
		for range 8 {
			for range 60 {
				if len(held) < 9 && rnd.IntN(2) == 0 {
					ctx, err := s.AcquireContext(t.Context(), 1)
					require.NoError(t, err)
					held = append(held, one{ctx, time.Now()})
				} else if len(held) > 0 {
					release()
				}
				time.Sleep(time.Duration(rnd.IntN(4)) * defaultLease / 9) // some are renewed, some in that very moment
			}
			for len(held) > 5 {
				release()
			}
			synctest.Wait()
			wire.always("renew", loseRequest)
			for len(held) > 0 {
				next := held[0].ctx
				until := leaseOf(t, next).hold.deadline()
				for _, h := range held[1:] {
					if at := leaseOf(t, h.ctx).hold.deadline(); at.Before(until) {
						next, until = h.ctx, at
					}
				}
				<-next.(*leaseContext).Context.Done() // which looks at no clock
				require.Zero(t, time.Since(until))
				keep := held[:0]
				for _, h := range held {
					if leaseOf(t, h.ctx).Valid() {
						keep = append(keep, h)
					} else {
						synctest.Wait()
						require.ErrorIs(t, context.Cause(h.ctx.(*leaseContext).Context), ErrLeaseLost)
						require.ErrorIs(t, s.ReleaseContext(h.ctx, 1), ErrLeaseLost)
					}
				}
				held = keep
			}
			wire.always("renew", nil)
			synctest.Wait()
		}
	})
}
