// Command mutants breaks the library on purpose, one rule at a time, each in a copy of the repository, and
// tells which check of the fault suite found it, and whether the library's own tests did. It is how the
// suite shows that it can find bugs.
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
		limit = flag.Duration("for", 2*time.Minute, "how long the fault suite may look for one")
		lanes = flag.Int("lanes", 3, "worlds beside each other")
		own   = flag.Bool("own", false, "where the fault suite does not find it, run the library's own tests")
		seed  = flag.Uint64("seed", 1, "the first seed")
		logs  = flag.String("logs", "", "a folder for all that the suite and the tests say")
	)
	flag.Parse()
	survived, broken := 0, false
	fmt.Println("| broken on purpose | | found by the fault suite | after | by the library's own tests |\n| --- | --- | --- | --- | --- |")
	for _, m := range mutants {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), m.name) {
			continue
		}
		found, after, tests, err := try(*root, m, *seed, *limit, *lanes, *own, *logs)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", m.name, err)
			broken = true
			continue
		}
		if found == "" && m.edits != nil {
			survived++
			found = "**not found**"
		}
		if found == "" {
			found = "nothing"
		}
		fmt.Printf("| `%s` | %s | %s | %v | %s |\n", m.name, m.why, found, after.Round(time.Second), tests)
	}
	if broken {
		defer os.Exit(2)
	}
	if survived > 0 {
		fmt.Printf("\n%d not found by the fault suite in %v\n", survived, *limit)
	}
}

// try breaks a copy and looks who finds it.
func try(root string, m mutant, seed uint64, limit time.Duration, lanes int, own bool, logs string) (found string, after time.Duration, tests string, err error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return "", 0, "", err
	}
	defer os.RemoveAll(dir)
	if err := copyTree(root, dir); err != nil {
		return "", 0, "", err
	}
	for _, e := range m.edits {
		if err := e.apply(dir); err != nil {
			return "", 0, "", err
		}
	}
	suite := filepath.Join(dir, "chaos.bin")
	if out, err := run(dir+"/chaos", 5*time.Minute, "go", "build", "-o", suite, "./cmd/chaos"); err != nil {
		return "", 0, "", fmt.Errorf("%w\n%s", err, out)
	}
	began := time.Now()
	out, _ := run(dir, limit+time.Minute, suite, "-quiet", "-stop", "-length", "4s", "-for", limit.String(), // its status is in its words
		"-lanes", fmt.Sprint(lanes), "-with", m.with, "-seed", fmt.Sprint(seed), "-acquisitions", "100000000")
	after = time.Since(began)
	found = firstViolation(out)
	if err := keep(logs, m.name+".suite", out); err != nil {
		return "", 0, "", err
	}
	if !own || found != "" {
		return found, after, "", nil
	}
	out, err = run(dir, 10*time.Minute, "go", "test", "-count=1", "-failfast", ".", "./internal/...")
	return found, after, failedTest(out, err), keep(logs, m.name+".tests", out)
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

func failedTest(out string, err error) string {
	if err == nil {
		return "no"
	}
	if m := testFail.FindStringSubmatch(out); m != nil {
		return "`" + m[1] + "`"
	}
	return "yes"
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
