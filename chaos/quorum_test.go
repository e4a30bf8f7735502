package chaos

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quorumSeeds are the short form of the worlds with a Quorum. They run beside each other.
var quorumSeeds = []uint64{308, 385}

func TestShortFormOfAQuorumHasSomeOfEverything(t *testing.T) {
	have := map[string]bool{}
	for _, seed := range quorumSeeds {
		p := AnyPlanFor(seed, shortLength)
		for _, f := range p.Schedule {
			have[string(f.Kind)] = true
		}
		have[fmt.Sprint("servers ", p.Servers)], have[fmt.Sprint("persist ", p.Persist)] = true, true
		have[string(p.Flavor)], have[fmt.Sprint("gentle ", p.Gentle)] = true, true
	}
	want := []string{"servers 3", "servers 5", "persist true", "persist false", "gentle true", "valkey", "redis"}
	for _, k := range quorumKinds {
		want = append(want, string(k.kind))
	}
	for _, w := range want {
		require.True(t, have[w], w)
	}
}

// At most one server at a time is down or does not know what it has promised, by what fails on purpose.
func TestServersOfAQuorumForgetOneAtATime(t *testing.T) {
	kills := 0
	for seed := range uint64(400) {
		p := QuorumPlanFor(seed, 10*time.Second)
		var whole time.Duration
		for _, f := range p.Schedule {
			require.Less(t, f.Server, p.Servers)
			if f.Kind != ServerKill {
				continue
			}
			require.GreaterOrEqual(t, f.At, whole, "%v", p)
			require.GreaterOrEqual(t, f.Server, 0)
			kills++
			whole = f.At + f.For
			if !p.Persist {
				whole += p.longestLease()
			}
		}
	}
	require.Greater(t, kills, 400)
}

func TestNothingGoesWrongWithAQuorumWhateverFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var wg sync.WaitGroup
	for _, seed := range quorumSeeds {
		wg.Go(func() { runPlan(t, AnyPlanFor(seed, *lengthFlag), dir) })
	}
	wg.Wait()
}
