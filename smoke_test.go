package valkeysync

import (
	"context"
	"net"
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"
	"log/slog"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

func bubble(t *testing.T) (*miniredis.Miniredis, func(...Option) *Client) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	return m, func(opts ...Option) *Client {
		c, err := valkey.NewClient(valkey.ClientOption{
			InitAddress: []string{"bubble:1"}, DisableCache: true, ForceSingleClient: true,
			DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) { return m.Dial() },
		})
		require.NoError(t, err)
		opts = append([]Option{WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil)))}, opts...)
		vs, err := New(c, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { vs.Close(); c.Close() })
		return vs
	}
}

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubble(t)
		a, b := client(WithName("a")), client(WithName("b"))
		ma, mb := a.Mutex("orders"), b.Mutex("orders")
		ma.Lock()
		require.False(t, mb.TryLock())
		got := make(chan time.Time, 1)
		start := time.Now()
		go func() { mb.Lock(); got <- time.Now() }()
		time.Sleep(time.Minute)
		ma.Unlock()
		require.Equal(t, time.Minute, (<-got).Sub(start))
		mb.Unlock()
		t.Logf("%+v", b.Stats())
		t.Logf("%+v", a.Stats())
	})
}
