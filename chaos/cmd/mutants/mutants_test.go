package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A mutant whose place in the code has moved breaks nothing any more and would go unnoticed.
func TestMutantsFitTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		require.False(t, names[m.name], m.name)
		names[m.name] = true
		dir := t.TempDir()
		require.NoError(t, copyTree("../../../internal/protocol", dir+"/internal/protocol"))
		for _, file := range []string{"gate.go", "attempt.go", "hold.go", "client.go"} {
			require.NoError(t, copyTree("../../../"+file, dir+"/"+file))
		}
		for _, e := range m.edits {
			require.NoError(t, e.apply(dir), m.name)
		}
	}
	require.GreaterOrEqual(t, len(mutants), 10)
}
