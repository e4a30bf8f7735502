package valkeysync

import (
	"testing"
	"testing/synctest"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// eachServer is testserver.Each with the flavors, and all such tests, beside each other.
func eachServer(t *testing.T, args []string, fn func(t *testing.T, s *testserver.Server)) {
	t.Parallel()
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			fn(t, testserver.Start(t, f, args...))
		})
	}
}

// away has the server answer nothing but that it is loading, until SetError(""). What is under way is
// answered first: a real server lets UNSUBSCRIBE pass while it loads, and valkey-go relies on that.
func (b *bubble) away() {
	synctest.Wait()
	b.SetError("LOADING")
}
