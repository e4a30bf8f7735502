//go:build slow

package testserver_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func TestSentinelsFailOver(t *testing.T) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			s := testserver.StartSentinel(t, f, 1)
			v := s.Client(t)
			require.Equal(t, valkey.ClientModeSentinel, v.Mode())
			require.NoError(t, v.Do(t.Context(), v.B().Set().Key("k").Value("v").Build()).Error())

			dead := s.KillPrimary()
			s.AwaitSettled()
			require.NotEqual(t, dead, s.Primary())
			dead.Restart()
			s.AwaitSettled()
			require.Equal(t, []*testserver.Server{dead}, s.Replicas())

			from, to := s.Failover()
			s.AwaitSettled()
			require.Equal(t, dead, to)
			require.Equal(t, to, s.Primary())
			require.Equal(t, []*testserver.Server{from}, s.Replicas())
		})
	}
}
