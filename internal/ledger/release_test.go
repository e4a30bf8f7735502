package ledger

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// The replace in a module's go.mod is for this repository alone: whoever gets the module from outside gets the root
// that it requires. So at a release the modules that are promised must require that release, and not the one before.
func TestPromisedModulesRequireTheLastRelease(t *testing.T) {
	root := repoRoot(t)
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	for _, module := range modules {
		mod, err := os.ReadFile(filepath.Join(root, module, "go.mod"))
		require.NoError(t, err)
		require.Equal(t, lastRelease(string(changelog)), requiredRoot(string(mod)),
			"%s/go.mod: go mod edit -require=github.com/valkeysync/valkeysync@%s (CONTRIBUTING.md, Releasing)", module, lastRelease(string(changelog)))
	}
}

var (
	releaseHeading = regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+[^\]]*)\]`)
	rootRequired   = regexp.MustCompile(`(?m)^(?:require)?\s+github\.com/valkeysync/valkeysync (v\S+)`)
)

// lastRelease is the newest version in CHANGELOG.md; before the first one there is only what is here.
func lastRelease(changelog string) string {
	if v := submatch(releaseHeading, changelog); v != "" {
		return "v" + v
	}
	return "v0.0.0"
}

func requiredRoot(mod string) string { return submatch(rootRequired, mod) }

func TestReleaseRules(t *testing.T) {
	require.Equal(t, "v0.0.0", lastRelease("# Changelog\n\n## [Unreleased]\n"))
	require.Equal(t, "v0.2.0-rc.1", lastRelease("## [Unreleased]\n\n## [0.2.0-rc.1] - 2027-01-31\n\n## [0.1.0] - 2026-12-24\n"))
	require.Equal(t, "v0.1.0", requiredRoot("module github.com/valkeysync/valkeysync/otel\n\nrequire (\n\tgithub.com/valkeysync/valkeysync v0.1.0\n)\n\nreplace github.com/valkeysync/valkeysync => ../\n"))
	require.Equal(t, "v0.1.0", requiredRoot("require github.com/valkeysync/valkeysync v0.1.0\n"))
}
