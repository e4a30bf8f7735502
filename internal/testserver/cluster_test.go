package testserver_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestClusterMovesSlotsAndFailsOver(t *testing.T) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			c := testserver.StartCluster(t, f, 3, 1)
			require.Len(t, c.Nodes(), 6)
			v := c.Client(t)
			require.Equal(t, valkey.ClientModeCluster, v.Mode())
			for i := range 30 {
				require.NoError(t, v.Do(t.Context(), v.B().Set().Key("k"+strconv.Itoa(i)).Value("v").Build()).Error())
			}

			slot := c.Slot("k1")
			from := c.Primary(slot)
			to := c.Primary((slot + 16384/3) % 16384)
			require.NotSame(t, from, to)
			c.MoveSlot(slot, to)
			require.Same(t, to, c.Primary(slot))
			got, err := v.Do(t.Context(), v.B().Get().Key("k1").Build()).ToString()
			require.NoError(t, err)
			require.Equal(t, "v", got)

			old, next := c.Failover(slot)
			require.Same(t, to, old)
			require.NotSame(t, to, next)
			c.AwaitSettled()
			require.Len(t, c.Replicas(next), 1)
			require.Same(t, old, c.Replicas(next)[0])

			require.Same(t, next, c.KillPrimary(slot))
			c.AwaitSettled()
			require.Same(t, old, c.Primary(slot))
		})
	}
}
