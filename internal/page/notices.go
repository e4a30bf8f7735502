package page

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/scan"
)

// event is a notification about one of a lock's keys.
type event struct {
	name string // the server's: "del", "expired", "expire" …; or unlockedHere
	part string // of the lock: "" its own key, or ":queue", ":shared", ":fence"
	at   time.Time
}

const (
	// unlockedHere is the event of a page's own unlock.
	unlockedHere = "unlocked here"
	// omitted stands for events that were too many to keep.
	omitted = "omitted"
)

const (
	// mostHeard is how many keys the inbox has, and mostEvents how many events of one are kept.
	mostHeard  = 20_000
	mostEvents = 64
)

// inbox collects what is heard until the session comes for it. Whoever fills it does not wait.
type inbox struct {
	kick chan struct{} // capacity 1: it is not empty any more

	mu    sync.Mutex
	heard map[string][]event // by lock, or by a key that may be one
	spilt bool               // it was full
}

func newInbox() *inbox { return &inbox{kick: make(chan struct{}, 1), heard: map[string][]event{}} }

func (i *inbox) add(lock string, e event) {
	i.mu.Lock()
	defer i.mu.Unlock()
	events, known := i.heard[lock]
	if !known && len(i.heard) >= mostHeard {
		i.spilt = true
		return
	}
	i.heard[lock] = trim(append(events, e))
	select {
	case i.kick <- struct{}{}:
	default:
	}
}

// trim keeps the first and the latest of too many events, and has one stand for those in between.
func trim(events []event) []event {
	const half = mostEvents / 2
	if len(events) <= mostEvents {
		return events
	}
	last := len(events) - half + 1
	events[half] = event{name: omitted, at: events[last-1].at}
	return slices.Delete(events, half+1, last)
}

// take empties it.
func (i *inbox) take() (heard map[string][]event, spilt bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	heard, spilt = i.heard, i.spilt
	i.heard, i.spilt = map[string][]event{}, false
	return heard, spilt
}

// told are the events that say something of a lock.
var told = []string{"del", "expired", "evicted", "expire", "persist", "rename_from", "rename_to", "move_from", "set", "restore"}

// message takes a notification, on the connection's reader.
func (w *watcher) message(m valkey.PubSubMessage) {
	_, key, ok := strings.Cut(m.Channel, "__:")
	if !ok || !slices.Contains(told, m.Message) {
		return
	}
	e := event{name: m.Message, at: time.Now()}
	if lock, ok := scan.LockOf(key); ok {
		e.part = key[strings.LastIndexByte(key, ':'):]
		key = lock
	}
	if strings.HasPrefix(key, w.config.Prefix) {
		w.inbox.add(key, e)
	}
}

// subscription is what listens to the notifications, on every primary.
type subscription struct {
	conns []valkey.DedicatedClient
	lost  chan error // capacity: of all conns
	stop  chan struct{}
	work  sync.WaitGroup
}

// subscribe listens to all that happens to keys that begin as the locks do. The patterns are those of a key space
// that README.md has an ACL for: a user may hear a pattern only if it was given that very pattern.
func (w *watcher) subscribe(ctx context.Context, nodes []valkey.Client) (*subscription, error) {
	s := &subscription{lost: make(chan error, len(nodes)), stop: make(chan struct{})}
	var patterns []string
	for _, p := range scan.Patterns(w.config.Prefix) {
		patterns = append(patterns, fmt.Sprintf("__keyspace@%d__:%s", w.config.DB, p))
	}
	for _, node := range nodes {
		c, _ := node.Dedicate()
		s.conns = append(s.conns, c)
		ended := c.SetPubSubHooks(valkey.PubSubHooks{OnMessage: w.message})
		if err := c.Do(ctx, c.B().Psubscribe().Pattern(patterns...).Build()).Error(); err != nil {
			s.close()
			return nil, fmt.Errorf("psubscribe %s: %w", strings.Join(patterns, " "), err)
		}
		s.work.Go(func() {
			select {
			case err := <-ended:
				if err == nil {
					err = errors.New("the connection for notifications was closed")
				}
				s.lost <- err
			case <-s.stop:
			}
		})
	}
	return s, nil
}

// close ends it, and waits.
func (s *subscription) close() {
	if s == nil {
		return
	}
	close(s.stop)
	for _, c := range s.conns {
		c.Close()
	}
	s.work.Wait()
}

// ended is told when it has broken; nil: never.
func (s *subscription) ended() <-chan error {
	if s == nil {
		return nil
	}
	return s.lost
}

// primaries are the nodes that speak of their own keys: a replica tells the end of a lease as a DEL.
func primaries(ctx context.Context, c valkey.Client) ([]valkey.Client, error) {
	if c.Mode() != valkey.ClientModeCluster {
		return []valkey.Client{c}, nil
	}
	shards, err := c.Do(ctx, c.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, fmt.Errorf("cluster slots: %w", err)
	}
	nodes := c.Nodes()
	seen := map[string]bool{}
	var found []valkey.Client
	for _, shard := range shards {
		part, err := shard.ToArray()
		if err != nil || len(part) < 3 {
			continue
		}
		primary, err := part[2].ToArray()
		if err != nil || len(primary) < 2 {
			continue
		}
		host, _ := primary[0].ToString()
		port, _ := primary[1].AsInt64()
		addr := fmt.Sprintf("%s:%d", host, port)
		if node := nodes[addr]; node != nil && !seen[addr] {
			seen[addr] = true
			found = append(found, node)
		} else if node == nil {
			return nil, fmt.Errorf("cluster slots names %s, which the client does not know yet", addr)
		}
	}
	return found, nil
}
