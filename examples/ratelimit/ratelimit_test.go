//go:build unix

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/examples/internal/replicas"
	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) { replicas.Main(m, main) }

const most = 3

// service is an API that fails the test when there are more calls in flight than it allows.
type service struct {
	*httptest.Server
	down   atomic.Bool // it answers 503
	flying atomic.Int64
	seen   atomic.Int64
}

// newService starts one whose calls end when work returns.
func newService(t *testing.T, work func(r *http.Request)) *service {
	s := new(service)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := s.flying.Add(1)
		defer s.flying.Add(-1)
		s.seen.Store(max(s.seen.Load(), n))
		if n > most {
			t.Errorf("%d calls in flight, the limit is %d", n, most)
		}
		if s.down.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		work(r)
	}))
	t.Cleanup(s.Close)
	return s
}

// ends checks that a replica has ended, with all its calls made.
func ends(t *testing.T, crew *replicas.Crew, r *replicas.Replica, calls int) {
	t.Helper()
	require.Zero(t, r.Exit())
	var got int
	for _, l := range crew.Log() {
		if l.From == r && strings.HasPrefix(l.Text, "got") {
			got++
		}
	}
	require.Equal(t, calls, got)
}

func TestTheLimitIsKeptAndUsed(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		api := newService(t, func(*http.Request) { time.Sleep(5 * time.Millisecond) })
		crew := replicas.New(t)
		var all []*replicas.Replica
		for i := range 3 {
			all = append(all, crew.Start(fmt.Sprint(i), "-url", "redis://"+s.Addr(), "-api", api.URL, "-n", "30"))
		}
		for _, r := range all {
			ends(t, crew, r, 30)
		}
		require.EqualValues(t, most, api.seen.Load())
	})
}

// While the API is out of order the calls are made again; the limit holds for those tries, too.
func TestAnOutageOfTheAPIIsWaitedOut(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	api := newService(t, func(*http.Request) {})
	api.down.Store(true)
	crew := replicas.New(t)
	var all []*replicas.Replica
	for i := range 2 {
		all = append(all, crew.Start(fmt.Sprint(i), "-url", "redis://"+s.Addr(), "-api", api.URL, "-n", "10"))
	}
	for _, r := range all {
		r.Await("again: " + errBusy.Error())
	}
	api.down.Store(false)
	for _, r := range all {
		ends(t, crew, r, 10)
	}
}

// One replica of two is cut off from the server while it has calls in flight. They are ended, before their permits
// can be given to the other; the other goes on; and the one that was cut off goes on when it is connected again.
func TestAReplicaThatIsCutOffEndsItsCalls(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	network := proxy.Start(t, s.Addr())
	var ended atomic.Int64
	hold := make(chan struct{}) // until it is closed the calls of the first replica do not return
	api := newService(t, func(r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
			ended.Add(1)
		}
	})
	crew := replicas.New(t)
	args := func(addr string) []string {
		return []string{"-url", "redis://" + addr, "-api", api.URL, "-n", "6", "-lease", "2s", "-limit", "20s"}
	}
	cut := crew.Start("cut off", args(network.Addr())...)
	require.Eventually(t, func() bool { return api.flying.Load() == most }, 10*time.Second, time.Millisecond)
	network.Refuse(true)
	network.Cut()
	cut.Await("again: ")
	require.Eventually(t, func() bool { return ended.Load() == most }, 10*time.Second, time.Millisecond)
	close(hold)
	other := crew.Start("other", args(s.Addr())...)
	ends(t, crew, other, 6)
	network.Refuse(false)
	ends(t, crew, cut, 6)
	var lost int
	for _, l := range crew.Log() {
		if l.From == cut && strings.Contains(l.Text, "lease of") {
			lost++
		}
	}
	require.GreaterOrEqual(t, lost, most)
}

// Each try has a deadline. Who could not get a permit in time says so, and who has them; a replica that dies gives its
// permits back long before its lease is over.
func TestADeadReplicaGivesItsPermitsBack(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	hold := make(chan struct{})
	api := newService(t, func(r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	})
	crew := replicas.New(t)
	args := []string{"-url", "redis://" + s.Addr(), "-api", api.URL, "-n", "4", "-lease", "1m"}
	dead := crew.Start("dead", append(args, "-limit", "1m")...)
	require.Eventually(t, func() bool { return api.flying.Load() == most }, 10*time.Second, time.Millisecond)
	dead.Signal(syscall.SIGKILL)
	require.Equal(t, -1, dead.Exit())
	killed := time.Now()
	close(hold)
	waits := crew.Start("waits", append(args, "-limit", "5s")...)
	require.Contains(t, waits.Await("again: ").Text, `"api:orders" held by`)
	got := waits.Await("got")
	require.Less(t, got.At.Sub(killed), 20*time.Second)
	ends(t, crew, waits, 4)
}
