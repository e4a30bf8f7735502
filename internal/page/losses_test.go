package page

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// hold is what a process that is no more had in a lock.
func hold(n int, name string) string {
	e := protocol.Entry{Client: "gone", Attempt: fmt.Sprint(n), Kind: protocol.MutexKind, Mode: protocol.Exclusive, Weight: 1, Lease: time.Second, Name: name}
	now := time.Now()
	return e.Hold(now.UnixMicro()+int64(n), now.UnixMilli())
}

func TestLossesAreTold(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		long := valkeysync.WithLease(time.Minute)
		a, b := client(t, s, long, valkeysync.WithName("a")), client(t, s, long, valkeysync.WithName("b"))
		served := serve(t, s, nil)
		// settled waits until what comes is told apart from what was.
		settled := func() { <-time.After(usualPace().judge) }
		cases := map[string]func(t *testing.T, page *tab){
			"a lease that nobody renews": func(t *testing.T, page *tab) {
				do(t, s, "SET", "lone", hold(1, "dead"), "PX", "900")
				page.holds("lone", "dead", 0)
				e := page.lost(lossExpired, "lone")
				require.Equal(t, "dead", e.Holder.Text)
				require.NotEmpty(t, e.Token)
				page.free("lone")
			},
			"one that somebody waits for": func(t *testing.T, page *tab) {
				do(t, s, "SET", "awaited", hold(2, "dead"), "PX", "900")
				got, _ := wait(t, b, "awaited")
				page.holds("awaited", "dead", 1)
				page.lost(lossExpired, "awaited")
				<-got
			},
			"DEL while somebody waits": func(t *testing.T, page *tab) {
				_, release := take(t, a, "deleted")
				got, _ := wait(t, b, "deleted")
				page.holds("deleted", "a", 1)
				settled()
				do(t, s, "DEL", "deleted")
				require.Equal(t, "a", page.lost(lossDeleted, "deleted").Holder.Text)
				<-got
				release()
			},
			"ForceUnlock while somebody waits": func(t *testing.T, page *tab) {
				_, release := take(t, a, "forced")
				got, _ := wait(t, b, "forced")
				page.holds("forced", "a", 1)
				settled()
				require.NoError(t, b.ForceUnlock(t.Context(), "forced"))
				page.lost(lossDeleted, "forced")
				<-got
				release()
			},
			"SET by another program": func(t *testing.T, page *tab) {
				_, release := take(t, a, "over")
				page.holds("over", "a", 0)
				settled()
				do(t, s, "SET", "over", "theirs", "PX", "60000")
				page.lost(lossOverwritten, "over")
				release()
			},
			"RENAME": func(t *testing.T, page *tab) {
				_, release := take(t, a, "renamed")
				page.holds("renamed", "a", 0)
				settled()
				do(t, s, "RENAME", "renamed", "elsewhere")
				page.lost(lossRenamed, "renamed")
				release()
			},
			"readers' leases, one and then the last": func(t *testing.T, page *tab) {
				now := time.Now()
				for i, ends := range []time.Duration{900 * time.Millisecond, 1800 * time.Millisecond} {
					held := protocol.Entry{Client: "gone", Attempt: fmt.Sprint(i), Kind: protocol.RWMutexKind, Mode: protocol.Reader, Weight: 1, Name: fmt.Sprint("dead ", i)}
					do(t, s, "ZADD", "{read}:shared", fmt.Sprint(now.Add(ends).UnixMilli()), held.Hold(now.UnixMicro()+int64(i), now.UnixMilli()))
				}
				do(t, s, "SET", "read", "vs1 shared w", "PX", "1800")
				page.until("both read", func() bool { return page.locks["read"].Holding == 2 })
				require.Equal(t, "dead 0", page.lost(lossExpired, "read").Holder.Text)
				page.until("the other too", func() bool {
					return slices.ContainsFunc(page.log, func(e entry) bool { return e.Kind == string(lossExpired) && e.Holder.Text == "dead 1" })
				})
			},
		}
		for name, c := range cases {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				page := served.open()
				page.t = t
				page.is(live)
				c(t, page)
			})
		}
	})
}

// Nothing is heard of FLUSHALL: it is found when the lease should have ended.
func TestAFlushIsTold(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		page := serve(t, s, nil).open()
		page.is(live)
		do(t, s, "SET", "flushed", hold(1, "a"), "PX", "1500")
		page.holds("flushed", "a", 0)
		do(t, s, "FLUSHALL")
		require.Equal(t, "a", page.lost(lossVanished, "flushed").Holder.Text)
	})
}

// What is released or handed over, as fast as can be, is no loss.
func TestReleasesAreNoLosses(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		var work sync.WaitGroup
		var clients []*valkeysync.Client
		ctx, stop := context.WithTimeout(t.Context(), 3*time.Second)
		defer stop()
		page := serve(t, s, nil).open()
		page.is(live)
		for i := range 4 {
			c := client(t, s, valkeysync.WithName(fmt.Sprint("c", i)), valkeysync.WithTurn(0))
			clients = append(clients, c)
			work.Go(func() {
				m, rw, sem := c.Mutex("hot"), c.RWMutex("config"), c.Semaphore("permits", 2)
				for n := 0; ctx.Err() == nil; n++ {
					if held, err := m.LockContext(ctx); err == nil {
						if n%7 == i {
							sleep(ctx, 20*time.Millisecond)
						}
						_ = m.UnlockContext(held)
					}
					if n%5 == i {
						short, cancel := context.WithTimeout(ctx, time.Millisecond) // gives up, mostly
						if held, err := m.LockContext(short); err == nil {
							_ = m.UnlockContext(held)
						}
						cancel()
					}
					if held, err := rw.RLockContext(ctx); err == nil {
						_ = rw.RUnlockContext(held)
					}
					if n%10 == i {
						if held, err := rw.LockContext(ctx); err == nil {
							_ = rw.UnlockContext(held)
						}
					}
					if held, err := sem.AcquireContext(ctx, 1); err == nil {
						_ = sem.ReleaseContext(held, 1)
					}
					sleep(ctx, time.Duration(n%3)*10*time.Millisecond)
				}
			})
		}
		work.Wait()
		page.free("hot")
		<-time.After(2 * usualPace().judge) // what comes late
		_, release := take(t, client(t, s, valkeysync.WithName("last")), "last")
		defer release()
		page.holds("last", "last", 0)
		var lost uint64 // by their own word: none, unless this machine stands still for seconds
		for _, c := range clients {
			for _, n := range c.Stats().Lost {
				lost += n
			}
		}
		require.LessOrEqual(t, len(page.losses()), int(lost), "%+v", page.losses())
	})
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func TestTooManyEventsAreKnownToBeTooMany(t *testing.T) {
	t.Parallel()
	var events []event
	start := time.Now()
	for i := range 1000 {
		events = trim(append(events, event{name: fmt.Sprint(i), at: start.Add(time.Duration(i))}))
	}
	require.LessOrEqual(t, len(events), mostEvents)
	require.Equal(t, []string{"0", "999"}, []string{events[0].name, events[len(events)-1].name})
	i := slices.IndexFunc(events, func(e event) bool { return e.name == omitted })
	require.Equal(t, mostEvents/2, i)
	require.Equal(t, events[i].at.Add(1), events[i+1].at, "it is as late as the last that it stands for")
	require.Len(t, trim(events[:3]), 3)
}

func TestHowAHoldEndedIsJudgedByWhatWasHeard(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	held := func(waiting int) valkeysync.Status {
		return valkeysync.Status{Key: "k", State: valkeysync.StateHeld, Waiting: waiting, Holders: []valkeysync.HolderStatus{{Name: "a", Mode: "exclusive", Token: 1 << 10}}}
	}
	free := valkeysync.Status{Key: "k", State: valkeysync.StateFree}
	foreign := valkeysync.Status{Key: "k", State: valkeysync.StateForeign, Holders: []valkeysync.HolderStatus{{Name: "x", Mode: "foreign"}}}
	// Seen from 0 on, last looked at at 1000, with a lease until 11000; gone at 2000.
	usual := func(waiting int, after valkeysync.Status) ending {
		return ending{hold: held(0).Holders[0], before: held(waiting), until: at(11000), first: at(0), looked: at(1000), gone: at(2000), seen: at(2001), after: after}
	}
	late := usual(0, free)
	late.until = at(1900)
	fresh := usual(1, free)
	fresh.first, fresh.looked = at(1950), at(1950)
	unsure := fresh
	unsure.gone, unsure.seen = at(2150), at(2151)
	theirs := usual(1, free)
	theirs.hold = foreign.Holders[0]
	lock := func(name string, ms int) event { return event{name: name, at: at(ms)} }
	queue := func(name string, ms int) event { return event{name: name, part: ":queue", at: at(ms)} }
	for name, c := range map[string]struct {
		e     ending
		heard []event
		want  loss
	}{
		"released, nobody waits":                      {usual(0, free), []event{lock("del", 1990)}, ""},
		"deleted while one waits":                     {usual(1, free), []event{lock("del", 1990)}, lossDeleted},
		"deleted, and taken by the next":              {usual(1, held(0)), []event{lock("del", 1990), queue("del", 1991), lock("expire", 1991)}, lossDeleted},
		"deleted, while those who wait looked":        {usual(2, held(1)), []event{queue("expire", 1985), lock("del", 1990), lock("expire", 1991)}, lossDeleted},
		"deleted, but whose hold it was is in doubt":  {usual(2, held(1)), []event{lock("expire", 1985), lock("del", 1990), lock("expire", 1991)}, ""},
		"too much happened to tell":                   {usual(1, foreign), []event{lock(omitted, 1985), lock("expire", 1990)}, ""},
		"too much happened before a DEL":              {usual(1, free), []event{lock(omitted, 1985), lock("del", 1990)}, ""},
		"handed over":                                 {usual(1, held(0)), []event{queue("del", 1990), lock("expire", 1990)}, ""},
		"handed over, then released":                  {usual(1, free), []event{queue("del", 1980), lock("expire", 1980), lock("del", 1990)}, ""},
		"who waited gave up, then released":           {usual(1, free), []event{queue("del", 1980), lock("del", 1990)}, ""},
		"a DEL of the hold before, heard late":        {fresh, []event{lock("del", 1960)}, ""},
		"a DEL from before the last look":             {usual(1, held(0)), []event{lock("del", 900), lock("expire", 1990)}, ""},
		"ran out":                                     {usual(0, free), []event{lock("expired", 1990)}, lossExpired},
		"ran out, and taken by the next":              {usual(1, held(0)), []event{lock("expire", 1500), lock("expired", 1990), queue("del", 1991), lock("expire", 1991)}, lossExpired},
		"should have ended, and nothing was heard":    {late, nil, lossVanished}, // the look itself makes the server say so
		"one event in doubt puts the next in doubt":   {unsure, []event{lock("del", 1960), lock("expire", 1970), lock("del", 2100)}, ""},
		"renewed since, then released":                {late, []event{lock("expire", 1500), lock("del", 1990)}, ""},
		"evicted":                                     {usual(0, free), []event{lock("evicted", 1990)}, lossEvicted},
		"renamed":                                     {usual(0, free), []event{lock("rename_from", 1990)}, lossRenamed},
		"another program's, which is its own matter":  {theirs, []event{lock("del", 1990)}, ""},
		"another program's, whose expiry ran out":     {theirs, []event{lock("expired", 1990)}, lossExpired},
		"written over":                                {usual(0, foreign), []event{lock("expire", 1990)}, lossOverwritten},
		"released, and then taken by another program": {usual(0, foreign), []event{lock("del", 1980), lock("expire", 1990)}, ""},
		"gone without a word":                         {usual(0, free), nil, lossVanished},
		"unlocked on a page":                          {usual(1, free), []event{lock("del", 1990), {name: unlockedHere, at: at(1992)}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, c.e.judge(c.heard, 100*time.Millisecond))
		})
	}
}
