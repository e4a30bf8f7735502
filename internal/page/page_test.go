package page

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/dial"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestAPageShowsLocksAsTheyChange(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		long := valkeysync.WithLease(time.Minute) // no timer tells it
		a, b, c := client(t, s, long, valkeysync.WithName("a")), client(t, s, long, valkeysync.WithName("b")), client(t, s, long, valkeysync.WithName("c"))
		_, release := take(t, a, "before")
		defer release()
		page := serve(t, s, nil).open()
		page.is(live)
		page.holds("before", "a", 0)
		require.False(t, page.whole.Unlock)
		require.Equal(t, "valkey://"+s.Addr(), page.whole.Server)

		ctx, release := take(t, a, "orders")
		lease, _ := valkeysync.FromContext(ctx)
		l := page.holds("orders", "a", 0)
		require.Equal(t, "held", l.State)
		require.Equal(t, fmt.Sprint(lease.Token()&^1023), l.Holders[0].Token)
		require.Less(t, *l.Holders[0].HeldMS, soon.Milliseconds())
		require.Greater(t, *l.Holders[0].LeftMS, int64(30_000))
		got, _ := wait(t, b, "orders")
		page.holds("orders", "a", 1)
		_, giveUp := wait(t, c, "orders")
		l = page.holds("orders", "a", 2)
		require.Equal(t, []string{"b", "c"}, []string{l.Queue[0].Name.Text, l.Queue[1].Name.Text})
		require.GreaterOrEqual(t, l.Queue[0].WaitMS, l.Queue[1].WaitMS)
		giveUp()
		page.holds("orders", "a", 1)
		release()
		<-got
		page.free("orders")

		readers := a.RWMutex("config")
		rctx, err := readers.RLockContext(t.Context())
		require.NoError(t, err)
		page.until("it is read", func() bool { return page.locks["config"].Words == "read by 1" })
		require.NoError(t, readers.RUnlockContext(rctx))
		page.free("config")
		sem := a.Semaphore("permits", 3)
		require.NoError(t, sem.Acquire(t.Context(), 2))
		page.until("permits", func() bool { return page.locks["permits"].Words == "2 of 3 permits out" })
		sem.Release(2)
		page.free("permits")
		do(t, s, "SET", "legacy", "somebody else's")
		_, giveUp = wait(t, b, "legacy")
		l = page.holds("legacy", "somebody else's", 1)
		require.Nil(t, l.Holders[0].HeldMS)
		require.Nil(t, l.Holders[0].LeftMS, "no expiry")
		giveUp()
		require.Empty(t, page.losses(), "a release is no loss, nor is a hand-over")
	})
}

func TestALockThatWasFreedIsShownForAWhile(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a := client(t, s)
	page := serve(t, s, func(_ *Config, p *pace) { p.fade = 300 * time.Millisecond }).open()
	page.is(live)
	_, release := take(t, a, "orders")
	page.until("it is there", func() bool { return page.locks["orders"].State == "held" })
	release()
	page.free("orders")
	page.until("it is gone", func() bool { _, there := page.locks["orders"]; return !there })
}

func TestOnlyLocksOfThePrefixAreShown(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		app, other := client(t, s, valkeysync.WithPrefix("app:"), valkeysync.WithName("a")), client(t, s, valkeysync.WithName("b"))
		_, release := take(t, app, "one")
		defer release()
		_, release = take(t, other, "other")
		defer release()
		page := serve(t, s, func(c *Config, _ *pace) { c.Prefix = "app:" }).open()
		page.is(live)
		_, release = take(t, other, "more")
		defer release()
		_, release = take(t, app, "two")
		defer release()
		page.holds("app:two", "a", 0)
		page.holds("app:one", "a", 0)
		require.Len(t, page.locks, 2)
		require.Equal(t, "app:", page.whole.Prefix.Text)
	})
}

// However many pages are open, the server is asked once.
func TestManyPagesShareOneWatcher(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a := client(t, s, valkeysync.WithName("a"), valkeysync.WithLease(time.Minute), valkeysync.WithCrashDetection(0))
	served := serve(t, s, nil)
	var pages []*tab
	for range 20 {
		pages = append(pages, served.open())
	}
	for _, p := range pages {
		p.is(live)
	}
	s.ResetStats()
	_, release := take(t, a, "orders")
	for _, p := range pages {
		p.holds("orders", "a", 0)
	}
	late := served.open() // one more costs nothing
	late.holds("orders", "a", 0)
	release()
	for _, p := range pages {
		p.free("orders")
	}
	calls := s.Calls(testserver.AdminCommands()...)
	// Lock and unlock, and a look or two at each change: it may be seen by the event of the lock and again.
	require.LessOrEqual(t, calls["evalsha"], int64(2+4), calls)
	require.LessOrEqual(t, calls["getrange"], int64(2), calls)
	require.Zero(t, calls["scan"]+calls["psubscribe"]+calls["subscribe"], calls)
}

// While no page is open nothing is connected, and nothing is sent.
func TestWithoutAPageNothingIsSent(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	admin, err := s.Do("CLIENT", "ID")
	require.NoError(t, err)
	id, err := admin.AsInt64()
	require.NoError(t, err)
	connections := func() int {
		reply, err := s.Do("CLIENT", "LIST")
		require.NoError(t, err)
		text, err := reply.ToString()
		require.NoError(t, err)
		return strings.Count(text, "id=") - strings.Count(text, fmt.Sprintf("id=%d ", id))
	}
	served := serve(t, s, func(_ *Config, p *pace) { p.linger = 50 * time.Millisecond })
	require.Zero(t, connections())
	page := served.open()
	page.is(live)
	require.Positive(t, connections())
	page.close()
	require.Eventually(t, func() bool { return connections() == 0 }, soon, 10*time.Millisecond)

	page = served.open()
	page.is(live)
	require.Contains(t, page.log[0].Words, "No page was open", "and the log says so")
}

// A page that does not read is given up, and holds up nobody before.
func TestAPageThatDoesNotReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a := client(t, s, valkeysync.WithName("a"))
	served := serve(t, s, func(_ *Config, p *pace) { p.writing = 500 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(served.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(1024))
	_, err = fmt.Fprintf(conn, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	page := served.open()
	page.is(live)
	readers := func() int {
		served.page.board.mu.Lock()
		defer served.page.board.mu.Unlock()
		return len(served.page.board.readers)
	}
	require.Eventually(t, func() bool { return readers() == 2 }, soon, time.Millisecond)
	// Enough to fill what the kernel keeps for the one that does not read.
	stop := make(chan struct{})
	written := make(chan struct{})
	go func() {
		defer close(written)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				served.page.board.put(fmt.Sprint("k", i%500), &view{st: valkeysync.Status{
					Key: fmt.Sprint("k", i%500), State: valkeysync.StateFree,
					Queue: []valkeysync.WaiterStatus{{Name: strings.Repeat("x", 10_000)}}, Waiting: 1,
				}, at: time.Now()})
				time.Sleep(100 * time.Microsecond)
			}
		}
	}()
	for i := range 5 {
		_, release := take(t, a, fmt.Sprint("orders", i))
		page.holds(fmt.Sprint("orders", i), "a", 0)
		release()
	}
	page.until("the other is given up", func() bool { return readers() == 1 })
	close(stop)
	<-written
}

func TestAPageThatComesBackMissesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a := client(t, s, valkeysync.WithName("a"), valkeysync.WithLease(time.Minute))
	served := serve(t, s, nil)
	other := served.open() // keeps the watcher
	other.is(live)
	page := served.open()
	page.is(live)
	served.page.board.note(entry{At: time.Now(), Kind: "gap", Words: "one"})
	page.until("one", func() bool { return len(page.log) == 1 })
	page.close()
	served.page.board.note(entry{At: time.Now(), Kind: "gap", Words: "two"})
	_, release := take(t, a, "orders")
	defer release()

	again := served.open("Last-Event-ID", page.lastID)
	again.holds("orders", "a", 0)
	again.until("two", func() bool { return len(again.log) > 0 })
	require.Equal(t, "two", again.log[0].Words, "what it had is not told again")
	require.Len(t, again.log, 1)

	stranger := served.open("Last-Event-ID", "another.1")
	stranger.holds("orders", "a", 0)
	stranger.until("both", func() bool { return len(stranger.log) == 2 })
}

func TestASubscriptionIsRefusedBeyondTheMost(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	served := serve(t, s, func(_ *Config, p *pace) { p.streams = 2 })
	served.open().is(live)
	served.open().is(live)
	res := get(t, served, "/events")
	require.Equal(t, 503, res.StatusCode)
}

// Without notifications it looks, and says so; once they are on it is woken.
func TestWithoutNotificationsThePageSaysSoAndLooks(t *testing.T) {
	t.Parallel()
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		a := client(t, s, valkeysync.WithName("a"), valkeysync.WithLease(time.Minute))
		page := serve(t, s, func(_ *Config, p *pace) { p.blind, p.list, p.rest = 50*time.Millisecond, 200*time.Millisecond, 1 }).open()
		page.is(blind)
		require.Contains(t, page.state.Text, "CONFIG SET notify-keyspace-events Kgxe")
		_, release := take(t, a, "orders")
		page.holds("orders", "a", 0)
		release()
		page.free("orders")
		do(t, s, "CONFIG", "SET", "notify-keyspace-events", "Kgxe")
		_, release = take(t, a, "orders")
		page.is(live)
		page.holds("orders", "a", 0)
		release()
	})
}

func TestAUserWhoMayNotHearIsToldSo(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	do(t, s, "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels", "&valkeysync:*", "&__keyspace@0__:valkeysync:probe:*")
	a := client(t, s, valkeysync.WithName("a"))
	page := serve(t, s, func(c *Config, p *pace) {
		p.blind, p.list, p.rest = 50*time.Millisecond, 200*time.Millisecond, 1
		c.Connect = connect(s.Addr(), "", func(o *valkey.ClientOption) { o.Username, o.Password = "deaf", "secret" })
	}).open()
	page.is(blind)
	require.Contains(t, page.state.Text, "may not hear")
	_, release := take(t, a, "orders")
	defer release()
	page.holds("orders", "a", 0)
}

func TestTheServerMayGoAndComeBack(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	served := serve(t, s, func(_ *Config, p *pace) { p.retry = 50 * time.Millisecond })
	page := served.open()
	page.is(live)
	s.Kill()
	page.is(down)
	s.Restart()
	page.is(live)
	a := client(t, s, valkeysync.WithName("a"))
	_, release := take(t, a, "orders")
	defer release()
	page.holds("orders", "a", 0)
	require.Empty(t, page.losses())
	require.Len(t, page.log, 2, "that it was away, and is back")
}

func TestALotOfLocks(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	c := s.Client(t)
	const locks = 5000
	var sets valkey.Commands
	for i := range locks {
		sets = append(sets, c.B().Set().Key(fmt.Sprint("lock", i)).Value(hold(i, "holder")).PxMilliseconds(600_000).Build())
	}
	for _, r := range c.DoMulti(t.Context(), sets...) {
		require.NoError(t, r.Error())
	}
	page := serve(t, s, nil).open()
	page.is(live)
	require.Len(t, page.locks, locks)
	few := serve(t, s, func(_ *Config, p *pace) { p.locks = 100 }).open()
	few.is(live)
	few.until("it says so", func() bool { return strings.Contains(few.state.Cut, "more than 100 locks") })
	require.Len(t, few.locks, 100)
}

func TestAClusterIsWatchedOnAllNodes(t *testing.T) {
	t.Parallel()
	c := testserver.StartCluster(t, testserver.Valkey, 3, 1, notifying...)
	a, err := valkeysync.New(c.Client(t), valkeysync.WithLogger(quiet), valkeysync.WithName("a"), valkeysync.WithLease(time.Minute))
	require.NoError(t, err)
	defer a.Close()
	page := serve(t, c.Nodes()[0], func(_ *Config, p *pace) { p.mapped = 200 * time.Millisecond }).open()
	page.is(live)
	follow := func() {
		for i := range 4 {
			key := fmt.Sprint("k", i)
			_, release := take(t, a, key)
			page.holds(key, "a", 0)
			release()
			page.released(key)
		}
	}
	follow()
	// Another primary has some of the slots; a lock that is held moves with them.
	_, release := take(t, a, "k0")
	got, _ := wait(t, a, "k0")
	page.holds("k0", "a", 0)
	c.Failover(c.Slot("k0"))
	slot := c.Slot("k1")
	_, releaseMoved := take(t, a, "k1")
	page.holds("k1", "a", 0)
	for _, n := range c.Nodes() {
		if p := c.Primary(c.Slot("k0")); n == p && p != c.Primary(slot) {
			c.MoveSlot(slot, n)
			break
		}
	}
	page.holds("k1", "a", 0)
	releaseMoved()
	page.released("k1")
	release()
	<-got
	page.released("k0")
	follow()
	require.Empty(t, page.losses())
}

func TestAFailoverBySentinelIsFollowed(t *testing.T) {
	t.Parallel()
	s := testserver.StartSentinel(t, testserver.Valkey, 1, notifying...)
	a, err := valkeysync.New(s.Client(t), valkeysync.WithLogger(quiet), valkeysync.WithName("a"))
	require.NoError(t, err)
	defer a.Close()
	page := serve(t, s.Primary(), func(c *Config, _ *pace) {
		c.Connect = func() (*Connection, error) {
			opt, err := dial.Options(s.URL(), 2*time.Second)
			if err != nil {
				return nil, err
			}
			return connection(opt, "")
		}
	}).open()
	page.is(live)
	_, release := take(t, a, "before")
	page.holds("before", "a", 0)
	s.AwaitSettled()
	s.Failover()
	s.AwaitSettled() // the old primary takes writes for a moment, and loses them
	_, releaseAfter := take(t, a, "after")
	page.holds("after", "a", 0)
	page.is(live)
	releaseAfter()
	page.released("after")
	release()
	page.released("before")
}
