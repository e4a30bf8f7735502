package valkeysync

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lateConn holds back what is written while late is not 0.
type lateConn struct {
	net.Conn
	late *atomic.Int64
}

func (c *lateConn) Write(p []byte) (int, error) {
	time.Sleep(time.Duration(c.late.Load()))
	return c.Conn.Write(p)
}

// The request for the lock waits for a connection for most of the grace: so much of it has passed when the
// hold begins, and the first beat, a third of the grace later, would come too late.
func TestHoldThatBeginsLateInItsGraceIsNotLost(t *testing.T) {
	for _, late := range []time.Duration{700 * time.Millisecond, 1500 * time.Millisecond, 1900 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t)
			var hold atomic.Int64
			c := newClient(t, b.dial(func(c net.Conn) net.Conn { return &lateConn{c, &hold} }), WithLease(30*time.Second), WithCrashDetection(defaultGrace))
			hold.Store(int64(late))
			time.AfterFunc(late/2, func() { hold.Store(0) })
			ctx, err := c.Mutex("k").LockContext(t.Context())
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			require.NoError(t, ctx.Err(), "asked %v before it was granted", late)
		})
	}
}
