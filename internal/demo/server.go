package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/dial"
)

const (
	// silence is when a connection that says nothing counts as dead: well below the lease.
	silence = time.Second
	// callLimit is for the demo's own calls.
	callLimit = 2 * time.Second
	// keep is how long the counter outlives a demo that could not tidy up.
	keep = 10 * time.Minute
)

// place is the server that a demo runs on, and the keys that it uses there.
type place struct {
	URL      string
	Embedded bool
	Prefix   string // with a hash tag, so that the helper keys' names are plain to see

	mini *miniredis.Miniredis
}

// newPlace starts the embedded server where no URL is given.
func newPlace(url string) (*place, error) {
	p := &place{URL: url, Prefix: "{valkeysync-demo:" + strings.ToLower(rand.Text()[:8]) + "}:"}
	if url != "" {
		return p, nil
	}
	p.mini = miniredis.NewMiniRedis()
	p.mini.ClockTTL(true)
	if err := p.mini.Start(); err != nil {
		return nil, fmt.Errorf("start the embedded server: %w; give one with -url", err)
	}
	p.URL, p.Embedded = "redis://"+p.mini.Addr(), true
	return p, nil
}

func (p *place) close() {
	if p.mini != nil {
		p.mini.Close()
	}
}

// String names the server for people.
func (p *place) String() string {
	if p.Embedded {
		return "embedded (miniredis), " + strings.TrimPrefix(p.URL, "redis://")
	}
	return dial.Shown(p.URL)
}

func (p *place) lock() string    { return p.Prefix + "lock" }
func (p *place) counter() string { return p.Prefix + "counter" }

// client connects. What is sent is counted, if count is not nil.
func (p *place) client(count *dial.Commands) (valkey.Client, error) {
	opt, err := dial.Options(p.URL, silence)
	if err != nil {
		return nil, err
	}
	opt.ForceSingleClient = p.Embedded
	count.On(&opt)
	c, err := valkey.NewClient(opt)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", p, err)
	}
	return c, nil
}

// reset sets the counter to 0, which also shows that it may be written.
func (p *place) reset(ctx context.Context, c valkey.Client) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := c.Do(ctx, c.B().Set().Key(p.counter()).Value("0").Px(keep).Build()).Error()
	if err != nil {
		return fmt.Errorf("write the counter: %w", err)
	}
	return nil
}

// read reads the counter.
func (p *place) read(ctx context.Context, c valkey.Client) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	n, err := c.Do(ctx, c.B().Get().Key(p.counter()).Build()).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("read the counter: %w", err)
	}
	return n, nil
}

// write writes the counter.
func (p *place) write(ctx context.Context, c valkey.Client, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	return c.Do(ctx, c.B().Set().Key(p.counter()).Value(fmt.Sprint(n)).Px(keep).Build()).Error()
}

// tidy deletes all that a demo leaves on the server: the counter, and the lock with its helper keys
// (docs/protocol.md names them; the last number given out would lapse within an hour).
func (p *place) tidy(ctx context.Context, c valkey.Client) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	lock := p.lock()
	err := c.Do(ctx, c.B().Del().Key(p.counter(), lock, lock+":shared", lock+":queue", lock+":fence").Build()).Error()
	if err != nil {
		return fmt.Errorf("delete the keys %s*: %w; they lapse by themselves within an hour", p.Prefix, err)
	}
	return nil
}
