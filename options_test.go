package valkeysync

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every option: what it refuses is told by New, or at the first use of the primitive, with the value and the
// remedy; what it takes is in force.
func TestOptions(t *testing.T) {
	for _, c := range []struct {
		name     string
		ofClient bool                 // for New only
		bad      map[string]Option    // the refused ones, by what the error must say
		good     Option               // another value than the default …
		took     func(o options) bool // … and whether it is in force
		edges    []Option             // taken, too
		notNew   bool                 // for a primitive only
	}{
		{
			name: "WithPrefix", ofClient: true, good: WithPrefix("app:"),
			took: func(o options) bool { return o.client.prefix == "app:" },
		},
		{
			name: "WithName", ofClient: true, good: WithName("worker 7"),
			took:  func(o options) bool { return o.client.name == "worker 7" },
			edges: []Option{WithName("x"), WithName(strings.Repeat("x", maxName))},
			bad: map[string]Option{
				`WithName(""): give 1 to 128 bytes`: WithName(""),
				`printable`:                         WithName("a\nb"),
				`give 1 to 128 bytes of`:            WithName(strings.Repeat("x", maxName+1)),
			},
		},
		{
			name: "WithLogger", ofClient: true, good: WithLogger(slog.New(slog.DiscardHandler)),
			took: func(o options) bool { return o.client.logger != slog.Default() },
			bad:  map[string]Option{"WithLogger(nil): leave the option out": WithLogger(nil)},
		},
		{
			name: "WithKeyspaceNotifications", ofClient: true, good: WithKeyspaceNotifications(),
			took: func(o options) bool { return o.client.configure },
		},
		{
			name: "WithLease", good: WithLease(3*time.Second + 7*time.Microsecond),
			took:  func(o options) bool { return o.lease == 3*time.Second },
			edges: []Option{WithLease(100 * time.Millisecond), WithLease(30 * 24 * time.Hour)},
			bad: map[string]Option{
				"WithLease(30ns): give 100ms to 720h0m0s (a number alone counts nanoseconds)": WithLease(30),
				"WithLease(99.999999ms)":        WithLease(100*time.Millisecond - 1),
				"WithLease(720h0m0.000000001s)": WithLease(30*24*time.Hour + 1),
				"WithLease(-1s)":                WithLease(-time.Second),
			},
		},
		{
			name: "WithCrashDetection", good: WithCrashDetection(time.Second),
			took:  func(o options) bool { return o.grace == time.Second },
			edges: []Option{WithCrashDetection(0), WithCrashDetection(100 * time.Millisecond)},
			bad: map[string]Option{
				"WithCrashDetection(2ns): give 100ms to 720h0m0s, or 0 to turn it off": WithCrashDetection(2),
				"WithCrashDetection(-2s)": WithCrashDetection(-2 * time.Second),
			},
		},
		{
			name: "WithTurn", good: WithTurn(time.Millisecond),
			took:  func(o options) bool { return o.turn == time.Millisecond },
			edges: []Option{WithTurn(0), WithTurn(time.Second)},
			bad: map[string]Option{
				"WithTurn(-1ms): give 0 (off) to 1s": WithTurn(-time.Millisecond),
				"WithTurn(1.000000001s)":             WithTurn(time.Second + 1),
			},
		},
		{
			name: "WithLinger", good: WithLinger(time.Second),
			took:  func(o options) bool { return o.linger == time.Second },
			edges: []Option{WithLinger(0), WithLinger(5 * time.Second)},
			bad: map[string]Option{
				"WithLinger(-1s): give a positive time":                     WithLinger(-time.Second),
				"WithLinger(6s): give at most half the lease, which is 10s": WithLinger(6 * time.Second),
			},
		},
		{
			name: "WithReplicas", good: WithReplicas(2),
			took:  func(o options) bool { return o.replicas == 2 },
			edges: []Option{WithReplicas(0)},
			bad:   map[string]Option{"WithReplicas(-1): give how many": WithReplicas(-1)},
		},
		{
			name: "WithMaxHold", good: WithMaxHold(time.Minute),
			took:  func(o options) bool { return o.maxHold == time.Minute },
			edges: []Option{WithMaxHold(0)},
			bad:   map[string]Option{"WithMaxHold(-1s): give a positive time": WithMaxHold(-time.Second)},
		},
		{
			name: "WithReentrancy", good: WithReentrancy(),
			took: func(o options) bool { return o.reentrant },
		},
		{
			name: "WithOwner", notNew: true, good: WithOwner("w"),
			took: func(o options) bool { return o.owner == "w" },
			bad:  map[string]Option{`WithOwner(""): give 1 to 128 bytes of printable text`: WithOwner("")},
		},
		{
			name: "WithOnLost", good: WithOnLost(func(string, error) {}),
			took: func(o options) bool { return o.onLost != nil },
		},
		{name: "nil", bad: map[string]Option{"a nil Option: leave it out": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bubble) {
				use := func(opts ...Option) error {
					m := b.client().Mutex("orders", opts...)
					ctx, err := m.TryLockContext(t.Context())
					if err == nil {
						require.NoError(t, m.UnlockContext(ctx))
					}
					return err
				}
				with := func(opts ...Option) (*Client, error) {
					client, err := New(b.dial(nil), append([]Option{WithLogger(testLogger(t))}, opts...)...)
					if err == nil {
						t.Cleanup(func() { require.NoError(t, client.Close()) })
					}
					return client, err
				}
				for says, bad := range c.bad {
					if !c.notNew {
						_, err := with(bad)
						require.ErrorIs(t, err, ErrInvalidOption)
						require.ErrorContains(t, err, says)
					}
					if !c.ofClient {
						err := use(bad)
						require.ErrorIs(t, err, ErrInvalidOption)
						require.ErrorContains(t, err, says)
					}
				}
				if c.good == nil {
					return
				}
				require.False(t, c.took(defaultOptions()), "another value than the default")
				if c.ofClient {
					require.ErrorContains(t, use(c.good), c.name+" is an option of the whole Client: give it to New")
				} else {
					m := b.client().Mutex("other", c.good)
					require.True(t, c.took(*m.opts))
					require.NoError(t, m.err)
				}
				if c.notNew {
					_, err := with(c.good)
					require.ErrorContains(t, err, "give it to a Mutex")
					return
				}
				for _, good := range append([]Option{c.good}, c.edges...) {
					if c.name == "WithKeyspaceNotifications" {
						break // not on this server: see TestWithKeyspaceNotifications…
					}
					client, err := with(good)
					require.NoError(t, err)
					if c.ofClient {
						break
					}
					require.True(t, c.took(client.opts) || len(c.edges) > 0)
					require.NotErrorIs(t, use(good), ErrInvalidOption)
				}
			})
		})
	}
}

func TestTheDefaultNameIsPrintable(t *testing.T) {
	require.Equal(t, "a?b/c[1]", printable("a\nb/c[1]"))
	require.Len(t, printable(strings.Repeat("x", 500)), maxName)
	require.True(t, strings.HasPrefix(strings.Repeat("é", 500), printable(strings.Repeat("é", 500))))
}
