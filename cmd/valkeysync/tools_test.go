package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestStatusShowsHolderAndQueue(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		r := start(t, on(s, "status", "k")...)
		require.Equal(t, 0, r.status(), &r.stderr)
		require.Equal(t, "key      k\nstate    free\n", r.stdout.String())

		_, err := client(t, s).Mutex("k").LockContext(context.Background())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		other := client(t, s)
		waits := make(chan struct{})
		go func() {
			defer close(waits)
			_, _ = other.Mutex("k").LockContext(ctx)
		}()
		waiting(t, s, "k", 1)
		r = start(t, on(s, "status", "k")...)
		require.Equal(t, 0, r.status(), &r.stderr)
		require.Regexp(t, `(?m)^state    held\nholder   the test, for .*, lease ends in .*s, token [0-9]+\nwaiting   1\. the test, already .*s$`, r.stdout.String())

		r = start(t, on(s, "status", "-json", "k")...)
		require.Equal(t, 0, r.status(), &r.stderr)
		var st struct {
			State   string
			Waiting int
			Holders []struct {
				Name      string
				Token     int64
				Remaining *int64 `json:"remaining_ms"`
			}
			Queue []struct{ Name string }
		}
		require.NoError(t, json.Unmarshal([]byte(r.stdout.String()), &st))
		require.Equal(t, "held", st.State)
		require.Equal(t, 1, st.Waiting)
		require.Equal(t, "the test", st.Holders[0].Name)
		require.Positive(t, st.Holders[0].Token)
		require.Positive(t, *st.Holders[0].Remaining)
		require.Equal(t, "the test", st.Queue[0].Name)
		cancel()
		<-waits
	})
}

func TestStatusNamesOtherProgramsAndAdvises(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	_, err := s.Do("SET", "k", "whoever")
	require.NoError(t, err)
	r := start(t, on(s, "status", "k")...)
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "held by another program, without an expiry\nholder   whoever, no expiry\n")
	require.Contains(t, r.stdout.String(), "valkeysync unlock -force k")

	_, err = s.Do("PEXPIRE", "k", "60000")
	require.NoError(t, err)
	r = start(t, on(s, "status", "-json", "k")...)
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), `"state":"foreign"`)

	r = start(t, on(s, "unlock", "-force", "-yes", "k")...)
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "Taken. It is free.")
	r = start(t, on(s, "unlock", "-force", "-yes", "k")...)
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "k is free")
}

func TestWatchTellsEveryChangeInALine(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"Kgxe", ""} {
		t.Run("notifications="+flags, func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, testserver.Valkey, "--notify-keyspace-events", flags)
			c := client(t, s)
			r := start(t, on(s, "watch", "k")...)
			r.until(` free$`)
			mu := c.Mutex("k")
			held, err := mu.LockContext(context.Background())
			require.NoError(t, err)
			r.until(` held: the test \(token [0-9]+\)$`)
			require.NoError(t, mu.UnlockContext(held))
			r.until(` held: .*\n.* free$`)
			require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
			require.Equal(t, 0, r.status(), &r.stderr)
			require.NotContains(t, r.stdout.String(), "\x1b")
			require.Equal(t, flags == "", strings.Contains(r.stderr.String(), "looking every 1s"))
		})
	}
}

func TestWatchLooksWhereItMayNotHear(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, "--notify-keyspace-events", "Kgxe")
	_, err := s.Do("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels", "&valkeysync:*", "&__keyspace@0__:valkeysync:probe:*")
	require.NoError(t, err)
	r := start(t, "watch", "-url", "valkey://deaf:secret@"+s.Addr(), "k")
	r.until(` free$`)
	_, err = client(t, s).Mutex("k").LockContext(context.Background())
	require.NoError(t, err)
	r.until(` held: the test \(token [0-9]+\)$`)
	require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Contains(t, r.stderr.String(), "may not hear the key's notifications: looking every 1s")
}

func TestWatchGoesOnWhenTheServerIsBack(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Redis, "--notify-keyspace-events", "Kgxe")
	r := start(t, on(s, "watch", "k")...)
	r.until(` free$`)
	s.Kill()
	s.Restart()
	mu := client(t, s).Mutex("k")
	held, err := mu.LockContext(context.Background())
	require.NoError(t, err)
	r.until(` held: the test \(token [0-9]+\)$`)
	require.NoError(t, mu.UnlockContext(held))
	require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 0, r.status(), &r.stderr)
}

func TestLsListsTheLocksOfAPrefix(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := testserver.Start(t, testserver.Redis)
	c := client(t, s)
	for _, key := range []string{"a:1", "a:{2}:x", "b:1", "a*"} {
		_, err := c.Mutex(key).LockContext(ctx)
		require.NoError(t, err)
	}
	_, err := c.RWMutex("a:rw").RLockContext(ctx)
	require.NoError(t, err)
	free := c.Mutex("a:free")
	held, err := free.LockContext(ctx)
	require.NoError(t, err)
	require.NoError(t, free.UnlockContext(held))
	for _, other := range [][]string{{"SET", "a:text", "x"}, {"LPUSH", "a:list", "x"}, {"SET", "{a:9}:queue", "theirs"}, {"SET", "{a:8}:fence", "theirs"}, {"SET", "a:8", "theirs"}} {
		_, err := s.Do(other...)
		require.NoError(t, err)
	}
	list := func(args ...string) (keys, stderr string) {
		t.Helper()
		r := start(t, on(s, "ls", args...)...)
		require.Equal(t, 0, r.status(), &r.stderr)
		for line := range strings.Lines(r.stdout.String()) {
			keys += strings.Fields(line)[0] + " "
		}
		return strings.TrimPrefix(keys, "KEY "), r.stderr.String()
	}
	keys, stderr := list("a:")
	require.Equal(t, "a:1 a:rw a:{2}:x ", keys)
	require.Empty(t, stderr)
	keys, _ = list("-all", "a:")
	require.Equal(t, "a:1 a:free a:rw a:{2}:x ", keys)
	keys, _ = list("a*")
	require.Equal(t, "a* ", keys, "what is special in a pattern is not so in a prefix")
	keys, _ = list("-prefix", "a:", "r")
	require.Equal(t, "a:rw ", keys)
	_, stderr = list("-limit", "2")
	require.Contains(t, stderr, "the first 2")
	keys, stderr = list("nothing")
	require.Empty(t, keys)
	require.Contains(t, stderr, "no locks")
	r := start(t, on(s, "ls", "-json", "b")...)
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), `{"key":"b:1","state":"held"`)
}

func TestDoctorFindsNothingWrong(t *testing.T) {
	t.Parallel()
	testserver.Each(t, []string{"--notify-keyspace-events", "Kgxe"}, func(t *testing.T, s *testserver.Server) {
		r := start(t, on(s, "doctor")...)
		require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
		require.Empty(t, r.stderr.String())
		require.Regexp(t, `(?m)^ok +server +`+string(s.Flavor())+` [0-9.]+, standalone, master$`, r.stdout.String())
		require.Contains(t, r.stdout.String(), "and all is well")
		require.NotRegexp(t, `(?m)^(warn|FAIL|\?)`, r.stdout.String())
		require.Zero(t, keys(t, s), "it leaves nothing behind")
	})
}

func TestDoctorFindsWhatIsWrong(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	do := func(args ...string) {
		t.Helper()
		_, err := s.Do(args...)
		require.NoError(t, err)
	}
	do("CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	do("ACL", "SETUSER", "mute", "on", ">secret", "~*", "&*", "+@all", "-publish", "-config")
	do("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "resetchannels", "+@all")
	do("ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-pubsub")
	replica := testserver.Start(t, testserver.Valkey, "--replicaof", "127.0.0.1", s.Addr()[strings.LastIndex(s.Addr(), ":")+1:])
	for name, c := range map[string]struct {
		url    string
		status int
		want   string
	}{
		"eviction":       {"valkey://" + s.Addr(), 0, `(?m)^warn +eviction +allkeys-lru, beyond 104857600 bytes$`},
		"notifications":  {"valkey://" + s.Addr(), 0, `(?m)^warn +notifications +do not arrive; notify-keyspace-events is ""\n.*timers\.\n.*CONFIG SET`},
		"no right":       {"valkey://mute:secret@" + s.Addr(), 1, `(?m)^FAIL +publish +.*no permissions.*\n +→ give this user the right: .*\+publish`},
		"no channel":     {"valkey://deaf:secret@" + s.Addr(), 1, `(?m)^FAIL +subscribe +.*\n +→ give this user the right: .*\+subscribe`},
		"no count":       {"valkey://blind:secret@" + s.Addr(), 0, `(?m)^warn +count +.*\n +→ who died cannot be told`},
		"wrong password": {"valkey://mute:wrong@" + s.Addr(), 1, `(?m)^FAIL +connect +.*WRONGPASS.*\n +→ the user or the password`},
		"replica":        {"valkey://" + replica.Addr(), 1, `(?m)^FAIL +server +valkey [0-9.]+, standalone, replica\n +→ this is a replica`},
		"nobody there":   {"valkey://127.0.0.1:1", 1, `(?m)^FAIL +connect +.*refused\n +→ nothing listens`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, "doctor", "-url", c.url)
			require.Equal(t, c.status, r.status(), "%s%s", &r.stdout, &r.stderr)
			require.Regexp(t, c.want, r.stdout.String())
			require.NotContains(t, r.stdout.String()+r.stderr.String(), "secret")
		})
	}
}

// TestTheRightsInTheReadmeAreEnough for doctor, and for run.
func TestTheRightsInTheReadmeAreEnough(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^ACL SETUSER app on .*$`).Find(readme)
	require.NotNil(t, line)
	testserver.Each(t, []string{"--notify-keyspace-events", "Kgxe"}, func(t *testing.T, s *testserver.Server) {
		_, err := s.Do(strings.Fields(string(line))...)
		require.NoError(t, err)
		url := string(s.Flavor()) + "://app:secret@" + s.Addr()
		r := start(t, "doctor", "-url", url, "-prefix", "app:")
		require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
		require.Contains(t, r.stdout.String(), "all is well")
		require.Regexp(t, `(?m)^\? +eviction `, r.stdout.String())
		require.Zero(t, keys(t, s))
		r = start(t, "run", "-url", url, "-prefix", "app:", "k", "--", "echo", "held")
		require.Equal(t, 0, r.status(), &r.stderr)
		r = start(t, "ls", "-url", url, "-prefix", "app:")
		require.Equal(t, 2, r.status(), &r.stdout)
		require.Contains(t, r.stderr.String(), "ls needs +scan +getrange")
		_, err = s.Do("ACL", "SETUSER", "app", "+scan", "+getrange") // docs/operations.md
		require.NoError(t, err)
		r = start(t, "ls", "-url", url, "-prefix", "app:", "-all")
		require.Equal(t, 0, r.status(), &r.stderr)
		require.Regexp(t, `(?m)^app:k +free`, r.stdout.String())
		r = start(t, "doctor", "-url", url)
		require.Equal(t, 1, r.status(), "%s%s", &r.stdout, &r.stderr)
		require.Regexp(t, `(?m)^FAIL +write +.*\n +→ this user may not use keys of that name: say -prefix P`, r.stdout.String())
	})
}

func TestDoctorAndRunInACluster(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.Valkey, 3, 0, "--notify-keyspace-events", "Kgxe")
	s := c.Nodes()[0]
	r := start(t, on(s, "doctor")...)
	require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
	require.Contains(t, r.stdout.String(), "between 3 nodes")
	for i := range 3 {
		key := fmt.Sprint("k", i)
		h, end := holding(t, s, key)
		h.until("^ready")
		l := start(t, on(s, "ls", "k")...)
		require.Equal(t, 0, l.status(), &l.stderr)
		require.Contains(t, l.stdout.String(), key+"   held")
		end()
		require.Equal(t, 0, h.status(), &h.stderr)
	}
}

func TestBenchMeasuresAndLeavesNothing(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		began := time.Now()
		r := start(t, on(s, "bench", "-duration", "200ms")...)
		require.Equal(t, 0, r.status(), "%s%s", &r.stdout, &r.stderr)
		require.Empty(t, r.stderr.String())
		for _, row := range []string{`round trip`, `lock and unlock, alone`, `hand-over to another`} {
			require.Regexp(t, regexp.MustCompile(`(?m)^`+row+`.* [0-9.]+(µ|m)?s +[0-9.]+(µ|m)?s +[1-9][0-9]* `), r.stdout.String())
		}
		require.Zero(t, keys(t, s))
		require.Less(t, time.Since(began), 30*time.Second)
	})
}
