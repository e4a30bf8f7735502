package ledger

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

const versionsFile = "docs/operations.md"

// tested is how a row says that all tests run with that version, always.
const tested = "all tests, with every change"

// The table of versions says what the tests run with here, the Go and the servers that are installed, and names the
// oldest Go that go.mod allows. Another minor version than the table's is a failure, so that nobody believes a version
// tested that is not, or the other way round: once it passes, write it into the table.
func TestVersionsAreThoseInTheTable(t *testing.T) {
	root := repoRoot(t)
	text, err := os.ReadFile(filepath.Join(root, versionsFile))
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	here := map[string]string{"Go": submatch(running, runtime.Version())}
	for _, flavor := range testserver.Flavors() {
		binary, err := flavor.Binary()
		require.NoError(t, err)
		out, err := exec.Command(binary, "--version").Output()
		require.NoError(t, err)
		here[serverName[flavor]] = minorVersion(string(out))
	}
	for _, problem := range versionProblems(string(text), submatch(directive, string(mod)), here) {
		t.Error(problem)
	}
}

var serverName = map[testserver.Flavor]string{testserver.Valkey: "Valkey", testserver.Redis: "Redis"}

var (
	directive = regexp.MustCompile(`(?m)^go (\d+\.\d+)`)
	running   = regexp.MustCompile(`^go(\d+\.\d+)`)
	version   = regexp.MustCompile(`v=(\d+\.\d+)\.`)
	rowOf     = regexp.MustCompile(`(?m)^\| (Go|Valkey|Redis) (\d+\.\d+)[^|]* \| ([^|]*) \|`)
)

// minorVersion is major.minor of what a server says to --version.
func minorVersion(out string) string { return submatch(version, out) }

func submatch(re *regexp.Regexp, s string) string {
	if m := re.FindStringSubmatch(s); m != nil {
		return m[1]
	}
	return ""
}

// versionProblems are what is wrong with the table, by the oldest Go and what there is here: a name, and its
// major.minor.
func versionProblems(text, oldest string, here map[string]string) (problems []string) {
	says := map[string]string{} // of a name and a version
	for _, m := range rowOf.FindAllStringSubmatch(text, -1) {
		says[m[1]+" "+m[2]] = strings.TrimSpace(m[3])
	}
	if _, ok := says["Go "+oldest]; !ok {
		problems = append(problems, fmt.Sprintf("%s: the table of versions has no row for Go %s, the oldest that go.mod allows", versionsFile, oldest))
	}
	for _, name := range []string{"Go", "Valkey", "Redis"} {
		is := name + " " + here[name]
		switch how, ok := says[is]; {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s: the table of versions has no row for %s, which is what the tests run with here", versionsFile, is))
		case !strings.HasPrefix(how, tested):
			problems = append(problems, fmt.Sprintf("%s: the row for %s says %q, and not %q, though the tests run with it here", versionsFile, is, how, tested))
		}
	}
	return problems
}

func TestVersionRules(t *testing.T) {
	require.Equal(t, "1.25", submatch(directive, "module x\n\ngo 1.25.0\n"))
	require.Equal(t, "1.26", submatch(running, "go1.26.8"))
	require.Equal(t, "8.0", minorVersion("Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64"))
	table := "| | |\n|-|-|\n| Go 1.26 | " + tested + " |\n| Valkey 8.0 | " + tested + " |\n| Redis 7.0 | by hand |\n"
	here := map[string]string{"Go": "1.26", "Valkey": "8.1", "Redis": "7.0"}
	require.Equal(t, []string{
		"docs/operations.md: the table of versions has no row for Go 1.25, the oldest that go.mod allows",
		"docs/operations.md: the table of versions has no row for Valkey 8.1, which is what the tests run with here",
		`docs/operations.md: the row for Redis 7.0 says "by hand", and not "all tests, with every change", though the tests run with it here`,
	}, versionProblems(table, "1.25", here))
	here["Valkey"] = "8.0"
	require.Empty(t, versionProblems(strings.Replace(table, "by hand", tested+", on Debian", 1), "1.26", here))
}
