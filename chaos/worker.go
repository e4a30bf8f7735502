package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

// jobEnv is where a worker process finds its job.
const jobEnv = "VALKEYSYNC_CHAOS_JOB"

// connLimit is how long valkey-go waits for an answer before it takes a connection for dead. Its default of
// 10 s would be most of what a world lasts.
const connLimit = 2 * time.Second

// Main is to be called first by every program that runs worlds: where the process was started as a worker
// it does that work and never returns.
func Main() {
	text, ok := os.LookupEnv(jobEnv)
	if !ok {
		return
	}
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		fmt.Fprintln(os.Stderr, "chaos: job:", err)
		os.Exit(2)
	}
	newWorker(j).run()
	os.Exit(0)
}

// worker is a process that takes locks and tells its parent of it.
type worker struct {
	job
	log   *slog.Logger
	out   sync.Mutex
	ids   atomic.Int64
	stop  chan struct{} // no new operations
	close chan struct{} // the end
	swap  chan struct{} // the Client is to be closed, and another made
	asker asker

	clients int // how many were made
	mu      sync.Mutex
	hands   map[string]*hands   // of the present Client
	tallies []*tally            // of every Client that there was
	answers map[int64]chan bool // of the store
}

// mutex is a Mutex or a QuorumMutex.
type mutex interface {
	sync.Locker
	TryLock() bool
	LockContext(ctx context.Context) (context.Context, error)
	TryLockContext(ctx context.Context) (context.Context, error)
	UnlockContext(ctx context.Context) error
	Do(ctx context.Context, fn func(ctx context.Context) error) error
}

// hands are the handles of one key that all goroutines of the process share.
type hands struct {
	Key
	client  *valkeysync.Client
	mutexes map[string]mutex // by owner; "": of none
	rw      *valkeysync.RWMutex
	sem     *valkeysync.Semaphore

	pools map[string]*pool // by owner, too
	*tally
}

// tally counts the leases that were lost, of one key and Client.
type tally struct {
	key  string
	lost atomic.Int64 // found lost by an unlock
	told atomic.Int64 // to OnLost
}

func newWorker(j job) *worker {
	return &worker{
		job: j, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), answers: map[int64]chan bool{},
		stop: make(chan struct{}), close: make(chan struct{}), swap: make(chan struct{}, 16),
	}
}

func (w *worker) run() {
	go w.listen()
	before := runtime.NumGoroutine()
	end := w.begin()
	w.tell(event{What: evReady, T: now(), Goroutines: before})

	var wg sync.WaitGroup
	for g := range w.Goroutines {
		rng := rand.New(rand.NewPCG(w.Seed, uint64(w.Slot)<<32|uint64(w.Life)<<16|uint64(g)))
		wg.Go(func() {
			for {
				select {
				case <-w.stop:
					return
				default:
					w.act(rng)
				}
			}
		})
	}
	working := make(chan struct{})
	go func() {
		wg.Wait()
		close(working)
	}()
	for over := false; !over; {
		select {
		case <-w.swap:
			end()
			end = w.begin()
		case <-working:
			over = true
		}
	}
	left := w.quiet()
	w.tell(event{What: evIdle, T: now(), Goroutines: left, Heap: heap()})

	<-w.close
	end()
	w.losses()
	w.tell(event{What: evClosed, T: now(), Goroutines: settled(before), Heap: heap()})
}

// begin makes the Client, or what the job wants in its place, and its handles. end closes it.
func (w *worker) begin() (end func()) {
	if len(w.Addrs) > 0 {
		return w.beginQuorum()
	}
	server, client, name := w.connect(w.Addr)
	w.take(client)
	return func() {
		if w.end(client) >= closeLimit {
			w.tell(event{What: evGaveUp, Name: name})
		}
		server.Close()
	}
}

// handsOf are the hands of a key, still without handles, and the options of these.
func (w *worker) handsOf(k Key) (*hands, []valkeysync.Option) {
	t := &tally{key: k.Name}
	w.tallies = append(w.tallies, t)
	h := &hands{Key: k, mutexes: map[string]mutex{}, pools: map[string]*pool{"": newPool()}, tally: t}
	return h, []valkeysync.Option{valkeysync.WithTracer(&w.asker), valkeysync.WithOnLost(func(string, error) { t.told.Add(1) })}
}

// take makes the handles of a new Client.
func (w *worker) take(client *valkeysync.Client) {
	all := map[string]*hands{}
	for _, k := range w.Keys {
		h, opts := w.handsOf(k)
		h.client = client
		switch k.Kind {
		case "mutex":
			h.mutexes[""] = client.Mutex(k.Name, opts...)
			for _, owner := range owners {
				h.mutexes[owner], h.pools[owner] = client.Mutex(k.Name, append(opts, valkeysync.WithOwner(owner))...), newPool()
			}
		case "rwmutex":
			h.rw = client.RWMutex(k.Name, opts...)
		case "semaphore":
			h.sem = client.Semaphore(k.Name, k.Size, opts...)
		}
		all[k.Name] = h
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hands = all
}

// losses are told: to OnLost at least as often as an unlock has found one. All operations have ended, and all Clients
// are closed.
func (w *worker) losses() {
	for _, t := range w.tallies {
		if lost, told := t.lost.Load(), t.told.Load(); told < lost {
			w.wrong(0, "%s: %d leases were lost, and OnLost told of %d", t.key, lost, told)
		}
	}
}

// closeLimit is for how long Close asks a server that does not answer.
const closeLimit = 5 * time.Second

// end closes a Client or a Quorum, and returns how long that took.
func (w *worker) end(client io.Closer) time.Duration {
	began := time.Now()
	if err := client.Close(); err != nil {
		w.wrong(0, "Close: %v", err)
	}
	took := time.Since(began)
	if took > closeLimit+10*time.Second { // for this process may have been stopped
		w.wrong(0, "Close took %v", took)
	}
	return took
}

// connect makes the Clients of one server. A worker may be born while nothing answers: it tries until something does.
func (w *worker) connect(addr string) (_ valkey.Client, _ *valkeysync.Client, name string) {
	w.clients++
	name = fmt.Sprintf("w%d.%d.%d", w.Slot, w.Life, w.clients)
	for {
		server, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{addr}, Username: user(w.Slot), Password: password, ForceSingleClient: true, DisableCache: true,
			ConnWriteTimeout: connLimit,
		})
		if err == nil {
			var client *valkeysync.Client
			client, err = valkeysync.New(server, valkeysync.WithLogger(w.log), valkeysync.WithName(name),
				valkeysync.WithLease(w.Lease), valkeysync.WithCrashDetection(w.Grace), valkeysync.WithLinger(w.Linger))
			if err == nil {
				return server, client, name
			}
			server.Close()
		}
		w.log.Warn("connect", "error", err)
		select {
		case <-w.close:
			os.Exit(0)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// quiet waits until nothing of the library goes on any more but the one goroutine that listens, and
// returns how many more there are where that does not come about.
func (w *worker) quiet() int {
	var n int
	for range 100 {
		if n = ours(); n <= 1 {
			return 0
		}
		time.Sleep(100 * time.Millisecond)
	}
	return n - 1
}

// ours counts the goroutines that the library has started.
func ours() int {
	var b bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
		panic(err)
	}
	n := 0
	for stack := range strings.SplitSeq(b.String(), "\n\n") {
		if strings.Contains(stack, "created by github.com/valkeysync/valkeysync.") {
			n++
		}
	}
	return n
}

// settled waits until there are no more goroutines than before, and returns how many there are too many.
func settled(before int) int {
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	return runtime.NumGoroutine() - before
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// listen takes the parent's orders. A worker whose parent has gone ends.
func (w *worker) listen() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			panic(err)
		}
		switch o.Do {
		case "stop":
			close(w.stop)
		case "close":
			close(w.close)
		case "swap":
			select {
			case w.swap <- struct{}{}:
			default: // there are enough to do
			}
		default:
			w.mu.Lock()
			answer := w.answers[o.ID]
			delete(w.answers, o.ID)
			w.mu.Unlock()
			answer <- o.OK
		}
	}
	os.Exit(1)
}

func (w *worker) tell(e event) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	w.out.Lock()
	defer w.out.Unlock()
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		os.Exit(1) // the parent has gone
	}
}

func (w *worker) wrong(id int64, format string, args ...any) {
	w.tell(event{What: evWrong, ID: id, T: now(), Err: fmt.Sprintf(format, args...)})
}

// write asks the store to take a write with the token.
func (w *worker) write(id, token int64) bool {
	answer := make(chan bool, 1)
	w.mu.Lock()
	w.answers[id] = answer
	w.mu.Unlock()
	w.tell(event{What: evWrite, ID: id, T: now(), Token: token})
	return <-answer
}
