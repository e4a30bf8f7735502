package page

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/words"
)

// watcher looks at the server for all open pages, from the first that is opened until a while after the last is
// closed.
type watcher struct {
	config Config
	pace   pace
	board  *board
	inbox  *inbox

	mu     sync.Mutex
	closed bool
	open   int
	idle   *time.Timer        // until it stops; nil: none
	stop   context.CancelFunc // of what runs; nil: nothing does
	done   chan struct{}      // closed when the last that was started has ended
	conn   *Connection        // nil: there is none
	news   chan struct{}      // closed, and replaced, when conn is another
	since  time.Time          // since when nobody watches
}

func newWatcher(c Config, pace pace, b *board) *watcher {
	done := make(chan struct{})
	close(done)
	return &watcher{config: c, pace: pace, board: b, inbox: newInbox(), done: done, news: make(chan struct{})}
}

// enter has the server watched until leave. It is refused where most are there already, or the end has come.
func (w *watcher) enter(most int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.open >= most {
		return false
	}
	w.open++
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	if w.stop == nil {
		ctx, stop := context.WithCancel(context.Background())
		before, done, since := w.done, make(chan struct{}), w.since
		w.stop, w.done = stop, done
		go func() {
			defer close(done)
			<-before
			w.run(ctx, since)
		}()
	}
	return true
}

func (w *watcher) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open--; w.open > 0 || w.closed {
		return
	}
	w.idle = time.AfterFunc(w.pace.linger, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open == 0 {
			w.rest()
		}
	})
}

// rest ends what runs, without waiting for it. It is called with the mutex.
func (w *watcher) rest() {
	if w.stop != nil {
		w.stop()
		w.stop, w.since = nil, time.Now()
	}
}

// close ends it, and waits.
func (w *watcher) close() {
	w.mu.Lock()
	w.closed = true
	if w.idle != nil {
		w.idle.Stop()
	}
	w.rest()
	done := w.done
	w.mu.Unlock()
	<-done
}

// locks waits for the connection.
func (w *watcher) locks(ctx context.Context) (*valkeysync.Client, error) {
	for {
		w.mu.Lock()
		conn, news := w.conn, w.news
		w.mu.Unlock()
		if conn != nil {
			return conn.Locks, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *watcher) have(conn *Connection) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conn = conn
	close(w.news)
	w.news = make(chan struct{})
}

// run watches until ctx ends. since: nobody has watched since then; zero: nobody ever has.
func (w *watcher) run(ctx context.Context, since time.Time) {
	if !since.IsZero() {
		w.gap(fmt.Sprintf("No page was open for %s: what was lost meanwhile is not known.", words.Short(time.Since(since).Round(time.Second))))
	}
	lost := false
	for ctx.Err() == nil {
		err := w.session(ctx, func() {
			if lost {
				lost = false
				w.gap("The server is back: what was lost meanwhile is not known.")
			}
		})
		if err == nil { // another session is wanted, or none
			continue
		}
		if !lost && ctx.Err() == nil {
			lost = true
			w.gap(trouble(err) + plain(err))
		}
		w.board.say(state{Phase: down, Text: plain(err)})
		select {
		case <-time.After(w.pace.retry):
		case <-ctx.Done():
		}
	}
	w.board.clear()
	w.board.say(state{Phase: connecting})
}

// trouble is the beginning of a sentence about why nothing is known.
func trouble(err error) string {
	if protocol.Denied(err) {
		return "This user lacks rights, which docs/operations.md has in section The page: "
	}
	return "The server is away: "
}

// gap writes into the log that nothing is known of a time.
func (w *watcher) gap(words string) {
	w.board.note(entry{At: time.Now(), Kind: "gap", Words: words})
}
