package page

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// headers are those of every answer. The page loads nothing from elsewhere, has no script but its own file, may
// not be framed, and could not write HTML if it tried.
var headers = map[string]string{
	"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY", // for browsers that know no frame-ancestors
	"Referrer-Policy":              "no-referrer",
	"Cross-Origin-Opener-Policy":   "same-origin",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Permissions-Policy":           "camera=(), geolocation=(), microphone=()",
	"Cache-Control":                "no-store",
}

// guard lets through to next what comes under a name of ours, and not from another site's page. There is no login
// here: these are what keep the pages of others, which the same browser has open, from reading or doing anything.
func guard(hosts []string, next http.Handler) http.Handler {
	// What changes something: refused where the browser says that another origin's page sent it.
	next = http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		if !named(r.Host, hosts) {
			http.Error(w, fmt.Sprintf("This page is not known as %.100q. If it should be: valkeysync ui -host NAME", hostOf(r.Host)), http.StatusForbidden)
			return
		}
		// What changes nothing may be linked to, but not be loaded into another page.
		site, linked := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Sec-Fetch-Dest") == "document"
		if (site == "cross-site" || site == "same-site") && !linked {
			http.Error(w, "another site's page may not load this", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// named says whether a Host header is one of ours: localhost, any address (nobody can have an address lead
// elsewhere), or one of hosts.
func named(header string, hosts []string) bool {
	host := hostOf(header)
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return slices.ContainsFunc(hosts, func(h string) bool { return host != "" && strings.EqualFold(h, host) })
}

// hostOf is a Host header without its port, in lower case.
func hostOf(header string) string {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}
