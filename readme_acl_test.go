package valkeysync

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// aclRules are the ACL SETUSER lines of README.md: for one server, and what comes to that in a cluster.
func aclRules(t *testing.T) (one, cluster []string) {
	t.Helper()
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^ACL SETUSER .*$`).FindAll(b, -1)
	require.Len(t, lines, 2, "ACL lines of README.md")
	return strings.Fields(string(lines[0])), strings.Fields(string(lines[1]))
}

func aclRule(t *testing.T) []string {
	one, _ := aclRules(t)
	return one
}

// restricted is a Client of the user that the rule makes.
func restricted(t *testing.T, s *testserver.Server, rule []string) (*Client, error) {
	t.Helper()
	command(t, s, rule...)
	return ofUser(t, s.Client(t, asUser(t, rule)))
}

// asUser makes a valkey.Client the user's.
func asUser(t *testing.T, rule []string) func(*valkey.ClientOption) {
	t.Helper()
	i := slices.IndexFunc(rule, func(word string) bool { return strings.HasPrefix(word, ">") })
	require.Positive(t, i, "the rule has a password")
	return func(o *valkey.ClientOption) { o.Username, o.Password = rule[2], rule[i][1:] }
}

func ofUser(t *testing.T, client valkey.Client) (*Client, error) {
	t.Helper()
	c, err := New(client, WithPrefix("app:"), WithLogger(testLogger(t)))
	if err == nil {
		t.Cleanup(func() { require.NoError(t, c.Close()) })
	}
	return c, err
}

// everything does with two Clients all that the library does, and reports the first error. at is the server
// that has a key.
func everything(ctx context.Context, a, b *Client, at func(key string) *testserver.Server) error {
	// One waits for the other: by a message, and by an event after somebody's DEL.
	for _, key := range []string{"released", "deleted"} {
		ma, mb := a.Mutex(key, WithLease(time.Second)), b.Mutex(key)
		channel, deleted := "__keyspace@0__:app:"+key, key == "deleted"
		held, err := ma.LockContext(ctx)
		if err != nil {
			return err
		}
		got := make(chan error, 1)
		go func() {
			held, err := mb.LockContext(ctx)
			if err == nil {
				err = mb.UnlockContext(held)
			}
			got <- err
		}()
		err = until(ctx, func() (bool, error) {
			st, err := a.Status(ctx, key)
			return st.Waiting == 1, err
		})
		if err != nil {
			return err
		}
		if err := renewed(ctx, held); err != nil {
			return err
		}
		if deleted {
			err := until(ctx, func() (bool, error) {
				reply, err := at("app:"+key).Do("PUBSUB", "NUMSUB", channel)
				if err != nil {
					return false, err
				}
				watching, err := reply.AsIntMap()
				return watching[channel] == 2, err // a, for it holds for a while, and b
			})
			if err != nil {
				return err
			}
			if _, err := at("app:"+key).Do("DEL", "app:"+key); err != nil {
				return err
			}
			<-held.Done()
		}
		if err := ma.UnlockContext(held); err != nil && !(deleted && errors.Is(err, ErrLeaseLost)) {
			return err
		}
		if err := <-got; err != nil {
			return err
		}
	}

	// A reader whose lease is over: its process died.
	if _, err := at("app:config").Do("ZADD", "{app:config}:shared", "1", "vs1 1 1 client#attempt w r 1 100 100 0 name"); err != nil {
		return err
	}
	rw := a.RWMutex("config", WithLease(time.Second))
	held, err := rw.LockContext(ctx)
	if err != nil {
		return err
	}
	if held, err = rw.Downgrade(held); err != nil {
		return err
	}
	if err := renewed(ctx, held); err != nil {
		return err
	}
	if err := rw.RUnlockContext(held); err != nil {
		return err
	}

	sem := b.Semaphore("api", 5)
	if err := sem.Acquire(ctx, 3); err != nil {
		return err
	}
	if err := sem.ReleaseContext(ctx, 1); err != nil {
		return err
	}
	if err := a.Semaphore("api", 6).Resize(ctx); err != nil {
		return err
	}
	if err := sem.ReleaseContext(ctx, 2); err != nil {
		return err
	}
	ma, mb := a.Mutex("orders"), b.Mutex("orders")
	// A waiter that gives up leaves, and one that is forced out is told.
	held, err = ma.LockContext(ctx)
	if err != nil {
		return err
	}
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := mb.LockContext(short); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("a wait that was given up: %w", err)
	}
	if err := b.ForceUnlock(ctx, "orders"); err != nil {
		return err
	}
	select {
	case <-held.Done():
	case <-ctx.Done():
		return errors.New("the holder was not told of ForceUnlock")
	}
	if err := ma.UnlockContext(held); !errors.Is(err, ErrLeaseLost) {
		return fmt.Errorf("unlock after ForceUnlock: %w", err)
	}
	return nil
}

// renewed waits until the lease of a lock has been renewed.
func renewed(ctx, held context.Context) error {
	lease, _ := FromContext(held)
	before := lease.Until()
	return until(ctx, func() (bool, error) { return lease.Until().After(before), context.Cause(held) })
}

// until asks again and again, until the answer is yes.
func until(ctx context.Context, yes func() (bool, error)) error {
	for {
		switch ok, err := yes(); {
		case err != nil || ok:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !sleep(ctx, time.Millisecond):
			return ctx.Err()
		}
	}
}

// deniedTo is what the server has refused to the user, as its ACL LOG has it.
func deniedTo(t *testing.T, s *testserver.Server, user string) []string {
	t.Helper()
	reply, err := s.Do("ACL", "LOG", "10000")
	require.NoError(t, err)
	entries, err := reply.ToArray()
	require.NoError(t, err)
	var objects []string
	for _, e := range entries {
		fields, err := e.AsMap()
		require.NoError(t, err)
		name, object := fields["username"], fields["object"]
		if is, err := name.ToString(); err != nil || is != user {
			continue
		}
		text, err := object.ToString()
		require.NoError(t, err)
		objects = append(objects, text)
	}
	slices.Sort(objects)
	return slices.Compact(objects)
}

// logAll keeps all that was denied in a test.
var logAll = append(slices.Clone(notifying), "--acllog-max-len", "10000")

// asked is what New asks for to know more about the server, and what valkey-go tries by itself: neither
// needs it.
var asked = []string{"config|get", "role", "cluster|slots", "cluster|shards", "client|tracking", "client|setinfo", "unsubscribe", "punsubscribe", "sunsubscribe"}

func TestTheACLLineOfTheReadmeSuffices(t *testing.T) {
	t.Parallel()
	testserver.Each(t, logAll, func(t *testing.T, s *testserver.Server) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		rule := aclRule(t)
		a, err := restricted(t, s, rule)
		require.NoError(t, err)
		b, err := restricted(t, s, rule)
		require.NoError(t, err)
		require.True(t, a.Stats().Notifications)
		require.NoError(t, everything(ctx, a, b, func(string) *testserver.Server { return s }))
		require.Subset(t, asked, deniedTo(t, s, rule[2]))
	})
}

// TestTheACLLineOfTheReadmeHasNothingTooMuch takes one right after the other away: the server refuses what
// needs it.
func TestTheACLLineOfTheReadmeHasNothingTooMuch(t *testing.T) {
	t.Parallel()
	rule := aclRule(t)
	for i, word := range rule {
		if !strings.ContainsAny(word[:1], "+&~") || slices.Contains(ofValkeyGo, word) {
			continue
		}
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			less := slices.Delete(slices.Clone(rule), i, i+1)
			const tries = 5
			for try := 1; ; try++ {
				refused, err := refuses(t, less, word)
				if refused {
					return
				}
				require.Error(t, err, "it works without")
				// Something else went wrong before the right was needed, say, a lease was lost on a busy machine.
				require.Less(t, try, tries, "not refused, but: %v", err)
			}
		})
	}
}

// refuses does everything as a user to whom the rule does not give that right, until the server refuses
// something for want of it. It reports whether that came, or else how everything ended.
func refuses(t *testing.T, rule []string, right string) (refused bool, err error) {
	t.Helper()
	s := testserver.Start(t, testserver.Valkey, logAll...)
	wanted := func(object string) bool {
		if right[0] == '+' {
			return object == right[1:]
		}
		return strings.HasPrefix(object, strings.TrimSuffix(right[1:], "*"))
	}
	now := func() bool { return slices.ContainsFunc(deniedTo(t, s, rule[2]), wanted) }
	a, err := restricted(t, s, rule)
	if err != nil {
		return now(), err
	}
	b, err := restricted(t, s, rule)
	if err != nil {
		return now(), err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	var end error
	done := make(chan struct{})
	go func() {
		defer close(done)
		end = everything(ctx, a, b, func(string) *testserver.Server { return s })
	}()
	defer func() {
		cancel()
		<-done
	}()
	for !now() {
		select {
		case <-done:
			return now(), end
		case <-time.After(10 * time.Millisecond):
		}
	}
	return true, nil
}

// ofValkeyGo is what valkey-go sends on every connection, and can do without: HELLO for RESP3, and the PINGs
// by which it notices a dead connection.
var ofValkeyGo = []string{"+hello", "+ping"}

// In a cluster the second line's rights come to those of the first, on every node.
func TestTheACLLinesOfTheReadmeSufficeInACluster(t *testing.T) {
	t.Parallel()
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			cl := testserver.StartCluster(t, f, 3, 0, logAll...)
			one, more := aclRules(t)
			for _, n := range cl.Nodes() {
				command(t, n, one...)
				command(t, n, more...)
			}
			a, err := ofUser(t, cl.Client(t, asUser(t, one)))
			require.NoError(t, err)
			b, err := ofUser(t, cl.Client(t, asUser(t, one)))
			require.NoError(t, err)
			require.NoError(t, everything(ctx, a, b, func(key string) *testserver.Server { return cl.Primary(cl.Slot(key)) }))
			for _, n := range cl.Nodes() {
				require.Subset(t, asked, deniedTo(t, n, one[2]))
			}
		})
	}
}

// TestTheACLLineOfTheReadmeHasEveryCommandOfTheScripts, whether a test comes upon it or not.
func TestTheACLLineOfTheReadmeHasEveryCommandOfTheScripts(t *testing.T) {
	files, err := filepath.Glob("internal/protocol/scripts/*.lua")
	require.NoError(t, err)
	rule := aclRule(t)
	found := 0
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllSubmatch(b, -1) {
			found++
			right := "+" + strings.ToLower(string(m[1]))
			require.True(t, slices.ContainsFunc(rule, func(word string) bool {
				return word == right || strings.HasPrefix(word, right+"|")
			}), "%s has no %s, which %s needs", rule, right, f)
		}
	}
	require.Greater(t, found, 20)
}
