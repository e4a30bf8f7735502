package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// certificate writes a certificate, signed by itself, and its key.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &secret.PublicKey, secret)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(secret)
	require.NoError(t, err)
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600))
		return path
	}
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", private), pool
}

// overTLS lets a server be reached over TLS, by those who have the certificate.
func overTLS(t *testing.T, s *testserver.Server, cert, key string, pool *x509.CertPool) string {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(cert, key)
	require.NoError(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", s.Addr())
			if err != nil {
				in.Close()
				return
			}
			go func() {
				_, _ = io.Copy(out, in)
				out.Close()
			}()
			go func() {
				_, _ = io.Copy(in, out)
				in.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func TestRunOverTLS(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Valkey)
	cert, key, pool := certificate(t)
	addr := overTLS(t, s, cert, key, pool)
	r := start(t, "run", "-url", "valkeys://"+addr, "-cacert", cert, "-cert", cert, "-cert-key", key, "k", "--", "echo", "held")
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Equal(t, "held\n", r.stdout.String())

	r = start(t, "doctor", "-url", "valkeys://"+addr)
	require.Equal(t, 1, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "-cacert FILE")
	r = start(t, "doctor", "-url", "valkeys://"+s.Addr()+"?dial_timeout=300ms")
	require.Equal(t, 1, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "FAIL  connect")
}

func TestRunThroughSentinel(t *testing.T) {
	t.Parallel()
	c := testserver.StartSentinel(t, testserver.Valkey, 1)
	r := start(t, "run", "-url", c.URL(), "k", "--", "echo", "held")
	require.Equal(t, 0, r.status(), &r.stderr)
	require.Equal(t, "held\n", r.stdout.String())
	url, _, _ := strings.Cut(c.URL(), "?")
	r = start(t, "doctor", "-url", url)
	require.Equal(t, 1, r.status(), &r.stderr)
	require.Contains(t, r.stdout.String(), "add ?master_set=NAME")
}
