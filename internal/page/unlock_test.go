package page

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// unlock asks for it as the page does.
func (s *served) unlock(l lockJSON) (int, unlockReply) {
	s.t.Helper()
	body, err := json.Marshal(unlockRequest{l.ID, l.Hold})
	require.NoError(s.t, err)
	res := request(s.t, s, "POST", "/unlock", string(body), "Content-Type", "application/json", "Sec-Fetch-Site", "same-origin", "Origin", s.url)
	require.Equal(s.t, "application/json", res.Header.Get("Content-Type"))
	var answer unlockReply
	require.NoError(s.t, json.NewDecoder(res.Body).Decode(&answer))
	return res.StatusCode, answer
}

func allowed(c *Config, _ *pace) { c.AllowUnlock = true }

func TestALockIsTakenFromWhoWasSeen(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		a := client(t, s, valkeysync.WithName("a"), valkeysync.WithLease(time.Minute))
		served := serve(t, s, allowed)
		page := served.open()
		page.is(live)
		require.True(t, page.whole.Unlock)
		held, release := take(t, a, "orders")
		defer release()
		l := page.holds("orders", "a", 0)
		status, _ := served.unlock(l)
		require.Equal(t, http.StatusOK, status)
		<-held.Done()
		page.free("orders")
		e := page.lost(lossUnlocked, "orders")
		require.Equal(t, "a", e.Holder.Text)
		require.Equal(t, l.Holders[0].Token, e.Token)

		do(t, s, "SET", "legacy", "theirs")
		b := client(t, s, valkeysync.WithName("b"))
		got, _ := wait(t, b, "legacy")
		status, _ = served.unlock(page.holds("legacy", "theirs", 1))
		require.Equal(t, http.StatusOK, status)
		<-got
		page.lost(lossUnlocked, "legacy")
		<-time.After(2 * usualPace().judge)
		do(t, s, "SET", "end", hold(1, "end"), "PX", "60000")
		page.holds("end", "end", 0)
		require.Len(t, page.losses(), 2, "each is told once: %+v", page.losses())
	})
}

// Nobody but the holder that the page has shown loses anything.
func TestALockIsNotTakenFromAnother(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a, b := client(t, s, valkeysync.WithName("a")), client(t, s, valkeysync.WithName("b"))
	served := serve(t, s, allowed)
	page := served.open()
	page.is(live)
	_, release := take(t, a, "orders")
	seen := page.holds("orders", "a", 0)
	release()
	held, releaseB := take(t, b, "orders")
	status, answer := served.unlock(seen)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, answer.Words, "Nothing was done")
	require.Equal(t, "b", answer.Lock.Holders[0].Name.Text, "and it says who has it")
	require.NoError(t, held.Err())
	releaseB()
	page.free("orders")
	status, _ = served.unlock(seen)
	require.Equal(t, http.StatusConflict, status, "it is free")
	// The same process again is another hold.
	_, release = take(t, a, "orders")
	defer release()
	status, _ = served.unlock(seen)
	require.Equal(t, http.StatusConflict, status)

	// Readers: one more is another set of holders.
	rw, other := a.RWMutex("config"), b.RWMutex("config")
	first, err := rw.RLockContext(t.Context())
	require.NoError(t, err)
	seen = page.holds("config", "a", 0)
	second, err := other.RLockContext(t.Context())
	require.NoError(t, err)
	status, _ = served.unlock(seen)
	require.Equal(t, http.StatusConflict, status)
	require.NoError(t, first.Err())
	page.until("both", func() bool { return page.locks["config"].Holding == 2 })
	status, _ = served.unlock(page.locks["config"])
	require.Equal(t, http.StatusOK, status)
	<-first.Done()
	<-second.Done()
}

// Nor in the moment between the look at who holds and the taking.
func TestALockIsNotTakenFromOneWhoCameInBetween(t *testing.T) {
	t.Parallel()
	testserver.Each(t, notifying, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		line := proxy.Start(t, s.Addr())
		a, b := client(t, s, valkeysync.WithName("a")), client(t, s, valkeysync.WithName("b"))
		served := serve(t, s, func(c *Config, p *pace) { c.AllowUnlock, c.Connect = true, connect(line.Addr(), "", nil) })
		page := served.open()
		page.is(live)
		_, release := take(t, a, "orders")
		seen := page.holds("orders", "a", 0)
		digest := sha1.Sum([]byte(protocol.Sources()["force"]))
		taking := line.On(hex.EncodeToString(digest[:]), proxy.Delay(time.Second))
		type result struct {
			status int
			answer unlockReply
		}
		came := make(chan result, 1)
		go func() {
			defer close(came)
			status, answer := served.unlock(seen)
			came <- result{status, answer}
		}()
		<-taking.Fired()
		release()
		held, releaseB := take(t, b, "orders")
		defer releaseB()
		r := <-came
		require.Equal(t, http.StatusConflict, r.status)
		require.Equal(t, "b", r.answer.Lock.Holders[0].Name.Text)
		require.NoError(t, held.Err())
	})
}

func TestUnlockIsOffUnlessAllowed(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a := client(t, s, valkeysync.WithName("a"))
	held, release := take(t, a, "orders")
	defer release()
	served := serve(t, s, nil)
	page := served.open()
	page.is(live)
	require.False(t, page.whole.Unlock)
	status, answer := served.unlock(page.holds("orders", "a", 0))
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, answer.Words, "-allow-unlock")
	require.NoError(t, held.Err())
}

func TestUnlockIsForLocksOfThePageAlone(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	a := client(t, s, valkeysync.WithName("a"))
	held, release := take(t, a, "other")
	defer release()
	served := serve(t, s, func(c *Config, p *pace) { c.AllowUnlock, c.Prefix = true, "app:" })
	st, err := a.Status(t.Context(), "other")
	require.NoError(t, err)
	status, _ := served.unlock(lockJSON{ID: idOf("other"), Hold: holdOf(st)})
	require.Equal(t, http.StatusForbidden, status)
	require.NoError(t, held.Err())
	for _, body := range []string{"", "{", "[]", `{"id":"!","hold":"x"}`, `{"id":"b3JkZXJz"}`, `{"id":"b3JkZXJz","hold":"x","more":1}`, `{"id":"` + strings.Repeat("a", 1<<17) + `","hold":"x"}`} {
		res := request(t, served, "POST", "/unlock", body, "Content-Type", "application/json")
		require.Equal(t, http.StatusBadRequest, res.StatusCode, "%.40s", body)
	}
}

// Keys and names are anybody's. They come through whole, as text that can be shown, and lead back to the key.
func TestAnyNameCanBeShownAndTaken(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey, notifying...)
	served := serve(t, s, allowed)
	page := served.open()
	page.is(live)
	for i, key := range []string{
		"<img src=x onerror=alert(1)>", "line\nbreak", "\x00\xff\xfe", "שלום", "a\u202eb", `"quoted"`, "&amp;", "data: x\n\nid: y", strings.Repeat("k", 1024), " lead",
	} {
		name := "n" + key[:min(len(key), 200)]
		do(t, s, "SET", key, hold(i, name), "PX", "60000")
		var l lockJSON
		page.until(fmt.Sprintf("%q", key), func() bool {
			for _, one := range page.locks {
				if one.ID == idOf(key) && len(one.Holders) > 0 {
					l = one
					return true
				}
			}
			return false
		})
		back, err := keyOf(l.ID)
		require.NoError(t, err)
		require.Equal(t, key, back)
		require.Equal(t, shown(key), l.Key)
		require.Equal(t, shown(name), l.Holders[0].Name)
		status, _ := served.unlock(l)
		require.Equal(t, http.StatusOK, status, "%q", key)
		_, err = s.Do("GET", key)
		require.Error(t, err, "%q is gone", key)
	}
}
