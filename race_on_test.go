//go:build race

package valkeysync

// The race detector keeps a quarter of a megabyte for each goroutine that there is, and needs seconds to clear that, in
// which nothing else goes on: what is about very many is run without it as well (make test).
func init() { manyLocks = 200 }
