package ledger

// The rule for Go code in the README and in docs/. Each block marked ```go, and
// nothing else on that line, is a package of its own and has to compile and pass
// go vet:
//
//   - A block with a package clause is a complete file.
//   - A block of declarations (func, type, import …) is one but for the package
//     clause.
//   - Any other block is the body of a function which has
//
//     ctx context.Context, client valkey.Client, locks *valkeysync.Client
//
//     and may return an error or just end.
//
// Blocks of the second and third kind need not import the packages in
// wellKnown. Blocks that show no compiling code are not marked as Go.
//
// The rule for commands: each `go run PATH` and each `make TARGET`, in a block
// marked sh, bash, shell or console or as `inline code`, names a main package
// or a target of this repository. `cd DIR` before it counts.

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/valkeysync/valkeysync"

var wellKnown = map[string]string{
	"context":    "context",
	"errors":     "errors",
	"fmt":        "fmt",
	"http":       "net/http",
	"log":        "log",
	"os":         "os",
	"signal":     "os/signal",
	"slog":       "log/slog",
	"sql":        "database/sql",
	"strings":    "strings",
	"sync":       "sync",
	"time":       "time",
	"valkey":     "github.com/valkey-io/valkey-go",
	"valkeysync": modulePath,
}

func TestReadmeCodeCompiles(t *testing.T) {
	root := repoRoot(t)
	readSources(t, root)
	dir := t.TempDir()
	writeModule(t, root, dir)
	for _, d := range documents(t, root) {
		blocks := goBlocks(t, d)
		if d.name == "README.md" && len(blocks) == 0 {
			t.Fatal("README.md has no block marked ```go")
		}
		for _, b := range blocks {
			source, err := b.source()
			if err != nil {
				t.Errorf("%s:%d: %v", d.name, b.line, err)
				continue
			}
			pkg := filepath.Join(dir, strings.TrimSuffix(d.name, ".md"), fmt.Sprintf("line%d", b.line))
			require.NoError(t, os.MkdirAll(pkg, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(pkg, "readme.go"), []byte(source), 0o644))
		}
	}
	if out, err := vet(dir); err != nil {
		t.Errorf("go vet of the documents' code (README/lineN is the block of README.md that begins there): %v\n%s", err, out)
	}
}

func TestReadmeCommandsExist(t *testing.T) {
	root := repoRoot(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, d := range documents(t, root) {
		commands := shellCommands(d.text)
		if d.name == "README.md" && len(commands) == 0 {
			t.Fatal("README.md mentions no command")
		}
		for _, c := range commands {
			if err := c.check(root, string(makefile)); err != nil {
				t.Errorf("%s:%d: %v", d.name, c.line, err)
			}
		}
	}
}

// document is one of the files that people read.
type document struct {
	name string // from the root of the repository
	text string
}

func documents(t *testing.T, root string) (all []document) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			require.NoError(t, err)
			name, err := filepath.Rel(root, f)
			require.NoError(t, err)
			all = append(all, document{filepath.ToSlash(name), string(b)})
		}
	}
	require.NotEmpty(t, all)
	return all
}

// readSources reads the library's files, for nothing but go test's cache: it
// keeps a result while the files that the test itself has read stay the same,
// and go vet is another process.
func readSources(t *testing.T, root string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	for _, f := range files {
		_, err := os.ReadFile(f)
		require.NoError(t, err)
	}
}

// block is a fenced block: what stands after the fence, its first line's number
// and its text.
type block struct {
	info string
	line int
	text string
}

// fences returns the fenced blocks, and the lines outside of them by number.
func fences(text string) (blocks []block, prose map[int]string) {
	prose = make(map[int]string)
	var open *block
	for i, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence && open == nil:
			open = &block{info: strings.TrimSpace(info), line: i + 2}
		case fence:
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		default:
			prose[i+1] = line
		}
	}
	return blocks, prose
}

func goBlocks(t *testing.T, d document) []block {
	t.Helper()
	all, _ := fences(d.text)
	var blocks []block
	for _, b := range all {
		fields := strings.FieldsFunc(b.info, func(r rune) bool { return r == ' ' || r == ',' || r == '{' })
		if len(fields) == 0 || fields[0] != "go" {
			continue
		}
		if b.info != "go" {
			t.Errorf("%s:%d: a block marked %q: Go that is not compiled is not marked as Go", d.name, b.line, b.info)
			continue
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// source turns a block into a file, by the rule above.
func (b block) source() (string, error) {
	fset := token.NewFileSet()
	if f, err := parser.ParseFile(fset, "", b.text, parser.SkipObjectResolution); f != nil && f.Package.IsValid() {
		return b.text, err
	}
	declarations := "package readme\n\nIMPORTS\n" + b.text
	body := "package readme\n\nIMPORTS\n" +
		"func _(ctx context.Context, client valkey.Client, locks *valkeysync.Client) error {\n\t{\n" +
		b.text + "\t}\n\treturn nil\n}\n"
	var err error
	for _, source := range []string{declarations, body} {
		var f *ast.File
		if f, err = parser.ParseFile(fset, "", strings.Replace(source, "IMPORTS", "", 1), parser.SkipObjectResolution); err == nil {
			return strings.Replace(source, "IMPORTS", imports(f), 1), nil
		}
	}
	return "", fmt.Errorf("neither a file nor declarations nor statements: %w", err)
}

// imports returns import declarations for the well-known packages that a file
// uses and does not import itself.
func imports(f *ast.File) string {
	used := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && wellKnown[x.Name] != "" {
				used[wellKnown[x.Name]] = true
			}
		}
		return true
	})
	for _, i := range f.Imports {
		delete(used, strings.Trim(i.Path.Value, `"`))
	}
	var lines strings.Builder
	for _, path := range slices.Sorted(maps.Keys(used)) {
		fmt.Fprintf(&lines, "import %q\n", path)
	}
	return lines.String()
}

// writeModule makes dir a module that needs the very versions that the
// repository needs, which therefore are in the module cache.
func writeModule(t *testing.T, root, dir string) {
	t.Helper()
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	require.Contains(t, string(mod), "module "+modulePath+"\n")
	text := strings.Replace(string(mod), "module "+modulePath+"\n", "module readme\n", 1)
	text += fmt.Sprintf("\nrequire %s v0.0.0\n\nreplace %s => %q\n", modulePath, modulePath, root)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644))
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644))
}

// vet compiles and vets all packages in dir, without a network.
func vet(dir string) ([]byte, error) {
	// A snippet may return before the return that is added to it.
	cmd := exec.Command("go", "vet", "-unreachable=false", "./...")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	return cmd.CombinedOutput()
}

// command is a make or go run, where it stands, and after which cd.
type command struct {
	line int
	dir  string
	args []string
}

var (
	inlineCode = regexp.MustCompile("`([^`]+)`")
	separators = regexp.MustCompile(`&&|\|\||[;|]`)
	target     = regexp.MustCompile(`(?m)^([A-Za-z0-9_.-]+):(?:[^=]|$)`)
)

func shellCommands(text string) []command {
	blocks, prose := fences(text)
	for line, s := range prose {
		for _, m := range inlineCode.FindAllStringSubmatch(s, -1) {
			blocks = append(blocks, block{info: "sh", line: line, text: m[1]})
		}
	}
	slices.SortStableFunc(blocks, func(a, b block) int { return a.line - b.line })
	var commands []command
	for _, b := range blocks {
		if !slices.Contains([]string{"sh", "bash", "shell", "console"}, b.info) {
			continue
		}
		dir := "."
		for i, line := range strings.Split(b.text, "\n") {
			line, _, _ = strings.Cut(line, "#")
			for _, part := range separators.Split(line, -1) {
				args := strings.Fields(strings.TrimPrefix(strings.TrimSpace(part), "$ "))
				for len(args) > 0 && strings.Contains(args[0], "=") {
					args = args[1:] // VARIABLE=value before a command
				}
				switch {
				case len(args) == 2 && args[0] == "cd":
					dir = filepath.Join(dir, args[1])
				case len(args) > 0 && args[0] == "make", len(args) > 1 && args[0] == "go" && args[1] == "run":
					commands = append(commands, command{line: b.line + i, dir: dir, args: args})
				}
			}
		}
	}
	return commands
}

func (c command) check(root, makefile string) error {
	// cd into the clone, or into a folder that is none of ours, is no news
	// about where in the repository that is.
	base := filepath.Join(root, c.dir)
	if _, err := os.Stat(base); err != nil {
		base = root
	}
	if c.args[0] == "make" {
		return checkMake(c.args[1:], makefile)
	}
	for _, arg := range c.args[2:] {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		path, _, _ := strings.Cut(arg, "@")
		if rest, ok := strings.CutPrefix(path, modulePath); ok {
			return isMain(filepath.Join(root, rest), arg)
		}
		return isMain(filepath.Join(base, path), arg)
	}
	return fmt.Errorf("%q runs nothing", strings.Join(c.args, " "))
}

func checkMake(args []string, makefile string) error {
	var targets []string
	for _, m := range target.FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, m[1])
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") && !strings.Contains(arg, "=") && !slices.Contains(targets, arg) {
			return fmt.Errorf("make has no target %q", arg)
		}
	}
	return nil
}

// isMain looks for a main package in a folder, or at a file of one.
func isMain(path, arg string) error {
	files := []string{path}
	if !strings.HasSuffix(path, ".go") {
		var err error
		if files, err = filepath.Glob(filepath.Join(path, "*.go")); err != nil {
			return err
		}
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.PackageClauseOnly)
		if err == nil && f.Name.Name == "main" {
			return nil
		}
	}
	return fmt.Errorf("go run %s: there is no main package", arg)
}

func TestReadmeCodeRules(t *testing.T) {
	root := repoRoot(t)
	for name, c := range map[string]struct {
		code string
		ok   bool
	}{
		"a file":              {"package main\n\nfunc main() {}\n", true},
		"a broken file":       {"package main\n\nfunc main() { x }\n", false},
		"declarations":        {"import \"io\"\n\nfunc f(r io.Reader) error { return fmt.Errorf(\"%v\", r) }\n", true},
		"statements":          {"if err := ctx.Err(); err != nil {\n\treturn err\n}\nfmt.Println(client)\n", true},
		"a return":            {"return errors.New(\"x\")\n", true},
		"shadowed":            {"client, err := valkey.NewClient(valkey.ClientOption{})\nif err != nil {\n\treturn err\n}\ndefer client.Close()\n", true},
		"an unknown name":     {"fmt.Println(nobody)\n", false},
		"a vet fault":         {"fmt.Printf(\"%d\\n\", \"x\")\n", false},
		"no Go":               {"func { what\n", false},
		"an unused variable":  {"x := 1\n", false},
		"nothing but a quote": {"// a comment\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			source, err := block{text: c.code}.source()
			if err == nil {
				// Without the library, whose own faults are no matter here.
				source = strings.ReplaceAll(source, "locks *valkeysync.Client", "locks any")
				source = strings.ReplaceAll(source, "import \""+modulePath+"\"\n", "")
				dir := t.TempDir()
				writeModule(t, root, dir)
				require.NoError(t, os.WriteFile(filepath.Join(dir, "x.go"), []byte(source), 0o644))
				var out []byte
				if out, err = vet(dir); err != nil {
					err = fmt.Errorf("%w\n%s", err, out)
				}
			}
			require.Equal(t, c.ok, err == nil, "%v\n%s", err, source)
		})
	}
}

func TestReadmeCommandRules(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"cmd/tool", "examples/one", "lib"} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
		pkg := "main"
		if dir == "lib" {
			pkg = "lib"
		}
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "x.go"), []byte("package "+pkg+"\n"), 0o644))
	}
	const makefile = "NAME := x\n.PHONY: test\ntest: servers ## all\n\tdo\nservers:\n"
	fence := func(s string) string { return "```sh\n" + s + "\n```\n" }
	for text, want := range map[string]string{
		fence("make test"): "",
		fence("git clone x/y && cd y && make servers test COUNT=3 # && make tea"): "",
		fence("make test; make tea"):                            `make has no target "tea"`,
		fence("make -j2 bench"):                                 `make has no target "bench"`,
		fence("make NAME"):                                      `make has no target "NAME"`,
		fence("$ X=1 go run -race ./cmd/tool demo"):             "",
		fence("go run " + modulePath + "/cmd/tool@latest demo"): "",
		fence("go run ./cmd/gone"):                              "go run ./cmd/gone: there is no main package",
		fence("go run ./lib"):                                   "go run ./lib: there is no main package",
		fence("cd examples/one\ngo run ."):                      "",
		fence("cd examples/one && go run ./x.go"):               "",
		"see `make test` and `make`":                            "",
		"see `make tea`":                                        `make has no target "tea"`,
		"```text\nmake tea\n```\nmake tea":                      "",
	} {
		t.Run(text, func(t *testing.T) {
			var got string
			for _, c := range shellCommands(text) {
				if err := c.check(root, makefile); err != nil {
					got = err.Error()
				}
			}
			require.Equal(t, want, got)
		})
	}
}
