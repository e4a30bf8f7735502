// Command mutants breaks the library on purpose, one rule at a time, each in a copy of the repository, and
// tells which of the library's tests that are to find it did, which check of the fault suite did, and which
// rule of the model it breaks. It is how they show that they can find bugs. What nothing finds fails it.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	var (
		root  = flag.String("root", "..", "the repository")
		only  = flag.String("only", "", "the mutants to run, separated by commas")
		limit = flag.Duration("for", 2*time.Minute, "how long the fault suite may look for one; 0: it is not asked")
		lanes = flag.Int("lanes", 3, "worlds beside each other")
		seed  = flag.Uint64("seed", 1, "the first seed")
		logs  = flag.String("logs", "", "a folder for all that the suite and the tests say")
	)
	flag.Parse()
	if *limit < 0 || *lanes < 1 {
		flag.Usage()
		os.Exit(2)
	}
	failed := false
	fmt.Println("| broken on purpose | | found by the test | by the fault suite | after | rule of the model |\n| --- | --- | --- | --- | --- | --- |")
	for _, m := range mutants {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		got, err := try(*root, m, *seed, *limit, *lanes, *logs)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", m.name, err)
			failed = true
			continue
		}
		if found := got.test != "" || got.suite != ""; found != (m.edits != nil) {
			failed = true
		}
		fmt.Printf("| `%s` | %s | %s | %s | %v | %s |\n", m.name, m.why, quoted(got.test, "**none**"), said(got.suite, *limit), got.after.Round(time.Second), quoted(m.rule, ""))
	}
	if failed {
		os.Exit(1)
	}
}

func quoted(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return "`" + s + "`"
}

func said(violation string, limit time.Duration) string {
	switch {
	case limit == 0:
		return "not asked"
	case violation == "":
		return "nothing"
	}
	return violation
}

// result is who found a mutant.
type result struct {
	test  string // the first of the library's tests that failed; "": none
	suite string // what the fault suite found; "": nothing
	after time.Duration
}

// try breaks a copy and looks who finds it.
func try(root string, m mutant, seed uint64, limit time.Duration, lanes int, logs string) (got result, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	if err := copyTree(root, dir); err != nil {
		return result{}, err
	}
	for _, e := range m.edits {
		if err := e.apply(dir); err != nil {
			return result{}, err
		}
	}
	pattern := m.tests
	if m.edits == nil {
		pattern = allTests()
	}
	out, failure := run(dir, 5*time.Minute, "go", "test", "-trimpath", "-vet=off", "-count=1", "-timeout=90s", "-run", "^("+pattern+")$", ".")
	if err := keep(logs, m.name+".tests", out); err != nil {
		return result{}, err
	}
	if got.test = failedTest(out); got.test == "" && failure != nil {
		return result{}, fmt.Errorf("the tests %s: %w\n%s", pattern, failure, out)
	}
	if strings.Contains(out, "no tests to run") {
		return result{}, fmt.Errorf("no tests %s", pattern)
	}
	if limit == 0 {
		return got, nil
	}
	suite := filepath.Join(dir, "chaos.bin")
	if out, err := run(dir+"/chaos", 5*time.Minute, "go", "build", "-trimpath", "-o", suite, "./cmd/chaos"); err != nil {
		return result{}, fmt.Errorf("%w\n%s", err, out)
	}
	began := time.Now()
	out, _ = run(dir, limit+time.Minute, suite, "-quiet", "-stop", "-length", "4s", "-for", limit.String(), // its status is in its words
		"-lanes", fmt.Sprint(lanes), "-with", m.with, "-seed", fmt.Sprint(seed), "-acquisitions", "100000000")
	got.after, got.suite = time.Since(began), firstViolation(out)
	return got, keep(logs, m.name+".suite", out)
}

// allTests is a pattern of all tests that are to find a mutant.
func allTests() string {
	var all []string
	for _, m := range mutants {
		if m.tests != "" {
			all = append(all, m.tests)
		}
	}
	return strings.Join(all, "|")
}

func keep(logs, name, out string) error {
	if logs == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(logs, name), []byte(out), 0o644)
}

func (e edit) apply(dir string) error {
	name := filepath.Join(dir, e.file)
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if n := bytes.Count(b, []byte(e.old)); n != 1 {
		return fmt.Errorf("%s: %d times in it, want once: %q", e.file, n, e.old)
	}
	return os.WriteFile(name, bytes.Replace(b, []byte(e.old), []byte(e.new), 1), 0o644)
}

var (
	violation = regexp.MustCompile(`(?m)^VIOLATION (seed \d+): (.*)$`)
	suiteFail = regexp.MustCompile(`(?m)^SUITE (.*)$`)
	number    = regexp.MustCompile(`[\d.]+(ms|s|µs)\b|w\d+\.\d+(#\d+)?`)
	testFail  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	testRuns  = regexp.MustCompile(`(?m)^\s+(Test\S+) \(.*\)$`) // it never ended
)

// firstViolation is what the suite found first, in short.
func firstViolation(out string) string {
	if m := violation.FindStringSubmatch(out); m != nil {
		what, _, _ := strings.Cut(m[2], " (")
		what = number.ReplaceAllString(what, "…")
		return fmt.Sprintf("%s (%s)", strings.TrimRight(what[:min(len(what), 90)], ":; "), m[1])
	}
	if m := suiteFail.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

// failedTest is the first test that failed, or was running when all ended.
func failedTest(out string) string {
	if m := testFail.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	if m := testRuns.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}

func run(dir string, limit time.Duration, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// copyTree copies the repository without what git keeps.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.Name() == ".git" {
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
}
