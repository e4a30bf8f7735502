package valkeysync

import (
	"fmt"
	"testing"
)

// What a lock on several servers costs where nobody else wants it.
func BenchmarkQuorum(b *testing.B) {
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprintf("servers=%d", n), func(b *testing.B) {
			m := newRack(b, n).quorum(b, false, WithLogger(quiet)).Mutex("orders")
			b.ReportAllocs()
			for b.Loop() {
				m.Lock()
				m.Unlock()
			}
		})
	}
}
