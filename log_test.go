package valkeysync

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// logRow is a row of the table of events in docs/operations.md.
type logRow struct {
	level string
	keys  []string
}

var words = regexp.MustCompile("`([^`]*)`")

func documentedEvents(t *testing.T) map[string]logRow {
	page, err := os.ReadFile("docs/operations.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n### The log\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n#")
	rows := map[string]logRow{}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) != 7 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		name := words.FindStringSubmatch(cells[1])[1]
		require.NotContains(t, rows, name, "twice in the table")
		row := logRow{level: strings.TrimSpace(cells[2])}
		for _, word := range words.FindAllStringSubmatch(cells[3], -1) {
			row.keys = append(row.keys, word[1])
		}
		slices.Sort(row.keys)
		require.NotEmpty(t, strings.TrimSpace(cells[4]), name)
		rows[name] = row
	}
	return rows
}

// loggedKeys are the attributes of each event, by the name of its field, as the code writes them: it must not
// write to a logger in any other way.
func loggedKeys(t *testing.T) map[string][]string {
	files := gotoken.NewFileSet()
	all := map[string]*ast.File{}
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			all[name], err = parser.ParseFile(files, name, nil, 0)
			require.NoError(t, err)
		}
	}
	keys := attributeKeys(t, all["log.go"])
	used := map[string][]string{}
	for name, file := range all {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if slices.Contains([]string{"Debug", "Info", "Warn", "Error", "Log", "LogAttrs"}, method.Sel.Name) && len(call.Args) > 0 && name != "log.go" {
				t.Errorf("%v: a logger is used directly: make it an event in log.go", files.Position(call.Pos()))
			}
			event, ok := method.X.(*ast.SelectorExpr)
			if !ok || method.Sel.Name != "to" {
				return true
			}
			field := event.Sel.Name
			used[field] = append(used[field], []string{}...)
			for _, arg := range call.Args[1:] {
				attribute := arg.(*ast.CallExpr).Fun.(*ast.Ident).Name
				require.Contains(t, keys, attribute)
				if !slices.Contains(used[field], keys[attribute]) {
					used[field] = append(used[field], keys[attribute])
				}
			}
			return true
		})
	}
	return used
}

// attributeKeys are the keys that the functions of log.go give to their attributes.
func attributeKeys(t *testing.T, file *ast.File) map[string]string {
	keys := map[string]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv != nil {
			continue
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
				require.NotContains(t, keys, f.Name.Name)
				keys[f.Name.Name] = strings.Trim(lit.Value, `"`)
			}
			return true
		})
	}
	return keys
}

func TestTheTableOfLogEventsIsComplete(t *testing.T) {
	rows, used := documentedEvents(t), loggedKeys(t)
	all := reflect.ValueOf(events)
	for i := range all.NumField() {
		field := all.Type().Field(i).Name
		name, level := all.Field(i).FieldByName("name").String(), slog.Level(all.Field(i).FieldByName("level").Int())
		require.NotEmpty(t, name, field)
		keys, ok := used[field]
		require.True(t, ok, "%s is never logged", field)
		slices.Sort(keys)
		row, ok := rows[name]
		require.True(t, ok, "docs/operations.md, The log, has no %s", name)
		require.Equal(t, level.String(), row.level, name)
		require.ElementsMatch(t, keys, row.keys, name)
		delete(rows, name)
	}
	require.Empty(t, rows, "there are no such events")
}

func TestLogEventsAreToldApartByTheirName(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		var out bytes.Buffer
		wire := b.tap()
		c := newClient(t, wire, WithLogger(slog.New(slog.NewJSONHandler(&out, nil))), WithPrefix("app:"))
		ctx, err := c.Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		wire.on("renew", loseRequest)
		time.Sleep(4 * time.Second)
		require.NoError(t, c.ForceUnlock(t.Context(), "orders"))
		<-ctx.Done()
		synctest.Wait()
		var got []map[string]any
		for line := range strings.Lines(out.String()) {
			record := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(line), &record))
			delete(record, "time")
			delete(record, "msg")
			got = append(got, record)
		}
		require.Equal(t, []map[string]any{
			{"level": "INFO", "event": "no_notifications"},
			{"level": "WARN", "event": "renewal_failed", "key": "app:orders", "error": `valkeysync: renew "app:orders": ` + errWire.Error(), "left": got[1]["left"]},
			{"level": "WARN", "event": "lease_lost", "key": "app:orders", "cause": "deleted"},
		}, got)
		require.Equal(t, slog.Attr{}, logError(nil))
		require.Equal(t, slog.Any("error", errors.ErrUnsupported), logError(errors.ErrUnsupported))
	})
}
