package valkeysync

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// What New says of a server that it cannot use.

// as is a valkey.Client of the user, who has the given rights besides all keys.
func as(t testing.TB, s *testserver.Server, user string, rights ...string) valkey.Client {
	t.Helper()
	grantRights(t, s, user, rights...)
	return s.Client(t, func(o *valkey.ClientOption) { o.Username, o.Password = user, "x" })
}

func grantRights(t testing.TB, s *testserver.Server, user string, rights ...string) {
	t.Helper()
	command(t, s, append([]string{"ACL", "SETUSER", user, "reset", "on", ">x", "~*"}, rights...)...)
}

// enough are the rights that suffice, and that README.md names.
var enough = []string{
	"resetchannels", "&valkeysync:*", "&__keyspace@*__:*",
	"-@all", "+hello", "+ping", "+subscribe", "+unsubscribe", "+publish", "+pubsub|numsub", "+eval", "+evalsha",
	"+time", "+exists", "+get", "+set", "+del", "+pttl", "+pexpire", "+zadd", "+zrem", "+zcard", "+zrange", "+zrank", "+zrangebyscore", "+zremrangebyscore", "+zscore",
}

func TestNewNamesTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		var cases []sub
		for _, missing := range []string{"&valkeysync:*", "+subscribe", "+publish", "+evalsha", "+time", "+get", "+set", "+del", "+zrank"} {
			cases = append(cases, sub{missing, func(t *testing.T) {
				var rights []string
				for _, r := range enough {
					if r != missing {
						rights = append(rights, r)
					}
				}
				user := "without" + strings.Trim(missing, "&*+:")
				c := as(t, s, user, rights...)
				start := time.Now()
				_, err := New(c, WithLogger(testLogger(t)))
				require.Error(t, err)
				require.Less(t, time.Since(start), startLimit, "it need not wait for what will not come")
				var reply *valkey.ValkeyError
				require.ErrorAs(t, err, &reply, "the server's own error: %v", err)
				require.Contains(t, err.Error(), "README.md, section ACL", "what to do")
				require.Equal(t, fatal, judge(err))
			}})
		}
		together(t, cases...)
		require.EqualValues(t, 0, subscribersLike(t, s, "*"), "a failed New leaves nothing behind")
	})
}

func TestNewNeedsFewRights(t *testing.T) {
	t.Parallel()
	onBoth(t, notifying, func(t *testing.T, s *testserver.Server) {
		c := newClient(t, as(t, s, "few", enough...))
		require.True(t, c.Stats().Notifications)
		m := c.Mutex("orders")
		held := lock(t, m)
		command(t, s, "DEL", "orders")
		unlockLost(t, m, held, CauseDeleted)
		command(t, s, "SET", "orders", "foreign", "PX", "60000")
		waits := take(context.Background(), m)
		watched(t, s, "orders", 1)
		require.NoError(t, c.ForceUnlock(context.Background(), "orders"))
		unlock(t, m, waits.got(t, soon))
		st, err := c.Status(context.Background(), "orders")
		require.NoError(t, err)
		require.Equal(t, StateFree, st.State)
		nothingLeft(t, s, "orders")
	})
}

// unlockLost unlocks what had been lost.
func unlockLost(t testing.TB, m *Mutex, held context.Context, cause Cause) {
	t.Helper()
	var lost *LostError
	var err error
	within(t, soon, "unlock", func() { err = m.UnlockContext(held) })
	require.ErrorAs(t, err, &lost)
	require.Equal(t, cause, lost.Cause)
}

// subscribersLike is how many channels like the pattern have subscribers.
func subscribersLike(t testing.TB, s *testserver.Server, pattern string) int {
	t.Helper()
	channels, err := ptr(command(t, s, "PUBSUB", "CHANNELS", pattern)).AsStrSlice()
	require.NoError(t, err)
	return len(channels)
}

func TestNewSaysThatNobodyAnswers(t *testing.T) {
	t.Parallel()
	together(t,
		sub{"nobody there", func(t *testing.T) {
			s := testserver.Start(t, testserver.Valkey)
			p := proxy.Start(t, s.Addr())
			c := newClient(t, s.Client(t, via(p)))
			p.Refuse(true)
			p.Cut()
			eventually(t, soon, "cut off", func() bool { return !c.hub.hears() })
			ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
			defer cancel()
			err := c.probe(ctx) // what New does, with less patience
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "did not answer within")
			require.ErrorContains(t, err, "subscribe to", "why")
		}},
		sub{"wrong password", func(t *testing.T) {
			s := testserver.Start(t, testserver.Valkey)
			c := as(t, s, "u", enough...)
			command(t, s, "ACL", "SETUSER", "u", "resetpass", ">other")
			_, err := New(c, WithLogger(testLogger(t)))
			var reply *valkey.ValkeyError
			require.ErrorAs(t, err, &reply)
			require.ErrorContains(t, err, "WRONGPASS")
		}},
		sub{"frozen, and back in time", func(t *testing.T) {
			s := testserver.Start(t, testserver.Valkey)
			c := s.Client(t)
			s.Freeze()
			time.AfterFunc(3*time.Second, s.Thaw)
			client, err := New(c, WithLogger(testLogger(t)))
			require.NoError(t, err)
			require.NoError(t, client.Close())
		}},
		sub{"there later", func(t *testing.T) {
			s := testserver.Start(t, testserver.Valkey)
			c := s.Client(t, func(o *valkey.ClientOption) { o.ForceSingleClient = true })
			s.Kill()
			time.AfterFunc(time.Second, s.Restart)
			client, err := New(c, WithLogger(testLogger(t)))
			require.NoError(t, err)
			require.NoError(t, client.Close())
		}},
		sub{"messages lost meanwhile", func(t *testing.T) {
			s := testserver.Start(t, testserver.Valkey, notifying...)
			check, err := ptr(command(t, s, "SCRIPT", "LOAD", protocol.Sources()["check"])).ToString()
			require.NoError(t, err)
			p := proxy.Start(t, s.Addr())
			late := p.On(check, proxy.Delay(200*time.Millisecond))
			go func() {
				<-late.Fired()
				p.Refuse(true)
				p.CutRole(proxy.Messages) // the echo finds nobody
				time.AfterFunc(500*time.Millisecond, func() { p.Refuse(false) })
			}()
			client, err := New(s.Client(t, via(p)), WithLogger(testLogger(t)))
			require.NoError(t, err)
			require.True(t, client.Stats().Notifications)
			require.NoError(t, client.Close())
		}},
		sub{"a replica", func(t *testing.T) {
			s := testserver.Start(t, testserver.Valkey)
			c := s.Client(t)
			command(t, s, "REPLICAOF", "127.0.0.1", "1")
			_, err := New(c, WithLogger(testLogger(t)))
			var reply *valkey.ValkeyError
			require.ErrorAs(t, err, &reply)
			require.ErrorContains(t, err, "READONLY")
		}},
	)
}
