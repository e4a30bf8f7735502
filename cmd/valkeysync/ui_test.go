package main

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// page waits until the page is served, and returns its address.
func (r *running) page() string {
	r.t.Helper()
	r.until(`^The page is at http://`)
	return regexp.MustCompile(`http://[^ ]+/`).FindString(r.stdout.String())
}

// stream opens the page's stream and reads it until what is there matches.
func stream(t *testing.T, url, pattern string) {
	t.Helper()
	res, err := http.Get(url + "events")
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewReader(res.Body)
	for re := regexp.MustCompile(pattern); ; {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		if re.MatchString(line) {
			return
		}
	}
}

func TestUIServesThePageUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	testserver.Each(t, []string{"--notify-keyspace-events", "Kgxe"}, func(t *testing.T, s *testserver.Server) {
		_, err := s.Do("ACL", "SETUSER", "me", "on", ">hidden", "allkeys", "allchannels", "+@all")
		require.NoError(t, err)
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
			r := start(t, "ui", "-url", string(s.Flavor())+"://me:hidden@"+s.Addr())
			url := r.page()
			res, err := http.Get(url)
			require.NoError(t, err)
			require.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"))
			require.NoError(t, res.Body.Close())
			stream(t, url, `me:xxxxx@.*"phase":"(connecting|looking|live)"`)
			stream(t, url, `"phase":"live"`)
			require.NoError(t, r.cmd.Process.Signal(sig))
			require.Equal(t, 0, r.status(), "with open streams: %s", &r.stderr)
			require.Empty(t, r.stderr.String())
			require.Zero(t, keys(t, s))
		}
	})
}

func TestUIListensToThisMachineAloneUnlessItIsToldOtherwise(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		r := start(t, on(s, "ui", "-listen", addr)...)
		require.Equal(t, 2, r.status())
		require.Contains(t, r.stderr.String(), "-allow-remote")
	}
	r := start(t, on(s, "ui", "-listen", "0.0.0.0:0", "-allow-remote", "-host", "locks.example")...)
	_, port, err := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(r.page(), "http://"), "/"))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return strings.Contains(r.stderr.String(), "WARNING") }, runLimit, time.Millisecond)
	for host, status := range map[string]int{"locks.example": 200, "127.0.0.1": 200, "evil.example": 403} {
		req, err := http.NewRequest(http.MethodGet, "http://127.0.0.1:"+port+"/", nil)
		require.NoError(t, err)
		req.Host = host
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, res.Body.Close())
		require.Equal(t, status, res.StatusCode, host)
	}
	require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
	require.Equal(t, 0, r.status(), &r.stderr)
}

func TestUITakesAFreePortUnlessOneIsGiven(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	first, second := start(t, on(s, "ui")...), start(t, on(s, "ui")...)
	require.NotEqual(t, first.page(), second.page())
	taken := strings.TrimSuffix(strings.TrimPrefix(first.page(), "http://"), "/")
	third := start(t, on(s, "ui", "-listen", taken)...)
	require.Equal(t, 2, third.status())
	require.Contains(t, third.stderr.String(), taken)
}

func TestUISaysWhatIsWrongAtOnce(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"refused":        {"ui", "-url", "valkey://127.0.0.1:1"},
		"give one like":  {"ui", "-listen", "nonsense", "-url", "valkey://127.0.0.1:1"},
		"give a name":    {"ui", "-host", ""},
		"can be given":   {"ui", "orders"},
		"has no scheme":  {"ui", "-url", "x"},
		"help ui":        {"ui", "-no-such-flag"},
		"no certificate": {"ui", "-url", "valkeys://127.0.0.1:1", "-cacert", os.DevNull},
	} {
		r := start(t, args...)
		require.Equal(t, 2, r.status(), "%v", args)
		require.Contains(t, r.stderr.String(), want)
	}
}

// The rights in the README, and those that docs/operations.md adds for the page.
func TestUIWithTheRightsInTheReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	rights := regexp.MustCompile(`(?m)^ACL SETUSER app on .*$`).Find(readme)
	require.NotNil(t, rights)
	operations, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	more := regexp.MustCompile(`(?m)^ACL SETUSER app \+psubscribe .*$`).Find(operations)
	require.NotNil(t, more)
	testserver.Each(t, []string{"--notify-keyspace-events", "Kgxe"}, func(t *testing.T, s *testserver.Server) {
		_, err := s.Do(strings.Fields(string(rights))...)
		require.NoError(t, err)
		url := string(s.Flavor()) + "://app:secret@" + s.Addr()
		refused := start(t, "ui", "-url", url, "-prefix", "app:")
		stream(t, refused.page(), "This user lacks rights, which docs/operations.md has.*NOPERM")
		require.NoError(t, refused.cmd.Process.Signal(os.Interrupt))
		require.Equal(t, 0, refused.status(), &refused.stderr)
		_, err = s.Do(strings.Fields(string(more))...)
		require.NoError(t, err)
		h := start(t, "run", "-url", url, "-prefix", "app:", "k", "--", "sleep", "60")
		r := start(t, "ui", "-url", url, "-prefix", "app:")
		address := r.page()
		stream(t, address, `"phase":"live"`)
		stream(t, address, `"key":\{"text":"app:k"\},"state":"held"`)
		require.NoError(t, r.cmd.Process.Signal(os.Interrupt))
		require.Equal(t, 0, r.status(), &r.stderr)
		require.Empty(t, r.stderr.String())
		require.NoError(t, h.cmd.Process.Signal(syscall.SIGTERM))
		h.status()
	})
}
