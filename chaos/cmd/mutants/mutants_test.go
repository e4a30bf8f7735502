package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/model"
)

// A mutant whose place in the code has moved breaks nothing any more and would go unnoticed.
func TestMutantsFitTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		require.Equal(t, m.edits == nil, m.tests == "", m.name)
		require.False(t, names[m.name], m.name)
		names[m.name] = true
		dir := t.TempDir()
		require.NoError(t, copyTree("../../../internal/protocol", dir+"/internal/protocol"))
		for _, file := range []string{"gate.go", "handle.go", "semaphore.go", "several.go", "context.go", "attempt.go", "hold.go", "client.go", "heartbeat.go", "pubsub_link.go", "quorum_take.go", "quorum_drop.go", "quorum_hold.go", "quorum_stake.go", "quorum_turnstile.go"} {
			require.NoError(t, copyTree("../../../"+file, dir+"/"+file))
		}
		for _, e := range m.edits {
			require.NoError(t, e.apply(dir), m.name)
		}
	}
	require.GreaterOrEqual(t, len(mutants), 10)
}

// What a mutant names, the tests that are to find it and the rule that it breaks, is there.
func TestMutantsAreFoundByWhatThereIs(t *testing.T) {
	files, err := filepath.Glob("../../../*_test.go")
	require.NoError(t, err)
	var all strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		all.Write(b)
	}
	rules := map[string]bool{"": true}
	for _, r := range model.Rules() {
		rules[r.String()] = true
	}
	for _, m := range mutants {
		require.True(t, rules[m.rule], "%s: rule %s", m.name, m.rule)
		for name := range strings.SplitSeq(m.tests, "|") {
			require.True(t, name == "" || strings.Contains(all.String(), "func "+name+"(t *testing.T)"), "%s: %s", m.name, name)
		}
	}
}
