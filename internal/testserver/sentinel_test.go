package testserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			s := testserver.StartSentinel(t, f, 1)
			v := s.Client(t)
			require.Equal(t, valkey.ClientModeSentinel, v.Mode())
			require.NoError(t, v.Do(t.Context(), v.B().Set().Key("k").Value("v").Build()).Error())

			dead := s.KillPrimary()
			s.AwaitSettled()
			require.NotSame(t, dead, s.Primary())
			dead.Restart()
			s.AwaitSettled()
			require.Len(t, s.Replicas(), 1)
			require.Same(t, dead, s.Replicas()[0])

			from, to := s.Failover()
			s.AwaitSettled()
			require.Same(t, dead, to)
			require.Same(t, to, s.Primary())
			require.Len(t, s.Replicas(), 1)
			require.Same(t, from, s.Replicas()[0])
		})
	}
}
