package scan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHelperKeysNameTheirLock(t *testing.T) {
	for key, lock := range map[string]string{
		"{orders}:queue": "orders", "{orders}:fence": "orders", "{a:b}:shared": "a:b",
		"{a}:lock:fence": "{a}:lock", "x{a}y:queue": "x{a}y", "{a}b{c}:queue": "{a}b{c}",
		"orders": "", "orders:queue": "", "{orders}": "", "{orders}:other": "",
	} {
		is, ok := LockOf(key)
		require.Equal(t, lock, is, key)
		require.Equal(t, lock != "", ok, key)
	}
}

func TestAPrefixMatchesItselfAlone(t *testing.T) {
	require.Equal(t, []string{"*"}, Patterns(""))
	require.Equal(t, []string{"a:*", "{a:*"}, Patterns("a:"))
	require.Equal(t, []string{"{a}*"}, Patterns("{a}"))
	require.Equal(t, `a\*\?\[\]\\*`, Patterns(`a*?[]\`)[0])
}
