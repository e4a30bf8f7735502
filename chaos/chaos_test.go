package chaos

import (
	"flag"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	seedFlag   = flag.String("chaos.seeds", "", "the seeds to run, separated by commas, in place of the fixed ones")
	lengthFlag = flag.Duration("chaos.length", 4*time.Second, "how long things fail in one world")
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// seeds of the short form: two rows of worlds beside each other.
var rows = [][]uint64{{1, 2, 3, 4}, {5, 6, 7, 8}}

func TestNothingGoesWrongWhateverFails(t *testing.T) {
	rows := rows
	if *seedFlag != "" {
		var row []uint64
		for _, s := range strings.Split(*seedFlag, ",") {
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
				runSeed(t, seed, dir)
			}
		})
	}
	wg.Wait()
	if !t.Failed() {
		require.NoError(t, os.RemoveAll(dir))
	}
}

func runSeed(t *testing.T, seed uint64, dir string) {
	plan := PlanFor(seed, *lengthFlag)
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
