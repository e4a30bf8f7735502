package valkeysync

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Mutex that is not in use is small: a program may have one for each of very many keys.
func TestAnIdleMutexIsSmall(t *testing.T) {
	c := &Client{opts: defaultOptions()}
	const n = 10_000
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("account:%d", i)
	}
	all := make([]*Mutex, n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, key := range keys {
		all[i] = c.Mutex(key)
	}
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / n
	t.Logf("%d bytes, the key apart", each)
	require.LessOrEqual(t, each, uint64(256))
	runtime.KeepAlive(all)
}
