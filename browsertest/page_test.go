package browsertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

func server(t *testing.T) *testserver.Server {
	t.Helper()
	return testserver.Start(t, testserver.Valkey, "--notify-keyspace-events", "Kgxe")
}

const live = `document.getElementById('phase').dataset.phase === 'live'`

func TestThePageFollowsOtherProcesses(t *testing.T) {
	t.Parallel()
	s := server(t)
	ui, url := serve(t, s)
	tab := open(t, url)
	tab.until(live)
	tab.until(`document.getElementById('none').textContent === 'No lock is held or waited for.'`)

	a := holds(t, s, "orders", "process a")
	tab.heldBy("orders", "process a")
	require.Equal(t, "held", eval[string](tab, cell("orders", "State")))
	require.Regexp(t, `^[0-9]+ s$`, eval[string](tab, cell("orders", "For")))
	require.Regexp(t, `^[0-9] s$`, eval[string](tab, cell("orders", "Lease left")))
	require.Regexp(t, `token [0-9]{19}$`, eval[string](tab, cell("orders", "Held by")))
	b := holds(t, s, "orders", "process b", "-lease", "1s")
	tab.heldBy("orders", "process a", "process b")
	c := holds(t, s, "orders", "process c")
	tab.heldBy("orders", "process a", "process b", "process c")
	a.end()
	tab.heldBy("orders", "process b", "process c")
	require.Empty(t, eval[string](tab, `document.getElementById('log').textContent`), "a hand-over is no loss")
	tab.until(cell("orders", "For") + ` === '1 s'`) // it goes on by itself

	b.signal(syscall.SIGKILL)
	tab.heldBy("orders", "process c")
	tab.until(`document.querySelectorAll('#log > li').length === 1`)
	line := eval[string](tab, `document.querySelector('#log > li').innerText`)
	for _, part := range []string{"orders", "The lease ran out", "process b", "token"} {
		require.Contains(t, line, part)
	}
	tab.until(row("orders") + `.classList.contains("lost")`)
	require.Zero(t, eval[int](tab, `document.querySelectorAll('button:not(dialog button)').length`), "nothing can be unlocked")
	require.True(t, eval[bool](tab, `document.querySelector('thead .act').hidden`))
	c.end()
	tab.until(row("orders") + `?.dataset.state === 'free'`)

	// The program ends while the page is open, and the page says that it does not know any more.
	ui.signal(syscall.SIGINT)
	require.NoError(t, ui.cmd.Wait())
	tab.until(`document.getElementById('phase').dataset.phase === 'away'`)
}

func TestNamesAreTextWhateverTheySay(t *testing.T) {
	t.Parallel()
	s := server(t)
	_, url := serve(t, s, "-allow-unlock")
	tab := open(t, url)
	tab.until(live)
	const image, script = `<img src=x onerror=alert(1)>`, `<script>alert(2)</script>"'&amp;`
	holder := holds(t, s, image, image, "-lease", "1s")
	tab.heldBy(image, image)
	holds(t, s, image, script)
	tab.heldBy(image, image, script)
	require.NoError(t, func() error {
		_, err := s.Do("SET", "\x00\xff\n\u202e<b>", "vs1 1 1 gone#1 m x 1 1000 1000 0 \x1b[2J", "PX", "60000")
		return err
	}())
	tab.heldBy(`"\x00\xff\n\u202e<b>"`, `"\x1b[2J"`)
	tab.click(`button[aria-label*="img"]`)
	tab.until(`document.getElementById('ask').open && document.getElementById('ask-next').textContent.includes('<script>')`)
	require.Equal(t, image, eval[string](tab, `document.getElementById('ask-key').textContent`))
	tab.key(kb.Escape)
	holder.signal(syscall.SIGKILL)
	tab.until(`document.querySelector('#log > li[data-kind=expired]')`)
	require.Contains(t, eval[string](tab, `document.querySelector('#log > li').textContent`), image)
	require.Zero(t, eval[int](tab, `document.querySelectorAll('img, b, script:not([src="page.js"])').length`))

	// And if one ever came through as HTML: the browser itself would not run it.
	require.Equal(t, "TypeError", eval[string](tab, `(() => { try { document.body.innerHTML = '<b>'; return 'written' } catch (e) { return e.name } })()`))
	require.Equal(t, "refused", eval[string](tab, `(() => {
		const s = document.createElement('script');
		try { s.textContent = 'window.ran = true'; document.body.append(s) } catch (e) {}
		return window.ran ? 'ran' : 'refused' })()`))
}

func TestALockIsTakenAfterAQuestion(t *testing.T) {
	t.Parallel()
	s := server(t)
	_, url := serve(t, s, "-allow-unlock")
	tab := open(t, url)
	tab.until(live)
	a := holds(t, s, "orders", "process a")
	tab.heldBy("orders", "process a")
	token := eval[string](tab, cell("orders", "Held by")+`.match(/token ([0-9]+)/)[1]`)

	// Leave it: with the keyboard alone.
	const button = `button[aria-label="Unlock orders…"]`
	eval[chromedp.Void](tab, fmt.Sprintf(`document.querySelector('%s').focus()`, button))
	tab.key(kb.Enter)
	tab.until(`document.getElementById('ask').open`)
	require.Equal(t, "ask-no", eval[string](tab, `document.activeElement.id`), "the harmless one")
	text := eval[string](tab, `document.getElementById('ask').innerText`)
	for _, part := range []string{"orders", "process a", "token " + token, "nobody waits"} {
		require.Contains(t, text, part)
	}
	tab.key(kb.Enter)
	tab.until(`!document.getElementById('ask').open`)
	require.Equal(t, "Unlock orders…", eval[string](tab, `document.activeElement.getAttribute('aria-label')`), "back where it was")
	tab.heldBy("orders", "process a")

	// Take it.
	b := holds(t, s, "orders", "process b")
	tab.heldBy("orders", "process a", "process b")
	tab.click(button)
	tab.until(`document.getElementById('ask').open`)
	tab.click(`#ask-yes`)
	tab.until(`!document.getElementById('ask').open`)
	tab.heldBy("orders", "process b")
	require.Error(t, a.cmd.Wait())
	require.Equal(t, 123, a.cmd.ProcessState.ExitCode(), "it was told that the lock is lost")
	tab.until(`document.querySelectorAll('#log > li').length === 1`)
	require.Regexp(t, "(?s)Taken by unlock on this page.*process a.*"+token, eval[string](tab, `document.querySelector('#log > li').innerText`))

	// Not from another than the one who was shown: the page notices …
	tab.click(button)
	tab.until(`document.getElementById('ask').open`)
	seen := eval[string](tab, `JSON.stringify({ id: asked.id, hold: asked.hold })`)
	c := holds(t, s, "orders", "process c")
	tab.heldBy("orders", "process b", "process c")
	b.end()
	tab.until(`document.getElementById('ask-result').textContent.includes('no longer held')`)
	require.True(t, eval[bool](tab, `document.getElementById('ask-yes').disabled`))
	// … and so would the program if the page did not.
	post := `fetch('unlock', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: %q }).then((r) => r.status)`
	require.Equal(t, http.StatusConflict, eval[int](tab, fmt.Sprintf(post, seen)))
	tab.key(kb.Escape)
	tab.heldBy("orders", "process c")
	c.end()
	require.Equal(t, 1, eval[int](tab, `document.querySelectorAll('#log > li').length`))
}

// What another site's page, open in the same browser, can do.
func TestAnotherSiteGetsNothingAndDoesNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	_, url := serve(t, s, "-allow-unlock")
	own := open(t, url)
	own.until(live)
	holder := holds(t, s, "orders", "process a")
	own.heldBy("orders", "process a")
	own.click(`button[aria-label="Unlock orders…"]`)
	ask := eval[string](own, `JSON.stringify({ id: asked.id, hold: asked.hold })`)

	// A page from another port of this machine, which knows all that it could.
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprint(w, "<!doctype html><title>other</title>")
	}))
	defer other.Close()
	tab := blank(t)
	require.NoError(t, chromedp.Do(tab.ctx, chromedp.Navigate(other.URL)))
	for name, js := range map[string]string{
		"a simple request":         `fetch(%[1]q + 'unlock', { method: 'POST', mode: 'no-cors', body: %[2]q }).then((r) => r.type, () => 'failed')`,
		"a request with JSON":      `fetch(%[1]q + 'unlock', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: %[2]q }).then((r) => 'answered ' + r.status, () => 'failed')`,
		"reading the page":         `fetch(%[1]q).then((r) => r.text(), () => 'failed')`,
		"reading the stream":       `new Promise((done) => { const e = new EventSource(%[1]q + 'events'); e.onmessage = () => done('heard'); e.onerror = () => { e.close(); done('failed') } })`,
		"loading its script":       `new Promise((done) => { const e = document.createElement('script'); e.src = %[1]q + 'page.js'; e.onload = () => done('ran'); e.onerror = () => done('failed'); document.head.append(e) })`,
		"showing it inside itself": `new Promise((done) => { const e = document.createElement('iframe'); e.src = %[1]q; e.onload = () => done(e.contentDocument ? 'readable' : 'failed'); document.body.append(e) })`,
	} {
		got := eval[string](tab, fmt.Sprintf(js, url, ask))
		if name == "a simple request" {
			require.Contains(t, []string{"opaque", "failed"}, got, name) // sent, and refused unseen
		} else {
			require.Equal(t, "failed", got, name)
		}
	}
	// A name of its own that leads here (DNS rebinding).
	require.NoError(t, chromedp.Do(tab.ctx, chromedp.Navigate(strings.Replace(url, "127.0.0.1", evil, 1))))
	require.Contains(t, eval[string](tab, `document.body.innerText`), "not known as")
	require.Equal(t, 403, eval[int](tab, `fetch('events').then((r) => r.status)`))
	require.Equal(t, 403, eval[int](tab, fmt.Sprintf(`fetch('unlock', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: %q }).then((r) => r.status)`, ask)))

	own.heldBy("orders", "process a")
	require.Equal(t, http.StatusOK, eval[int](own, fmt.Sprintf(`fetch('unlock', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: %q }).then((r) => r.status)`, ask)), "the same, from the page itself")
	require.Error(t, holder.cmd.Wait())
}

func TestThousandsOfLocksCanBeFiltered(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := s.Client(t)
	var sets valkey.Commands
	for i := range 5000 {
		value := fmt.Sprintf("vs1 %d %d gone#%d m x 1 10000 1000 0 worker %d", time.Now().UnixMicro(), time.Now().UnixMilli(), i, i)
		sets = append(sets, c.B().Set().Key(fmt.Sprintf("lock %d", i)).Value(value).PxMilliseconds(600_000).Build())
	}
	for _, r := range c.DoMulti(context.Background(), sets...) {
		require.NoError(t, r.Error())
	}
	_, url := serve(t, s)
	tab := open(t, url)
	tab.until(live)
	tab.until(`document.getElementById('count').textContent === '5,000 locks, 4,800 of them not shown: filter to find them'`)
	require.Equal(t, 200, eval[int](tab, `document.querySelectorAll('#rows > tr').length`))
	require.NoError(t, chromedp.Do(tab.ctx, chromedp.SendKeys(`#filter`, "lock 4999")))
	tab.until(`document.querySelectorAll('#rows > tr').length === 1`)
	require.Equal(t, "1 of 5,000 locks match", eval[string](tab, `document.getElementById('count').textContent`))
	tab.heldBy("lock 4999", "worker 4999")
	require.Less(t, eval[float64](tab, `(() => { const t = performance.now(); document.getElementById('filter').value = ''; render(); return performance.now() - t })()`), 1000.0, "ms to show it all again")
}

// On a phone it needs no sideways scrolling, and stays a table for those who hear it.
func TestThePageOnAPhone(t *testing.T) {
	t.Parallel()
	s := server(t)
	_, url := serve(t, s, "-allow-unlock")
	tab := open(t, url)
	require.NoError(t, chromedp.Do(tab.ctx, chromedp.EmulateViewport(360, 740)))
	tab.until(live)
	holds(t, s, strings.Repeat("long", 200), strings.Repeat("name", 25))
	holds(t, s, "orders", "process a")
	tab.heldBy("orders", "process a")
	tab.until(`document.querySelectorAll('#rows > tr').length === 2`)
	require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), 360)
	tree, err := chromedp.Call(tab.ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	require.NoError(t, err)
	roles := map[string]int{}
	for _, n := range tree.Nodes {
		if n.Role != nil && !n.Ignored {
			roles[strings.Trim(string(n.Role.Value), `"`)]++
		}
	}
	require.Equal(t, []int{1, 3, 7, 2, 1}, []int{roles["table"], roles["row"], roles["columnheader"], roles["rowheader"], roles["log"]}, roles)
	require.GreaterOrEqual(t, roles["cell"], 8, "those with something in them")
	tab.click(`button[aria-label="Unlock orders…"]`)
	tab.until(`document.getElementById('ask').open`)
	require.LessOrEqual(t, eval[int](tab, `document.documentElement.scrollWidth`), 360)
}
