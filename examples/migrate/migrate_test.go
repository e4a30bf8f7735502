package migrate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"
	"golang.org/x/sync/errgroup"

	"github.com/bsm/redislock"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	spaces   = regexp.MustCompile(`\s+`)
)

// Every piece of code in a table about a library, in docs/migrating.md, stands in a function of this package.
func TestTheTablesCompile(t *testing.T) {
	document, err := os.ReadFile("../../docs/migrating.md")
	require.NoError(t, err)
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			source.Write(b)
		}
	}
	code := spaces.ReplaceAllString(source.String(), " ")
	_, tables, found := strings.Cut(string(document), "\n## ") // before it is what is the same for all, in words
	require.True(t, found)
	var checked int
	for line := range strings.Lines(tables) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
			checked++
			if !strings.Contains(code, span[1]) {
				t.Errorf("docs/migrating.md: no function here has `%s`", span[1])
			}
		}
	}
	require.Greater(t, checked, 50)
}

// place is one server, as each library likes to be given it.
type place struct {
	goredis *redis.Client
	option  valkey.ClientOption
	valkey  valkey.Client
	locks   *valkeysync.Client
}

func newPlace(t *testing.T, f testserver.Flavor) place {
	t.Helper()
	s := testserver.Start(t, f, "--notify-keyspace-events", "Kgxe")
	p := place{
		goredis: redis.NewClient(&redis.Options{Addr: s.Addr()}),
		option:  valkey.ClientOption{InitAddress: []string{s.Addr()}},
		valkey:  s.Client(t),
	}
	t.Cleanup(func() { require.NoError(t, p.goredis.Close()) })
	var err error
	p.locks, err = valkeysync.New(p.valkey)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.locks.Close()) })
	return p
}

// halves are the two halves of a fleet: before and after.
func halves(p place) map[string][2]func(context.Context, job) error {
	before := func(f func(context.Context, *redis.Client, job) error) func(context.Context, job) error {
		return func(ctx context.Context, work job) error { return f(ctx, p.goredis, work) }
	}
	after := func(f func(context.Context, *valkeysync.Client, job) error) func(context.Context, job) error {
		return func(ctx context.Context, work job) error { return f(ctx, p.locks, work) }
	}
	return map[string][2]func(context.Context, job) error{
		"redsync":   {before(redsyncBefore), after(redsyncAfter)},
		"redislock": {before(redislockBefore), after(redislockAfter)},
		"valkeylock": {
			func(ctx context.Context, work job) error { return valkeylockBefore(ctx, p.option, work) },
			func(ctx context.Context, work job) error { return valkeylockAfter(ctx, p.valkey, work) },
		},
	}
}

// A fleet in which some processes are changed and some are not counts under one lock, and nothing is lost.
func TestAHalfChangedFleetSharesTheLock(t *testing.T) {
	for _, flavor := range testserver.Flavors() {
		p := newPlace(t, flavor)
		for name, half := range halves(p) {
			t.Run(name+" on "+string(flavor), func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var counter, calls, inside atomic.Int64
				group, ctx := errgroup.WithContext(ctx)
				for _, through := range half {
					for range 3 {
						group.Go(func() error {
							for range 3 {
								err := through(ctx, func(context.Context) error {
									if inside.Add(1) != 1 {
										t.Error("two at the same time")
									}
									defer inside.Add(-1)
									n := counter.Load()
									time.Sleep(time.Millisecond) // another would read the same now
									counter.Store(n + 1)
									calls.Add(1)
									return nil
								})
								if err != nil {
									return err
								}
							}
							return nil
						})
					}
				}
				require.NoError(t, group.Wait())
				require.Equal(t, calls.Load(), counter.Load())
				require.GreaterOrEqual(t, calls.Load(), int64(2*3*3))
			})
		}
	}
}

// Who only tries is refused by the other half, with the error that the table names.
func TestTriesAreRefusedByTheOtherHalf(t *testing.T) {
	p := newPlace(t, testserver.Valkey)
	ctx := t.Context()
	rs := redsync.New(goredis.NewPool(p.goredis))
	locker, err := valkeylock.NewLocker(valkeylock.LockerOption{ClientOption: p.option, KeyMajority: 1, NoLoopTracking: true})
	require.NoError(t, err)
	defer locker.Close()
	orders, theirs := p.locks.Mutex("orders"), p.locks.Mutex("valkeylock:0:orders")

	require.NoError(t, orders.Do(ctx, func(context.Context) error {
		busy, err := redsyncTryBefore(ctx, rs.NewMutex("orders"))
		require.True(t, busy, "%v", err)
		busy, err = redislockTryBefore(ctx, redislock.New(p.goredis))
		require.True(t, busy, "%v", err)
		return nil
	}))
	require.NoError(t, theirs.Do(ctx, func(context.Context) error {
		busy, err := valkeylockTryBefore(ctx, locker)
		require.True(t, busy, "%v", err)
		return nil
	}))
	require.NoError(t, redislockBefore(ctx, p.goredis, func(context.Context) error {
		_, busy, err := redsyncTryAfter(ctx, orders)
		require.True(t, busy, "%v", err)
		busy, err = redislockTryAfter(ctx, orders)
		require.True(t, busy, "%v", err)
		_, busy, err = etcdTryAfter(ctx, orders)
		require.True(t, busy, "%v", err)
		return nil
	}))
	require.NoError(t, valkeylockBefore(ctx, p.option, func(context.Context) error {
		busy, err := valkeylockTryAfter(ctx, theirs)
		require.True(t, busy, "%v", err)
		return nil
	}))
}

// Whoever has the lock is told when it is taken by force, by either.
func TestForceTellsTheHolder(t *testing.T) {
	p := newPlace(t, testserver.Valkey)
	locker, err := valkeylock.NewLocker(valkeylock.LockerOption{ClientOption: p.option, KeyMajority: 1, NoLoopTracking: true})
	require.NoError(t, err)
	defer locker.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	err = valkeylockAfter(ctx, p.valkey, func(held context.Context) error {
		return valkeylockForceBefore(ctx, locker, func(context.Context) error {
			<-held.Done()
			return nil
		})
	})
	require.ErrorIs(t, err, valkeysync.ErrLeaseLost)
	require.NoError(t, valkeylockBefore(ctx, p.option, func(held context.Context) error {
		return valkeylockForceAfter(ctx, p.locks, func(context.Context) error {
			<-held.Done()
			return nil
		})
	}))
}

func TestTheRestDoesWhatItSays(t *testing.T) {
	p := newPlace(t, testserver.Valkey)
	ctx := t.Context()
	did := errors.New("it was done")
	work := func(context.Context) error { return did }
	require.ErrorIs(t, syncBefore(ctx, work), did)
	require.ErrorIs(t, syncAfter(ctx, p.locks, func(string, error) {}, work), did)
	require.ErrorIs(t, syncBetter(ctx, p.locks, work), did)
	_, _ = etcdBefore, etcdTryBefore // they need an etcd: bench/ runs the like

	var tokens []int64
	for range 2 {
		require.NoError(t, etcdAfter(ctx, p.valkey, func(_ context.Context, token int64) error {
			tokens = append(tokens, token)
			return nil
		}))
	}
	require.Less(t, tokens[0], tokens[1])

	held, err := p.locks.Mutex("orders").LockContext(ctx)
	require.NoError(t, err)
	require.WithinRange(t, until(held), time.Now(), time.Now().Add(10*time.Second))
}

// redsync and a Quorum exclude each other on a majority of three servers.
func TestSeveralServers(t *testing.T) {
	var theirs []*redis.Client
	var ours []*valkeysync.Client
	for range 3 {
		p := newPlace(t, testserver.Valkey)
		theirs, ours = append(theirs, p.goredis), append(ours, p.locks)
	}
	before := redsyncSeveralBefore(theirs)
	after, end, err := redsyncSeveralAfter(ours)
	require.NoError(t, err)
	defer func() { require.NoError(t, end()) }()

	require.NoError(t, before.LockContext(t.Context()))
	_, err = after.TryLockContext(t.Context())
	require.ErrorIs(t, err, valkeysync.ErrLocked)
	_, err = before.UnlockContext(t.Context())
	require.NoError(t, err)

	held, err := after.LockContext(t.Context())
	require.NoError(t, err)
	busy, err := redsyncTryBefore(t.Context(), before)
	require.True(t, busy, "%v", err)
	require.NoError(t, after.UnlockContext(held))
}
