// Package page is the page of `valkeysync ui`: who holds what, since when, who waits, and what was lost, as it
// happens, in a browser.
//
//	page.go      what it is given, its life, its routes
//	guard.go     what a request must be like: whose page it comes from, by which name
//	stream.go    server-sent events: a snapshot, then what changes
//	unlock.go    taking a lock from whoever was seen to hold it
//	board.go     what all open pages show, and who has seen how much of it
//	view.go      a lock as a page gets it
//	watcher.go   the one who looks at the server, while a page is open
//	session.go   one connection of it: the list of locks, and looks at what has changed
//	notices.go   the server's keyspace notifications
//	losses.go    how a hold ended, as far as that can be known from outside
//	files/       the page itself
//
// However many pages are open, the server is asked once: they share one watcher, one subscription and one look at
// each lock. While none is open nothing is connected to the server at all.
package page

import (
	"context"
	"embed"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

//go:embed files
var files embed.FS

// Config is what a Page is given.
type Config struct {
	// Connect connects to the server. It is called when a page is opened while none was, and after a connection
	// was lost.
	Connect func() (*Connection, error)
	Server  string // what is looked at, for people
	Prefix  string // of the keys of the locks that are shown
	DB      int    // for the names of keyspace channels
	// Hosts are the names by which the page may be asked for, besides localhost and addresses: whoever owns
	// another name could have it lead here, and read in a victim's browser what we answer (DNS rebinding).
	Hosts       []string
	AllowUnlock bool
}

// Connection is what is needed of the server.
type Connection struct {
	Locks  *valkeysync.Client // with the Prefix
	Client valkey.Client
	Close  func()
}

// name is the name of a key for a Client with the prefix.
func (c *Config) name(key string) string { return strings.TrimPrefix(key, c.Prefix) }

// Page serves the page. It is an http.Handler.
type Page struct {
	config Config
	pace   pace
	board  *board
	watch  *watcher
	routes http.Handler

	ctx    context.Context // of all streams
	cancel context.CancelFunc
}

// pace is how often what is done.
type pace struct {
	tick      time.Duration // between two rounds of looks
	most      int           // looks in a round
	blind     time.Duration // how old a look may get without notifications
	list      time.Duration // between two lists of the locks without notifications, at least
	rest      int           // and at least so many times as long as a list takes, however many keys there are
	old       time.Duration // how old a look may get with them
	mapped    time.Duration // between two questions whether a cluster's primaries are the same
	judge     time.Duration // how long notifications may be behind a look
	fade      time.Duration // how long a lock that is free again is shown
	linger    time.Duration // how long the server is watched after the last page
	retry     time.Duration // between two tries to connect
	push      time.Duration // between two messages to a page
	alive     time.Duration // after which a page gets a sign of life
	writing   time.Duration // how long a page may take to read
	locks     int           // how many are kept
	keys      int           // how many keys of each primary a list looks at
	streams   int           // how many pages may be open
	unlocking time.Duration
}

func usualPace() pace {
	return pace{
		tick: 100 * time.Millisecond, most: 100,
		blind: 2 * time.Second, list: 10 * time.Second, rest: 20, old: time.Minute, mapped: 5 * time.Second,
		judge: 500 * time.Millisecond, fade: 30 * time.Second,
		linger: 3 * time.Second, retry: time.Second,
		push: 100 * time.Millisecond, alive: 15 * time.Second, writing: 10 * time.Second,
		locks: 10_000, keys: 1_000_000, streams: 200,
		unlocking: 5 * time.Second,
	}
}

// New makes a Page. It starts nothing and asks nobody until a page is opened. Close it.
func New(c Config) *Page { return newPage(c, usualPace()) }

func newPage(c Config, pace pace) *Page {
	p := &Page{config: c, pace: pace, board: newBoard()}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.watch = newWatcher(c, pace, p.board)

	content, err := fs.Sub(files, "files")
	if err != nil {
		panic(err) // the files are part of the program
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(content))
	mux.HandleFunc("GET /events", p.stream)
	mux.HandleFunc("POST /unlock", p.unlock)
	p.routes = guard(c.Hosts, mux)
	return p
}

func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.routes.ServeHTTP(w, r) }

// Close ends all streams and the watcher, and waits for it; requests that run still end by themselves.
func (p *Page) Close() {
	p.cancel()
	p.watch.close()
}
