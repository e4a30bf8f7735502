//go:build race

package model

// The model has no goroutines, and the race detector makes it many times slower: what is left with it is a
// look at the beginning of each configuration.
func init() { few = 15_000 }
