package testserver_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func do(t *testing.T, s *testserver.Server, args ...string) string {
	t.Helper()
	m, err := s.Do(args...)
	require.NoError(t, err)
	text, err := m.ToString()
	require.NoError(t, err)
	return text
}

func TestEachStartsEveryFlavor(t *testing.T) {
	var seen []testserver.Flavor
	testserver.Each(t, []string{"--notify-keyspace-events", "Kgxe"}, func(t *testing.T, s *testserver.Server) {
		seen = append(seen, s.Flavor())
		require.True(t, strings.HasSuffix(t.Name(), "/"+string(s.Flavor())), t.Name())

		info := do(t, s, "INFO", "server")
		require.Equal(t, s.Flavor() == testserver.Valkey, strings.Contains(info, "valkey_version"), info)

		m, err := s.Do("CONFIG", "GET", "notify-keyspace-events")
		require.NoError(t, err)
		config, err := m.AsStrMap()
		require.NoError(t, err)
		require.ElementsMatch(t, []rune("Kgxe"), []rune(config["notify-keyspace-events"]))
	})
	require.Equal(t, testserver.Flavors(), seen)
}

func TestServersAreApart(t *testing.T) {
	a, b := testserver.Start(t, testserver.Valkey), testserver.Start(t, testserver.Valkey)
	require.NotEqual(t, a.Addr(), b.Addr())
	require.NotEqual(t, a.Dir(), b.Dir())
	do(t, a, "SET", "k", "a")
	_, err := b.Do("GET", "k")
	require.True(t, valkey.IsValkeyNil(err), "%v", err)
}

func TestKillAndRestart(t *testing.T) {
	for name, c := range map[string]struct {
		args     []string
		survives bool
	}{
		"empty by default":    {nil, false},
		"args can persist":    {[]string{"--appendonly", "yes", "--appendfsync", "always"}, true},
		"or in one argument":  {[]string{"--appendonly yes", "--appendfsync always"}, true},
		"later args override": {[]string{"--appendonly", "yes", "--appendonly", "no"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			testserver.Each(t, c.args, func(t *testing.T, s *testserver.Server) {
				addr, first := s.Addr(), s.Pid()
				do(t, s, "SET", "k", "v")

				s.Kill()
				s.Kill() // twice is fine
				require.Zero(t, s.Pid())
				require.ErrorIs(t, syscall.Kill(first, 0), syscall.ESRCH)
				_, err := net.Dial("tcp", addr)
				require.ErrorIs(t, err, syscall.ECONNREFUSED)
				_, err = s.Do("PING")
				require.ErrorContains(t, err, "not running")

				s.Restart()
				require.Equal(t, addr, s.Addr())
				require.NotEqual(t, first, s.Pid())
				_, err = s.Do("GET", "k")
				require.Equal(t, !c.survives, valkey.IsValkeyNil(err), "%v", err)
			})
		})
	}
}

func TestRestartOfARunningServer(t *testing.T) {
	s := testserver.Start(t, testserver.Valkey)
	do(t, s, "SET", "k", "v")
	first := s.Pid()
	s.Restart()
	require.NotEqual(t, first, s.Pid())
	require.Equal(t, "PONG", do(t, s, "PING"))
}

func TestFreezeStopsAnswersButNotConnections(t *testing.T) {
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		c := s.Client(t)
		ping := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			return c.Do(ctx, c.B().Ping().Build()).Error()
		}
		require.NoError(t, ping())

		s.Freeze()
		s.Freeze() // twice is fine
		require.ErrorIs(t, ping(), context.DeadlineExceeded)
		conn, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err, "the kernel accepts for it")
		require.NoError(t, conn.Close())

		s.Thaw()
		s.Thaw()
		require.Eventually(t, func() bool { return ping() == nil }, 5*time.Second, time.Millisecond)
	})
}

func TestFrozenServerCanBeKilledAndEnded(t *testing.T) {
	s := testserver.Start(t, testserver.Valkey)
	s.Freeze()
	s.Restart()
	require.Equal(t, "PONG", do(t, s, "PING"), "no longer frozen")

	var start time.Time
	t.Run("found frozen by the clean-ups", func(t *testing.T) {
		s := testserver.Start(t, testserver.Valkey)
		c := s.Client(t)
		require.NoError(t, c.Do(t.Context(), c.B().Ping().Build()).Error())
		s.Freeze()
		start = time.Now()
	})
	// valkey-go gives up on a silent server after a second: nobody had to.
	require.Less(t, time.Since(start), time.Second)
}

func TestDoReturnsTheServersErrors(t *testing.T) {
	s := testserver.Start(t, testserver.Valkey)
	_, err := s.Do("NOSUCHCOMMAND")
	var answered *valkey.ValkeyError
	require.ErrorAs(t, err, &answered)
	_, err = s.Do()
	require.Error(t, err)
}

func TestCallsCountsWhatTestsSend(t *testing.T) {
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		require.Empty(t, s.Calls(testserver.AdminCommands()...), "start-up leaves nothing behind")

		c := s.Client(t)
		for range 3 {
			require.NoError(t, c.Do(t.Context(), c.B().Set().Key("k").Value("v").Build()).Error())
		}
		require.NoError(t, c.Do(t.Context(), c.B().PubsubNumsub().Channel("c").Build()).Error())
		require.NoError(t, c.Do(t.Context(), c.B().Eval().Script("return redis.call('GET', KEYS[1])").Numkeys(1).Key("k").Build()).Error())
		require.Equal(t, map[string]int64{"set": 3, "pubsub|numsub": 1, "eval": 1, "get": 1},
			s.Calls(testserver.AdminCommands()...))
		require.Equal(t, map[string]int64{"set": 3, "eval": 1},
			s.Calls(append(testserver.AdminCommands(), "pubsub", "get")...), "a container leaves out its subcommands")
		require.Contains(t, s.Calls(), "info")

		s.ResetStats()
		require.Empty(t, s.Calls(testserver.AdminCommands()...))
	})
}

func TestLaunchIsForProgramsWithoutATest(t *testing.T) {
	dir := t.TempDir()
	s, err := testserver.Launch(testserver.Redis, dir)
	require.NoError(t, err)
	pid := s.Pid()
	require.Equal(t, dir, s.Dir())
	require.Contains(t, s.Log(), "Ready to accept connections")
	s.Close()
	s.Close()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestLaunchSaysWhatIsWrong(t *testing.T) {
	t.Run("not installed", func(t *testing.T) {
		t.Setenv("VALKEYSYNC_VALKEY_SERVER", "no-such-server")
		_, err := testserver.Launch(testserver.Valkey, t.TempDir())
		require.ErrorContains(t, err, "make servers")
		require.ErrorContains(t, err, "VALKEYSYNC_VALKEY_SERVER")
	})
	t.Run("a bad option", func(t *testing.T) {
		start := time.Now()
		_, err := testserver.Launch(testserver.Valkey, t.TempDir(), "--no-such-option", "1")
		require.ErrorContains(t, err, "ended by itself")
		require.ErrorContains(t, err, "no-such-option", "the log is shown")
		require.Less(t, time.Since(start), 5*time.Second, "without waiting for the limit")
	})
	t.Run("a flavor that is none", func(t *testing.T) {
		_, err := testserver.Launch("memcached", t.TempDir())
		require.ErrorContains(t, err, "memcached")
	})
	t.Run("another binary by environment", func(t *testing.T) {
		path, err := testserver.Valkey.Binary()
		require.NoError(t, err)
		t.Setenv("VALKEYSYNC_REDIS_SERVER", path)
		s := testserver.Start(t, testserver.Redis)
		require.Contains(t, do(t, s, "INFO", "server"), "valkey_version")
	})
}

func TestManyStartsAtOnce(t *testing.T) {
	const n = 8
	servers := make(chan *testserver.Server, n)
	failed := make(chan error, n)
	for range n {
		dir := t.TempDir()
		go func() {
			s, err := testserver.Launch(testserver.Valkey, dir)
			if err != nil {
				failed <- err
				return
			}
			servers <- s
		}()
	}
	addrs := make(map[string]bool)
	var errs []error
	for range n {
		select {
		case s := <-servers:
			defer s.Close()
			addrs[s.Addr()] = true
		case err := <-failed:
			errs = append(errs, err)
		}
	}
	require.NoError(t, errors.Join(errs...))
	require.Len(t, addrs, n)
}

func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		s, err := testserver.Launch(testserver.Valkey, b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
