package ledger

// What users may build on is docs/api.txt: a line for each thing that is exported, as of the last release (before the
// first one: as of when the file was made). What is in it and not in the code any more breaks somebody's program, so
// CHANGELOG.md has to announce it: under Unreleased, Changed or Removed, by its name. What is new needs no line there
// until it is released, when `make api` writes the file anew.
//
// Go's own api/ works like that. A name, a type or a signature that changes is a line that is gone; names of
// parameters are none of it. An interface is one line, so that a method more, which breaks those who implement it, is
// a change too; a field more of a struct is a line more.

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var updateAPI = flag.Bool("update-api", false, "write "+apiFile+" anew")

const apiFile = "docs/api.txt"

// The packages of the root module that can be imported from outside, those that are promised and those that are not;
// and the modules that are promised.
var (
	public     = []string{".", "valkeysynctest"}
	unpromised = []string{"model"}
	modules    = []string{"otel"}
)

func TestAPIChangesAreAnnounced(t *testing.T) {
	root := repoRoot(t)
	now := map[string]bool{}
	for _, dir := range slices.Concat(public, modules) {
		maps.Copy(now, exported(t, filepath.Join(root, dir), dir))
	}
	if *updateAPI {
		text := strings.Join(slices.Sorted(maps.Keys(now)), "\n") + "\n"
		require.NoError(t, os.WriteFile(filepath.Join(root, apiFile), []byte(text), 0o644))
	}
	released, err := os.ReadFile(filepath.Join(root, apiFile))
	if err != nil {
		t.Fatalf("%v: `make api` writes it", err)
	}
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	added, gone := compareAPI(string(released), now, announced(string(changelog)))
	for _, line := range added {
		t.Logf("new since the last release: %s", line)
	}
	for _, line := range gone {
		t.Errorf("%s: gone or changed, and CHANGELOG.md does not say so under Unreleased, Changed or Removed: %s", apiFile, line)
	}
}

func TestEveryPackageIsPublicOrNot(t *testing.T) {
	root := repoRoot(t)
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		_, noModule := os.Stat(filepath.Join(path, "go.mod"))
		if path != root && (noModule == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "internal" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		for _, f := range parseDir(t, path) {
			if f.Name.Name != "main" {
				rel, err := filepath.Rel(root, path)
				found = append(found, filepath.ToSlash(rel))
				return err
			}
		}
		return nil
	}))
	require.ElementsMatch(t, slices.Concat(public, unpromised), found,
		"a package that can be imported from outside: add it to public or unpromised above, or put it into internal/")
}

// compareAPI returns the lines that are new, and those that are gone and not announced.
func compareAPI(released string, now map[string]bool, announced map[string]bool) (added, gone []string) {
	before := map[string]bool{}
	for line := range strings.Lines(released) {
		before[strings.TrimSpace(line)] = true
	}
	for line := range before {
		if !now[line] && line != "" && !announced[nameOf(line)] {
			gone = append(gone, line)
		}
	}
	for line := range now {
		if !before[line] {
			added = append(added, line)
		}
	}
	slices.Sort(added)
	slices.Sort(gone)
	return added, gone
}

var code = regexp.MustCompile("`([^`]+)`")

// announced are the names in `code` under Unreleased, Changed or Removed; of a call, what is before the bracket.
func announced(changelog string) map[string]bool {
	names := map[string]bool{}
	release, section := "", ""
	for line := range strings.Lines(changelog) {
		switch {
		case strings.HasPrefix(line, "## "):
			release, section = strings.TrimSpace(line), ""
		case strings.HasPrefix(line, "### "):
			section = strings.TrimSpace(strings.TrimPrefix(line, "### "))
		case release == "## [Unreleased]" && (section == "Changed" || section == "Removed"):
			for _, m := range code.FindAllStringSubmatch(line, -1) {
				name, _, _ := strings.Cut(m[1], "(")
				names[name] = true
			}
		}
	}
	return names
}

// A line is "PACKAGE, KIND NAME REST", where NAME is Type.Method or Type.Field of those.
var lineName = regexp.MustCompile(`^[^ ]+, (?:const|func|type|var|method|field) ([A-Za-z0-9_.]+)`)

func nameOf(line string) string {
	if m := lineName.FindStringSubmatch(line); m != nil {
		return m[1]
	}
	return line
}

// exported returns a line for each exported thing of the package in a folder.
func exported(t *testing.T, folder, dir string) map[string]bool {
	t.Helper()
	lines := map[string]bool{}
	path := "valkeysync"
	if dir != "." {
		path += "/" + dir
	}
	add := func(format string, args ...any) {
		lines[path+", "+fmt.Sprintf(format, args...)] = true
	}
	for _, f := range parseDir(t, folder) {
		for _, decl := range f.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				exportedFunc(d, add)
			case *ast.GenDecl:
				exportedDecl(d, add)
			}
		}
	}
	return lines
}

func exportedFunc(d *ast.FuncDecl, add func(string, ...any)) {
	if !d.Name.IsExported() {
		return
	}
	if d.Recv == nil {
		add("func %s%s", d.Name.Name, signature(d.Type))
		return
	}
	receiver := source(d.Recv.List[0].Type)
	if base := strings.TrimPrefix(receiver, "*"); ast.IsExported(base) {
		add("method %s.%s%s of %s", base, d.Name.Name, signature(d.Type), receiver)
	}
}

func exportedDecl(d *ast.GenDecl, add func(string, ...any)) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.ValueSpec:
			for i, name := range s.Names {
				if !name.IsExported() {
					continue
				}
				rest := ""
				if s.Type != nil {
					rest = " " + source(s.Type)
				}
				if d.Tok == token.CONST && i < len(s.Values) {
					rest += " = " + source(s.Values[i])
				}
				add("%s %s%s", d.Tok, name.Name, rest)
			}
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				exportedType(s, add)
			}
		}
	}
}

func exportedType(s *ast.TypeSpec, add func(string, ...any)) {
	name := s.Name.Name
	st, ok := s.Type.(*ast.StructType)
	if !ok {
		equals := ""
		if s.Assign.IsValid() {
			equals = "= "
		}
		add("type %s %s%s", name, equals, source(s.Type))
		return
	}
	add("type %s struct", name)
	for _, field := range st.Fields.List {
		for _, n := range field.Names {
			if n.IsExported() {
				add("field %s.%s %s", name, n.Name, source(field.Type))
			}
		}
		if len(field.Names) == 0 && ast.IsExported(strings.TrimLeft(source(field.Type), "*")) {
			add("field %s embeds %s", name, source(field.Type))
		}
	}
}

// signature is a function's type without "func" and without the names of its parameters.
func signature(f *ast.FuncType) string {
	bare := func(list *ast.FieldList) *ast.FieldList {
		if list == nil {
			return nil
		}
		out := &ast.FieldList{}
		for _, field := range list.List {
			for range max(len(field.Names), 1) {
				out.List = append(out.List, &ast.Field{Type: field.Type})
			}
		}
		return out
	}
	return strings.TrimPrefix(source(&ast.FuncType{TypeParams: f.TypeParams, Params: bare(f.Params), Results: bare(f.Results)}), "func")
}

var blank = regexp.MustCompile(`\s+`)

// source prints a node on one line.
func source(node ast.Node) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return blank.ReplaceAllString(b.String(), " ")
}

// parseDir parses the files of a folder that are no tests.
func parseDir(t *testing.T, folder string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, f)
	}
	return files
}

func TestAPIRules(t *testing.T) {
	const before = `package p
import "context"
type T struct { A, b int; E }
type E interface { M(); N(x int) error }
type F = func(int)
const C F = 3
var V, w = 1, 2
func New(ctx context.Context, opts ...F) (*T, error) { return nil, nil }
func (t *T) M(a, b int) (n int) { return 0 }
func (t T) m() {}
func Gone[K comparable](k K) {}
`
	api := func(t *testing.T, code string) map[string]bool {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(code), 0o644))
		return exported(t, dir, "p")
	}
	old := slices.Sorted(maps.Keys(api(t, before)))
	require.Equal(t, []string{
		"valkeysync/p, const C F = 3",
		"valkeysync/p, field T embeds E",
		"valkeysync/p, field T.A int",
		"valkeysync/p, func Gone[K comparable](K)",
		"valkeysync/p, func New(context.Context, ...F) (*T, error)",
		"valkeysync/p, method T.M(int, int) int of *T",
		"valkeysync/p, type E interface { M() N(x int) error }",
		"valkeysync/p, type F = func(int)",
		"valkeysync/p, type T struct",
		"valkeysync/p, var V",
	}, old)
	for name, c := range map[string]struct {
		from, to, changelog string
		added, gone         int
	}{
		"nothing":                      {"", "", "", 0, 0},
		"a parameter has another name": {"(a, b int)", "(x, y int)", "", 0, 0},
		"one more":                     {"func Gone", "func More() {}\nfunc Gone", "", 1, 0},
		"one field more":               {"A, b int", "A, B, b int", "", 1, 0},
		"one gone":                     {"func Gone", "func gone", "", 0, 1},
		"one gone, announced":          {"func Gone", "func gone", "## [Unreleased]\n### Removed\n- `Gone(k)`, because", 0, 0},
		"announced as new":             {"func Gone", "func gone", "## [Unreleased]\n### Added\n- `Gone`", 0, 1},
		"announced long ago":           {"func Gone", "func gone", "## [Unreleased]\n## [1.0]\n### Removed\n- `Gone`", 0, 1},
		"a parameter more":             {"(a, b int)", "(a, b, c int)", "", 1, 1},
		"the same, announced":          {"(a, b int)", "(a, b, c int)", "## [Unreleased]\n### Changed\n- `T.M` takes c\n", 1, 0},
		"a method of an interface":     {"M();", "M(); O();", "", 1, 1},
		"another value":                {"= 3", "= 4", "", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			added, gone := compareAPI(strings.Join(old, "\n"), api(t, strings.Replace(before, c.from, c.to, 1)), announced(c.changelog))
			require.Len(t, added, c.added, "%v", added)
			require.Len(t, gone, c.gone, "%v", gone)
		})
	}
}
