package browsertest

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

const (
	// soon is when a test gives up.
	soon = 20 * time.Second
	// evil is another site, which has its name lead here.
	evil = "evil.example"
)

var (
	program string          // valkeysync, built for the tests
	browser context.Context // the one browser of all tests
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "browsertest")
	if err != nil {
		log.Print(err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "valkeysync")
	build := exec.Command("go", "build", "-o", program, "./cmd/valkeysync")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		log.Printf("go build: %v\n%s", err, out)
		return 1
	}
	path, err := chromium()
	if err != nil {
		log.Print(err)
		return 1
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.UserDataDir(filepath.Join(dir, "profile")),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("no-proxy-server", true),
		chromedp.Flag("host-resolver-rules", "MAP "+evil+" 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost"),
	)
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox) // Chromium has no sandbox for root
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	defer stop()
	ctx, end := chromedp.NewContext(allocator)
	defer end()
	if err := chromedp.Do(ctx); err != nil {
		log.Printf("start %s: %v", path, err)
		return 1
	}
	browser = ctx
	return m.Run()
}

// chromium finds the browser.
func chromium() (string, error) {
	if name := os.Getenv("VALKEYSYNC_CHROMIUM"); name != "" {
		return exec.LookPath(name)
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no chromium in PATH: install it with `make servers`, or name one in VALKEYSYNC_CHROMIUM")
}

// process is a running valkeysync.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Reader
}

func start(t *testing.T, s *testserver.Server, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(program, args...)}
	p.cmd.Env = append(os.Environ(), "VALKEYSYNC_URL=valkey://"+s.Addr())
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// holds starts a process that takes a lock, or waits for it, and holds it until it is told to end.
func holds(t *testing.T, s *testserver.Server, key, name string, flags ...string) *process {
	t.Helper()
	return start(t, s, append(append([]string{"run", "-name", name}, flags...), key, "--", "sleep", "600")...)
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// end has a process release what it holds.
func (p *process) end() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	_ = p.cmd.Wait() // its status is that of sleep, which was ended by a signal
}

// serve starts valkeysync ui, and returns the address of the page.
func serve(t *testing.T, s *testserver.Server, flags ...string) (ui *process, url string) {
	t.Helper()
	ui = start(t, s, append([]string{"ui", "-listen", "127.0.0.1:0"}, flags...)...)
	line, err := ui.out.ReadString('\n')
	require.NoError(t, err)
	m := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/`).FindString(line)
	require.NotEmpty(t, m, line)
	return ui, m
}

// tab is a tab of the browser.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	errors []string
}

// open opens a page in a tab of its own. What its scripts do wrong fails the test at its end, and so does a dialog of
// JavaScript's: nobody here opens one.
func open(t *testing.T, url string) *tab {
	t.Helper()
	tab := blank(t)
	require.NoError(t, chromedp.Do(tab.ctx, chromedp.Navigate(url)))
	t.Cleanup(func() {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		require.Empty(t, tab.errors)
	})
	return tab
}

func blank(t *testing.T) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(browser)
	t.Cleanup(cancel)
	tab := &tab{t: t, ctx: ctx}
	note := func(text string) {
		tab.mu.Lock()
		defer tab.mu.Unlock()
		tab.errors = append(tab.errors, text)
	}
	require.NoError(t, chromedp.Do(ctx))
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			note(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *page.EventJavascriptDialogOpening:
			note("dialog: " + e.Message)
		}
	}))
	return tab
}

// until waits until a JavaScript expression is true.
func (tab *tab) until(expression string) {
	tab.t.Helper()
	if _, err := chromedp.Run(tab.ctx, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingTimeout(soon), chromedp.WithPollingInterval(20*time.Millisecond))); err != nil {
		body, _ := chromedp.Run(tab.ctx, chromedp.Evaluate[string](`document.body.innerText`))
		tab.t.Fatalf("not so after %v (%v): %s\n%s", soon, err, expression, body)
	}
}

func eval[T any](tab *tab, expression string) T {
	tab.t.Helper()
	v, err := chromedp.Run(tab.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(tab.t, err, expression)
	return v
}

func (tab *tab) click(selector string) {
	tab.t.Helper()
	ctx, cancel := context.WithTimeout(tab.ctx, soon)
	defer cancel()
	require.NoError(tab.t, chromedp.Do(ctx, chromedp.Click(selector)), selector)
}

func (tab *tab) key(k string) {
	tab.t.Helper()
	require.NoError(tab.t, chromedp.Do(tab.ctx, chromedp.KeyEvent(k)))
}

// row is the row of a lock, as JavaScript.
func row(key string) string {
	return fmt.Sprintf(`[...document.querySelectorAll('#rows > tr')].find((r) => r.querySelector('th bdi').textContent === %q)`, key)
}

// cell is the text in a column of the row, as JavaScript.
func cell(key, head string) string {
	return fmt.Sprintf(`%s?.querySelector('[data-head=%q]')?.textContent`, row(key), head)
}

// heldBy waits until the row of a lock shows its holder, and those who wait for it, in order.
func (tab *tab) heldBy(key, name string, waiting ...string) {
	tab.t.Helper()
	names := func(head string) string {
		return fmt.Sprintf(`[...(%s?.querySelectorAll('[data-head=%q] bdi') || [])].map((e) => e.textContent).join('|')`, row(key), head)
	}
	tab.until(fmt.Sprintf(`%s === %q && %s === %q`, names("Held by"), name, names("Waiting"), strings.Join(waiting, "|")))
}
