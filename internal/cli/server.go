package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/dial"
)

const (
	urlVariable    = "VALKEYSYNC_URL"
	prefixVariable = "VALKEYSYNC_PREFIX"
	defaultURL     = "valkey://127.0.0.1:6379"

	// silence is when a connection that says nothing counts as dead: well below the lease.
	silence = 2 * time.Second
	// callLimit is for a command's own calls.
	callLimit = 5 * time.Second
)

// serverUsage is the part of the help that all commands share.
const serverUsage = `
The server (all commands but demo, which has a server inside unless it is given a -url):
  -url URL       valkey://, valkeys:// (TLS), redis://, rediss:// (TLS) or unix://, as in
                 valkey://user:password@host:6379/0. Sentinel: valkey://host:26379?master_set=NAME
                 (&sentinel_password=…, &sentinel_username=… where the sentinels want one).
                 Cluster: the URL of any node, and &addr=host:port for more of them.
                 Default: $VALKEYSYNC_URL (which no list of processes shows), else
                 valkey://127.0.0.1:6379
  -prefix P      put before every key, as WithPrefix does (default: $VALKEYSYNC_PREFIX, else none)
  -cacert FILE, -cert FILE, -cert-key FILE
                 TLS: the certificate that the server's is signed with, and a client's own
`

// server is the server that a command speaks to.
type server struct {
	url, prefix           string
	cacert, cert, certKey string
	from                  string // the flag or the variable of the URL
}

// serverFlags adds the flags that say which one.
func serverFlags(w World, f *flag.FlagSet) *server {
	s := &server{url: w.Getenv(urlVariable), prefix: w.Getenv(prefixVariable), from: urlVariable}
	if s.url == "" {
		s.url = defaultURL
	}
	f.Func("url", "", func(v string) error {
		s.url, s.from = v, "-url"
		return nil
	})
	f.StringVar(&s.prefix, "prefix", s.prefix, "")
	f.StringVar(&s.cacert, "cacert", "", "")
	f.StringVar(&s.cert, "cert", "", "")
	f.StringVar(&s.certKey, "cert-key", "", "")
	return s
}

// options are those of a client for the server.
func (s *server) options() (valkey.ClientOption, error) {
	if err := dial.Check(s.from, s.url); err != nil {
		return valkey.ClientOption{}, usageError{err}
	}
	opt, err := dial.Options(s.url, silence)
	if err != nil {
		return opt, usageError{err}
	}
	if s.cacert+s.cert+s.certKey == "" {
		return opt, nil
	}
	if opt.TLSConfig == nil {
		return opt, usageError{errors.New("-cacert, -cert and -cert-key are for TLS: give a URL that begins with valkeys:// or rediss://")}
	}
	return opt, s.certificates(opt.TLSConfig)
}

func (s *server) certificates(c *tls.Config) error {
	if s.cacert != "" {
		pem, err := os.ReadFile(s.cacert)
		if err != nil {
			return usageError{fmt.Errorf("-cacert: %w", err)}
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return usageError{fmt.Errorf("-cacert %s has no certificate in PEM form", s.cacert)}
		}
	}
	if (s.cert == "") != (s.certKey == "") {
		return usageError{errors.New("-cert and -cert-key go together")}
	}
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.certKey)
		if err != nil {
			return usageError{fmt.Errorf("-cert and -cert-key: %w", err)}
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// connect connects. What is sent is counted, if count is not nil.
func (s *server) connect(count *dial.Commands) (valkey.Client, error) {
	opt, err := s.options()
	if err != nil {
		return nil, err
	}
	count.On(&opt)
	c, err := valkey.NewClient(opt)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", dial.Shown(s.url), err)
	}
	return c, nil
}

// locks connects, and makes a Client. The returned function ends both.
func (s *server) locks(w World, opts ...valkeysync.Option) (*valkeysync.Client, func(), error) {
	locks, _, end, err := s.both(w, nil, opts...)
	return locks, end, err
}

func (s *server) both(w World, count *dial.Commands, opts ...valkeysync.Option) (*valkeysync.Client, valkey.Client, func(), error) {
	c, err := s.connect(count)
	if err != nil {
		return nil, nil, nil, err
	}
	opts = append([]valkeysync.Option{valkeysync.WithLogger(w.logger()), valkeysync.WithPrefix(s.prefix)}, opts...)
	locks, err := valkeysync.New(c, opts...)
	if err != nil {
		c.Close()
		return nil, nil, nil, err
	}
	return locks, c, func() {
		_ = locks.Close()
		c.Close()
	}, nil
}
