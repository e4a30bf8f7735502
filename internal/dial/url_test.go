package dial

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAURLSaysAllOfAServer(t *testing.T) {
	o, err := Options("valkeys://u:p@a:1/2?master_set=main&addr=b:2&sentinel_username=su&sentinel_password=sp", time.Second)
	require.NoError(t, err)
	require.Equal(t, []string{"a:1", "b:2"}, o.InitAddress)
	require.Equal(t, []any{"u", "p", 2, time.Second}, []any{o.Username, o.Password, o.SelectDB, o.ConnWriteTimeout})
	require.Equal(t, []string{"main", "su", "sp"}, []string{o.Sentinel.MasterSet, o.Sentinel.Username, o.Sentinel.Password})
	require.Same(t, o.TLSConfig, o.Sentinel.TLSConfig)

	o, err = Options("redis://a?write_timeout=3s&sentinel_password=sp", time.Second)
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, o.ConnWriteTimeout)
	require.Empty(t, o.Sentinel.Password, "there are no sentinels")
}

func TestNoPasswordIsShown(t *testing.T) {
	const url = "valkey://u:hidden@a:1?master_set=main&sentinel_password=hidden"
	require.NotContains(t, Shown(url), "hidden")
	require.Contains(t, Shown(url), "u:xxxxx@a:1")
	require.NoError(t, Check("-url", url))
	for _, wrong := range []string{"http" + url[6:], url + "&db=x", "hidden%", "//u:hidden@a?sentinel_password=hidden"} {
		err := Check("-url", wrong)
		require.Error(t, err, wrong)
		require.NotContains(t, err.Error(), "hidden")
	}
}
