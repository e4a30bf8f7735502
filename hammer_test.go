package valkeysync

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Hammers over several OS processes. What each does while it holds is counted on the server itself, so that
// no clock and no order of log lines is needed to see two where one may be.

// hammerEnv makes this test binary one of the processes: "<primitive> <server's address> <number>".
const hammerEnv = "VALKEYSYNC_TEST_HAMMER"

func init() {
	if args := os.Getenv(hammerEnv); args != "" {
		if err := hammer(args); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

const (
	hammerTime   = 2 * time.Second
	hammerPermit = 7 // the semaphore's size
)

// hammer is what one process does. It ends early when its parent has gone.
func hammer(args string) error {
	var primitive, addr string
	var process uint64
	if _, err := fmt.Sscan(args, &primitive, &addr, &process); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(2)
	}()
	v, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{addr}, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		return err
	}
	defer v.Close()
	// Each process is another sort of user.
	opts := [][]Option{
		nil,
		{WithTurn(0), WithCrashDetection(0)},
		{WithLinger(5 * time.Millisecond)},
		{WithLease(time.Second), WithTurn(time.Millisecond)},
	}[process%4]
	c, err := New(v, opts...)
	if err != nil {
		return err
	}
	defer c.Close()

	var bad atomic.Pointer[string]
	count := func(by int64) int64 {
		n, err := v.Do(context.Background(), v.B().Incrby().Key("activity").Increment(by).Build()).AsInt64()
		if err != nil {
			bad.Store(ptr(err.Error()))
		}
		return n
	}
	inside := func(by, least, most int64) {
		if n := count(by); n < least || n > most {
			bad.Store(ptr(fmt.Sprintf("process %d: %d inside with %d, which should be %d to %d", process, n, by, least, most)))
		}
	}
	end := time.Now().Add(hammerTime)
	var done atomic.Int64
	loop := func(f func(rnd *rand.Rand)) func() {
		rnd := rand.New(rand.NewPCG(process, rand.Uint64()))
		return func() {
			for time.Now().Before(end) && bad.Load() == nil {
				f(rnd)
				done.Add(1)
			}
		}
	}
	var wg sync.WaitGroup
	switch primitive {
	case "RWMutex":
		rw := c.RWMutex("hammered")
		for range 4 {
			wg.Go(loop(func(*rand.Rand) {
				rw.RLock()
				inside(1, 1, 9999)
				count(-1)
				rw.RUnlock()
			}))
		}
		wg.Go(loop(func(rnd *rand.Rand) {
			ctx, err := rw.LockContext(context.Background())
			if err != nil {
				panic(err)
			}
			inside(10000, 10000, 10000)
			count(-10000)
			if rnd.IntN(4) == 0 {
				if _, err = rw.Downgrade(ctx); err != nil {
					panic(err)
				}
				inside(1, 1, 9999)
				count(-1)
				rw.RUnlock()
				return
			}
			rw.Unlock()
		}))
	case "Semaphore":
		s := c.Semaphore("hammered", hammerPermit)
		for range 5 {
			wg.Go(loop(func(rnd *rand.Rand) {
				n := 1 + rnd.Int64N(hammerPermit)
				if rnd.IntN(4) > 0 {
					n = 1 + rnd.Int64N(2)
				}
				if err := s.Acquire(context.Background(), n); err != nil {
					panic(err)
				}
				inside(n, n, hammerPermit)
				for n > 0 {
					k := 1 + rnd.Int64N(n)
					count(-k)
					s.Release(k)
					n -= k
				}
			}))
		}
	}
	wg.Wait()
	if why := bad.Load(); why != nil {
		return fmt.Errorf("%s", *why)
	}
	fmt.Println(done.Load())
	return nil
}

func hammered(t *testing.T, primitive string) {
	eachServer(t, notifying, func(t *testing.T, s *testserver.Server) {
		const processes = 4
		exe, err := os.Executable()
		require.NoError(t, err)
		var outs [processes]bytes.Buffer
		var running []*exec.Cmd
		for i := range processes {
			cmd := exec.CommandContext(t.Context(), exe)
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d", hammerEnv, primitive, s.Addr(), i))
			cmd.Stdout, cmd.Stderr = &outs[i], &outs[i]
			stdin, err := cmd.StdinPipe() // which the kernel closes when this process dies
			require.NoError(t, err)
			defer stdin.Close()
			require.NoError(t, cmd.Start())
			running = append(running, cmd)
		}
		for i, cmd := range running {
			require.NoError(t, cmd.Wait(), "process %d: %s", i, outs[i].Bytes())
		}
		for i := range running {
			lines := bytes.Fields(outs[i].Bytes())
			n, err := strconv.Atoi(string(lines[len(lines)-1]))
			require.NoError(t, err, "process %d: %s", i, outs[i].Bytes())
			require.Greater(t, n, 10, "process %d did little", i)
		}
		left, err := ptr(command(t, s, "GET", "activity")).AsInt64()
		require.NoError(t, err)
		require.Zero(t, left)
		nothingLeft(t, s, "hammered")
	})
}

// As HammerRWMutex of Go's own tests: one counter, a reader adds 1 to it, a writer 10000.
func TestHammerRWMutexOverProcesses(t *testing.T) { hammered(t, "RWMutex") }

// The weights inside never add up to more than the size.
func TestHammerSemaphoreOverProcesses(t *testing.T) { hammered(t, "Semaphore") }
