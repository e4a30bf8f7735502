package chaos

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag   = flag.String("chaos.seeds", "", "the seeds to run, separated by commas, in place of the fixed ones")
	lengthFlag = flag.Duration("chaos.length", shortLength, "how long things fail in one world")
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

const shortLength = 3 * time.Second

// rows are the seeds of the short form: two rows of worlds beside each other.
var rows = [][]uint64{{730, 18, 4, 45}, {1351, 11, 2, 41}}

func TestShortFormHasSomeOfEverything(t *testing.T) {
	have := map[string]bool{}
	for _, seed := range slices.Concat(rows...) {
		p := PlanFor(seed, shortLength)
		for _, f := range p.Schedule {
			have[string(f.Kind)] = true
		}
		mutexes := 0
		for _, k := range p.Keys {
			have[k.Kind], have["owned"] = true, have["owned"] || k.Owned
			if k.Kind == "mutex" {
				mutexes++
			}
		}
		have["several mutexes"] = have["several mutexes"] || mutexes > 1
		have[string(p.Flavor)], have[p.Holds] = true, true
		have[fmt.Sprint("gentle ", p.Gentle)] = true
		have[fmt.Sprint("queue ", p.Queue)], have[fmt.Sprint("persist ", p.Persist)], have[fmt.Sprint("notify ", p.Notify)] = true, true, true
	}
	want := []string{"mutex", "owned", "several mutexes", "rwmutex", "semaphore", "valkey", "redis", "short", "mixed", "long", "queue true", "gentle true", "persist true", "persist false", "notify true", "notify false"}
	for _, k := range kinds {
		want = append(want, string(k.kind))
	}
	for _, w := range want {
		require.True(t, have[w], w)
	}
}

func TestNothingGoesWrongWhateverFails(t *testing.T) {
	rows := rows
	if *seedFlag != "" {
		var row []uint64
		for s := range strings.SplitSeq(*seedFlag, ",") {
			n, err := strconv.ParseUint(s, 10, 64)
			require.NoError(t, err)
			row = append(row, n)
		}
		rows = [][]uint64{row}
	}
	dir, err := os.MkdirTemp("", "chaos-")
	require.NoError(t, err)
	var wg sync.WaitGroup
	for _, row := range rows {
		wg.Go(func() {
			for _, seed := range row {
				runPlan(t, PlanFor(seed, *lengthFlag), dir)
			}
		})
	}
	wg.Wait()
	if !t.Failed() {
		require.NoError(t, os.RemoveAll(dir))
	}
}

func runPlan(t *testing.T, plan Plan, dir string) {
	seed := plan.Seed
	res, err := Run(plan, dir)
	if err != nil {
		t.Errorf("%v\n%v\nlogs in %s", err, plan, Dir(dir, seed))
		return
	}
	t.Log(res)
	if testing.Verbose() {
		t.Log(res.Waiter)
	}
	for _, v := range res.Violations {
		t.Errorf("seed %d: %s", seed, v)
	}
	if len(res.Violations) > 0 {
		t.Errorf("%v\nlogs in %s", plan, Dir(dir, seed))
	}
}
