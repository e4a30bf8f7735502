// Package ledger checks that what is written is so: that each line of the
// ledger of guarantees, docs/guarantees.md, names a test that exists, and that
// the README's code compiles and its commands name something.
package ledger

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const ledgerFile = "docs/guarantees.md"

// TestLedgerNamesExistingTests: every row of every table of the ledger names at
// least one test, benchmark, example or fuzz target, as `TestName` or
// `TestName/subtest`, and every one that is named anywhere in it exists. (Of a
// subtest only the function is looked for.)
func TestLedgerNamesExistingTests(t *testing.T) {
	root := repoRoot(t)
	text, err := os.ReadFile(filepath.Join(root, ledgerFile))
	if err != nil {
		t.Fatalf("there is no ledger of guarantees: %v", err)
	}
	l := parseLedger(string(text))
	if len(l.rows) == 0 {
		t.Fatalf("%s has no table with a row in it", ledgerFile)
	}
	for _, problem := range l.problems(testFunctions(t, root)) {
		t.Error(problem)
	}
}

// ledger is what the file says.
type ledger struct {
	rows  []row
	named map[string][]int // a test's name, and the lines that name it
}

// row is a line of a table that is neither its head nor the rule below that.
type row struct {
	line  int
	text  string
	tests []string
}

var (
	testName  = regexp.MustCompile("`((?:Test|Benchmark|Example|Fuzz)[A-Z0-9_][A-Za-z0-9_]*)(?:/[^`]*)?`")
	tableRule = regexp.MustCompile(`^\|(\s*:?-+:?\s*\|)+\s*$`)
)

func parseLedger(text string) ledger {
	l := ledger{named: make(map[string][]int)}
	lines := strings.Split(text, "\n")
	fenced := false
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		var tests []string
		for _, m := range testName.FindAllStringSubmatch(line, -1) {
			tests = append(tests, m[1])
			l.named[m[1]] = append(l.named[m[1]], i+1)
		}
		head := i+1 < len(lines) && tableRule.MatchString(strings.TrimSpace(lines[i+1]))
		if strings.HasPrefix(line, "|") && !head && !tableRule.MatchString(line) {
			l.rows = append(l.rows, row{line: i + 1, text: line, tests: tests})
		}
	}
	return l
}

// problems are all the ledger's faults, in the order of its lines.
func (l ledger) problems(exists map[string]bool) []string {
	at := make(map[int][]string)
	for _, r := range l.rows {
		if len(r.tests) == 0 {
			at[r.line] = append(at[r.line], "names no test: "+r.text)
		}
	}
	for name, lines := range l.named {
		for _, line := range lines {
			if !exists[name] {
				at[line] = append(at[line], "there is no "+name)
			}
		}
	}
	var found []string
	for line, faults := range at {
		slices.Sort(faults)
		for _, f := range faults {
			found = append(found, fmt.Sprintf("%s:%05d: %s", ledgerFile, line, f))
		}
	}
	slices.Sort(found)
	for i := range found {
		found[i] = leadingZeros.ReplaceAllString(found[i], ":")
	}
	return found
}

var leadingZeros = regexp.MustCompile(`:0+`)

// testFunctions returns the names of all functions in the repository that go
// test would run, of all its modules.
func testFunctions(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && testName.MatchString("`"+f.Name.Name+"`") {
				names[f.Name.Name] = true
			}
		}
		return nil
	}))
	return names
}

func repoRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(root, "go.mod"))
	return root
}

func TestLedgerRules(t *testing.T) {
	exists := map[string]bool{"TestA": true, "BenchmarkB": true, "ExampleC_method": true, "FuzzD": true}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"all is well": {
			"| promise | test |\n| --- | :---: |\n| one | `TestA`, `BenchmarkB` |\n| two | `ExampleC_method` and `FuzzD/sub` |",
			nil,
		},
		"a row without a test": {
			"|a|b|\n|-|-|\n| one | TestA |\n| two | `Testing` |",
			[]string{"docs/guarantees.md:3: names no test: | one | TestA |", "docs/guarantees.md:4: names no test: | two | `Testing` |"},
		},
		"a test that is gone": {
			"|a|b|\n|-|-|\n| one | `TestA` `TestGone` |\n\nAlso `FuzzGone`.",
			[]string{"docs/guarantees.md:3: there is no TestGone", "docs/guarantees.md:5: there is no FuzzGone"},
		},
		"two tables, and code": {
			"|a|b|\n|-|-|\n| one | `TestA` |\n\ntext\n\n| c | d |\n|---|---|\n| x | y |\n```\n| not a row |\n```\n",
			[]string{"docs/guarantees.md:9: names no test: | x | y |"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, parseLedger(c.text).problems(exists))
		})
	}
}

func TestTestFunctionsAreFound(t *testing.T) {
	names := testFunctions(t, repoRoot(t))
	require.True(t, names["TestTestFunctionsAreFound"])
	require.False(t, names["TestNoSuchThing"])
	require.False(t, names["Testing"])
}
