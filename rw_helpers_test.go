package valkeysync

import (
	"slices"
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

// async runs f beside the test; what it returns is received once it is through.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// rlock and wlock begin to lock in the background, and write name into the order once they have it. They
// end with the test.
func rlock(t *testing.T, rw *RWMutex, order chan<- string, name string) {
	go func() {
		if _, err := rw.RLockContext(t.Context()); err == nil {
			order <- name
		}
	}()
	synctest.Wait()
}

func wlock(t *testing.T, rw *RWMutex, order chan<- string, name string) {
	go func() {
		if _, err := rw.LockContext(t.Context()); err == nil {
			order <- name
		}
	}()
	synctest.Wait()
}

// drained is what is in the channel, sorted.
func drained(order <-chan string) []string {
	synctest.Wait()
	got := []string{}
	for len(order) > 0 {
		got = append(got, <-order)
	}
	slices.Sort(got)
	return got
}
