package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// request sends one, with the Host header if it is not "".
func request(t *testing.T, s *served, method, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	transport := &http.Transport{}
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = res.Body.Close()
		transport.CloseIdleConnections()
	})
	return res
}

func get(t *testing.T, s *served, path string, header ...string) *http.Response {
	t.Helper()
	return request(t, s, "GET", path, "", header...)
}

// A name that leads here, but is not ours, is another site's (DNS rebinding).
func TestOnlyNamesOfOursAreAnswered(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	page := serve(t, s, func(c *Config, _ *pace) { c.Hosts = []string{"Locks.example"} })
	for host, status := range map[string]int{
		"localhost": 200, "localhost:7380": 200, "LOCALHOST": 200, "ui.localhost:80": 200, "localhost.": 200,
		"127.0.0.1": 200, "127.0.0.1:7380": 200, "[::1]:7380": 200, "[::1]": 200, "10.1.2.3:7380": 200,
		"locks.example": 200, "locks.example:443": 200, "LOCKS.example.:443": 200,
		"evil.example": 403, "evil.example:7380": 403, "notlocks.example": 403, "locks.example.evil.example": 403,
		"localhost.evil.example": 403, "127.0.0.1.evil.example": 403, "evillocalhost": 403, "127.0.0.1@evil.example": 403,
	} {
		for _, path := range []string{"/", "/page.js", "/nothing"} {
			want := status
			if path == "/nothing" && status == 200 {
				want = 404
			}
			res := get(t, page, path, "Host", host)
			require.Equal(t, want, res.StatusCode, "%s%s", host, path)
		}
		if status != 200 {
			require.Equal(t, 403, get(t, page, "/events", "Host", host).StatusCode, host)
			require.Equal(t, 403, request(t, page, "POST", "/unlock", "{}", "Host", host, "Content-Type", "application/json").StatusCode, host)
		}
	}
}

func TestAnotherOriginsPageGetsNothingAndDoesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	page := serve(t, s, func(c *Config, _ *pace) { c.AllowUnlock = true })
	own := page.url
	for name, c := range map[string]struct {
		header []string
		get    int // of the script
		post   int // of an unlock, which is no good by itself: 400
	}{
		"our page":                            {[]string{"Sec-Fetch-Site", "same-origin", "Origin", own}, 200, 400},
		"the address bar":                     {[]string{"Sec-Fetch-Site", "none"}, 200, 400},
		"no browser":                          {nil, 200, 400},
		"an old browser, our page":            {[]string{"Origin", own}, 200, 400},
		"another site":                        {[]string{"Sec-Fetch-Site", "cross-site", "Origin", "http://evil.example"}, 403, 403},
		"another port":                        {[]string{"Sec-Fetch-Site", "same-site", "Origin", "http://127.0.0.1:1"}, 403, 403},
		"another site, an old browser":        {[]string{"Origin", "http://evil.example"}, 200, 403},
		"a sandboxed frame, an old browser":   {[]string{"Origin", "null"}, 200, 403},
		"a link":                              {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "document", "Sec-Fetch-Mode", "navigate"}, 200, 403},
		"a frame":                             {[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Dest", "iframe", "Sec-Fetch-Mode", "navigate"}, 403, 403},
		"another site, which claims our name": {[]string{"Sec-Fetch-Site", "cross-site", "Origin", own}, 403, 403},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.get, get(t, page, "/page.js", c.header...).StatusCode)
			require.Equal(t, c.post, request(t, page, "POST", "/unlock", "{}", append([]string{"Content-Type", "application/json"}, c.header...)...).StatusCode)
			if c.get != 200 {
				require.Equal(t, 403, get(t, page, "/events", c.header...).StatusCode)
			}
		})
	}
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		require.Contains(t, []int{404, 405}, request(t, page, method, "/unlock", "{}", "Content-Type", "application/json").StatusCode, method)
	}
	for _, form := range []string{"", "application/x-www-form-urlencoded", "text/plain", "multipart/form-data"} {
		require.Equal(t, 415, request(t, page, "POST", "/unlock", "{}", "Content-Type", form).StatusCode, "a form's type")
	}
}

func TestEveryAnswerHasTheHeaders(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	page := serve(t, s, nil)
	for _, path := range []string{"/", "/page.js", "/page.css", "/icon.svg", "/events", "/nothing", "/../page.go"} {
		for _, host := range []string{"localhost", "evil.example"} {
			h := get(t, page, path, "Host", host).Header
			csp := h.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "require-trusted-types-for 'script'"} {
				require.Contains(t, csp, want, path)
			}
			require.NotContains(t, csp, "unsafe")
			require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"))
			require.Equal(t, "no-referrer", h.Get("Referrer-Policy"))
			require.Empty(t, h.Get("Access-Control-Allow-Origin"))
		}
	}
}

// The policy forbids what stands in the markup itself, and nothing that somebody named is ever read as markup.
func TestThePageHasNoMarkupThatThePolicyForbids(t *testing.T) {
	t.Parallel()
	html, err := files.ReadFile("files/index.html")
	require.NoError(t, err)
	require.NotRegexp(t, `<script[^>]*>[^<]|\son[a-z]+=|\sstyle=|<style|javascript:|https?://`, string(html))
	script, err := files.ReadFile("files/page.js")
	require.NoError(t, err)
	require.NotRegexp(t, `innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function`, string(script))
}
