// Package dial is how the command line names a server: by a URL, which says all that there is to say of
// TLS, user, password, database, Sentinel and Cluster.
package dial

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
)

// refresh is how often the sentinels are asked who the primary is, whatever they said by themselves.
const refresh = 5 * time.Second

// Check says what is wrong with a URL without showing its password, as package flag would. name is the flag
// or the variable that it comes from.
func Check(name, v string) error {
	const like = "give one like valkey://127.0.0.1:6379 or redis://user:password@host:6379/0"
	u, err := url.Parse(v)
	if err != nil {
		return fmt.Errorf("%s is not a URL; %s", name, like)
	}
	if u.Scheme == "" || u.Host == "" && u.Scheme != "unix" {
		return fmt.Errorf("%s %s has no scheme or no host; %s", name, redacted(u), like)
	}
	if _, err := valkey.ParseURL(v); err != nil {
		return fmt.Errorf("%s %s: %s; %s", name, redacted(u), strings.TrimPrefix(err.Error(), "valkey: "), like)
	}
	return nil
}

// Shown is a URL without its password.
func Shown(v string) string {
	u, err := url.Parse(v)
	if err != nil {
		return "the server"
	}
	return redacted(u)
}

// What ParseURL does not know: how to log in to the sentinels, who have users of their own.
const (
	sentinelUser     = "sentinel_username"
	sentinelPassword = "sentinel_password"
)

func redacted(u *url.URL) string {
	if q := u.Query(); q.Has(sentinelPassword) {
		q.Set(sentinelPassword, "xxxxx")
		shown := *u
		shown.RawQuery = q.Encode()
		u = &shown
	}
	return u.Redacted()
}

// Options are those of a client for the URL. A connection that says nothing for silence counts as dead, where
// the URL has no write_timeout. Sentinels are spoken to over TLS where the server is, and logged in to with
// sentinel_username and sentinel_password.
func Options(v string, silence time.Duration) (valkey.ClientOption, error) {
	opt, err := valkey.ParseURL(v)
	if err != nil {
		return opt, err
	}
	opt.DisableCache = true // nothing here reads twice what it may remember
	if opt.ConnWriteTimeout == 0 {
		opt.ConnWriteTimeout = silence
	}
	if opt.Sentinel.MasterSet != "" {
		opt.Sentinel.TLSConfig = opt.TLSConfig
		opt.Sentinel.TopologyRefreshInterval = refresh
		if u, err := url.Parse(v); err == nil {
			opt.Sentinel.Username, opt.Sentinel.Password = u.Query().Get(sentinelUser), u.Query().Get(sentinelPassword)
		}
	}
	return opt, nil
}
