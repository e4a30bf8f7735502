package page

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "12"); err != nil { // they wait more than they work
		panic(err)
	}
	goleak.VerifyTestMain(m,
		// valkey-go closes the connection to a node that left the map, or was replaced, 5 s later, and looks at
		// the map anew up to 1 s after it was told to.
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*clusterClient).redirectOrNew.func1"),
		goleak.IgnoreAnyFunction("github.com/valkey-io/valkey-go.(*call).DelayDo.func1"),
	)
}

var notifying = []string{"--notify-keyspace-events", "Kgxe"}

// soon is when a test gives up.
const soon = 20 * time.Second

// client is another process's Client.
func client(t *testing.T, s *testserver.Server, opts ...valkeysync.Option) *valkeysync.Client {
	t.Helper()
	c, err := valkeysync.New(s.Client(t), append([]valkeysync.Option{valkeysync.WithLogger(quiet)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

var quiet = slog.New(slog.DiscardHandler)

// connect is how a page under test reaches the server. change: of the options.
func connect(addr string, prefix string, change func(*valkey.ClientOption)) func() (*Connection, error) {
	return func() (*Connection, error) {
		opt := valkey.ClientOption{InitAddress: []string{addr}, DisableCache: true, ConnWriteTimeout: 2 * time.Second}
		opt.Dialer.KeepAlive = time.Hour // no PINGs: the tests count
		if change != nil {
			change(&opt)
		}
		return connection(opt, prefix)
	}
}

func connection(opt valkey.ClientOption, prefix string) (*Connection, error) {
	c, err := valkey.NewClient(opt)
	if err != nil {
		return nil, err
	}
	locks, err := valkeysync.New(c, valkeysync.WithLogger(quiet), valkeysync.WithPrefix(prefix))
	if err != nil {
		c.Close()
		return nil, err
	}
	return &Connection{Locks: locks, Client: c, Close: func() {
		_ = locks.Close()
		c.Close()
	}}, nil
}

// served is a page, with a web server.
type served struct {
	t    *testing.T
	page *Page
	web  *httptest.Server
	url  string
}

// serve serves the page of a server. change: of what is usual.
func serve(t *testing.T, s *testserver.Server, change func(*Config, *pace)) *served {
	t.Helper()
	config, pace := Config{Server: "valkey://" + s.Addr()}, usualPace()
	if change != nil {
		change(&config, &pace)
	}
	if config.Connect == nil {
		config.Connect = connect(s.Addr(), config.Prefix, nil)
	}
	p := newPage(config, pace)
	web := httptest.NewServer(p)
	t.Cleanup(func() {
		p.Close()
		web.Close()
	})
	return &served{t, p, web, web.URL}
}

// tab is an open page, without a browser: it keeps what it was told.
type tab struct {
	t       *testing.T
	news    chan newsJSON
	close   func()
	run     string
	locks   map[string]lockJSON // by the key as it is shown
	byID    map[string]string
	state   state
	log     []entry
	whole   *wholeJSON
	lastID  string
	ids     chan string
	message int
}

func (s *served) open(header ...string) *tab {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/events", nil)
	require.NoError(s.t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{}
	res, err := transport.RoundTrip(req)
	require.NoError(s.t, err)
	require.Equal(s.t, http.StatusOK, res.StatusCode)
	require.Equal(s.t, "text/event-stream", res.Header.Get("Content-Type"))
	tab := &tab{t: s.t, news: make(chan newsJSON, 1000), ids: make(chan string, 1000), locks: map[string]lockJSON{}, byID: map[string]string{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(tab.news)
		lines := bufio.NewReader(res.Body)
		id := ""
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			if v, ok := strings.CutPrefix(line, "id: "); ok {
				id = strings.TrimSpace(v)
			}
			if v, ok := strings.CutPrefix(line, "data: "); ok {
				var n newsJSON
				if json.Unmarshal([]byte(v), &n) != nil {
					n.Run = "cannot be read: " + v
				}
				tab.news <- n
				tab.ids <- id
			}
		}
	}()
	tab.close = func() {
		cancel()
		_ = res.Body.Close()
		<-ended
		transport.CloseIdleConnections()
	}
	s.t.Cleanup(tab.close)
	return tab
}

// until reads on until what the page shows is so.
func (tab *tab) until(what string, so func() bool) {
	tab.t.Helper()
	limit := time.After(soon)
	for !so() {
		select {
		case n, more := <-tab.news:
			if !more {
				tab.t.Fatalf("%s: the stream has ended; %+v", what, tab.state)
			}
			tab.take(n)
			tab.lastID = <-tab.ids
		case <-limit:
			tab.t.Fatalf("not so after %v: %s\nstate %+v\nlocks %+v\nlog %+v", soon, what, tab.state, tab.locks, tab.log)
		}
	}
}

func (tab *tab) take(n newsJSON) {
	tab.message++
	if n.Whole != nil {
		tab.whole = n.Whole
		clear(tab.locks)
	}
	tab.run = n.Run
	for _, l := range n.Locks {
		tab.locks[l.Key.Text] = l
		tab.byID[l.ID] = l.Key.Text
	}
	for _, id := range n.Gone {
		delete(tab.locks, tab.byID[id])
	}
	if n.State != nil {
		tab.state = *n.State
	}
	tab.log = append(tab.log, n.Log...)
}

// is waits for the phase.
func (tab *tab) is(p phase) {
	tab.t.Helper()
	tab.until("the phase is "+string(p), func() bool { return tab.state.Phase == p })
}

// holds waits until a lock is shown as held by that name, with so many waiting.
func (tab *tab) holds(key, name string, waiting int) lockJSON {
	tab.t.Helper()
	tab.until(key+" held by "+name, func() bool {
		l := tab.locks[key]
		return len(l.Holders) == 1 && l.Holders[0].Name.Text == name && l.Waiting == waiting
	})
	return tab.locks[key]
}

// free waits until a lock is shown as free.
func (tab *tab) free(key string) {
	tab.t.Helper()
	tab.until(key+" free", func() bool { l, ok := tab.locks[key]; return ok && l.State == "free" && l.FreeMS != nil })
}

// released waits until nobody is shown to hold a lock: it is free, or, where the connection is another by then, not
// shown at all.
func (tab *tab) released(key string) {
	tab.t.Helper()
	tab.until(key+" released", func() bool { return len(tab.locks[key].Holders) == 0 })
}

// lost waits for a line of the log about the key.
func (tab *tab) lost(how loss, key string) entry {
	tab.t.Helper()
	var found entry
	tab.until(key+" "+string(how), func() bool {
		i := slices.IndexFunc(tab.log, func(e entry) bool { return e.Kind == string(how) && e.Key != nil && e.Key.Text == key })
		if i >= 0 {
			found = tab.log[i]
		}
		return i >= 0
	})
	return found
}

// losses are the lines of the log about locks.
func (tab *tab) losses() []entry {
	return slices.DeleteFunc(slices.Clone(tab.log), func(e entry) bool { return e.Kind == "gap" })
}

func do(t *testing.T, s *testserver.Server, args ...string) {
	t.Helper()
	_, err := s.Do(args...)
	require.NoError(t, err)
}

// take takes a lock that is free, or to be had soon.
func take(t *testing.T, c *valkeysync.Client, key string) (ctx context.Context, release func()) {
	t.Helper()
	m := c.Mutex(key)
	limit, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(soon, cancel)
	ctx, err := m.LockContext(limit)
	require.NoError(t, err)
	timer.Stop()
	t.Cleanup(cancel)
	return ctx, func() { _ = m.UnlockContext(ctx) }
}

// wait has a Client wait for a lock, and gives it back when it has it. The channel is closed then.
func wait(t *testing.T, c *valkeysync.Client, key string) (got <-chan struct{}, giveUp func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		m := c.Mutex(key)
		if ctx, err := m.LockContext(ctx); err == nil {
			_ = m.UnlockContext(ctx)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return done, cancel
}
