package interop

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"github.com/valkey-io/valkey-go/valkeylock"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// outsider is another program that locks: another library, or a shell script.
type outsider struct {
	name string
	// join makes a try at the key, for that long; it returns the unlock, or nil if the key is taken. The unlock
	// reports whether the lock was still its own.
	join func(t *testing.T, s *testserver.Server) func(key string, ttl time.Duration) (unlock func() bool)
}

var outsiders = []outsider{
	{"redsync", func(t *testing.T, s *testserver.Server) func(string, time.Duration) func() bool {
		rs := redsync.New(goredis.NewPool(goRedis(t, s)))
		return func(key string, ttl time.Duration) func() bool {
			m := rs.NewMutex(key, redsync.WithExpiry(ttl))
			err := m.TryLockContext(t.Context())
			var taken *redsync.ErrTaken
			if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
				return nil
			}
			require.NoError(t, err)
			return func() bool {
				ok, _ := m.UnlockContext(context.Background())
				return ok
			}
		}
	}},
	{"redislock", func(t *testing.T, s *testserver.Server) func(string, time.Duration) func() bool {
		locks := redislock.New(goRedis(t, s))
		return func(key string, ttl time.Duration) func() bool {
			l, err := locks.Obtain(t.Context(), key, ttl, nil)
			if errors.Is(err, redislock.ErrNotObtained) {
				return nil
			}
			require.NoError(t, err)
			return func() bool { return l.Release(context.Background()) == nil }
		}
	}},
	{"a shell script", func(t *testing.T, s *testserver.Server) func(string, time.Duration) func() bool {
		_, port, _ := strings.Cut(s.Addr(), ":")
		cli := func(args ...string) string {
			out, err := exec.Command(string(s.Flavor())+"-cli", append([]string{"-p", port}, args...)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			return strings.TrimSpace(string(out))
		}
		var n atomic.Int64
		return func(key string, ttl time.Duration) func() bool {
			value := fmt.Sprintf("script %d", n.Add(1))
			if cli("SET", key, value, "NX", "PX", strconv.FormatInt(ttl.Milliseconds(), 10)) != "OK" {
				return nil
			}
			return func() bool {
				return cli("EVAL", "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0", "1", key, value) == "1"
			}
		}
	}},
	{"valkeylock", func(t *testing.T, s *testserver.Server) func(string, time.Duration) func() bool {
		return func(key string, ttl time.Duration) func() bool {
			l, err := valkeylock.NewLocker(valkeylock.LockerOption{
				KeyPrefix: "outside", KeyMajority: 1, KeyValidity: ttl, NoLoopTracking: true,
				ClientOption: valkey.ClientOption{InitAddress: []string{s.Addr()}},
			})
			require.NoError(t, err)
			_, cancel, err := l.TryWithContext(context.Background(), strings.TrimPrefix(key, "outside:0:"))
			if errors.Is(err, valkeylock.ErrNotLocked) {
				l.Close()
				return nil
			}
			require.NoError(t, err)
			return func() bool {
				cancel()
				l.Close()
				return true
			}
		}
	}},
}

func goRedis(t *testing.T, s *testserver.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = c.Close() }) // nothing is lost with a connection
	return c
}

// keyOf is the key under which that outsider locks what it calls orders: valkeylock gives it a prefix and a
// number.
func (o outsider) keyOf(key string) string {
	if o.name == "valkeylock" {
		return "outside:0:" + key
	}
	return key
}
