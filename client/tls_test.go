package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/server"
)

// issue makes a certificate, for 127.0.0.1 if it is a node's.
func issue(t *testing.T, ca *certs.CA, who certs.Identity, valid time.Duration) certs.Pair {
	t.Helper()
	r := certs.Request{Identity: who, Valid: valid}
	if who.Kind == certs.Node {
		r.Hosts = []string{"127.0.0.1"}
	}
	pair, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// keyPair returns a certificate for a configuration.
func keyPair(t *testing.T, p certs.Pair) tls.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(p.Cert, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// newCA makes a CA, and what a client needs that trusts it.
func newCA(t *testing.T) (*certs.CA, *tls.Config) {
	t.Helper()
	ca, err := certs.NewCA("test", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	return ca, &tls.Config{RootCAs: roots}
}

// Whatever is wrong with TLS, the error says what to do.
func TestErrorsOfTLSHaveARemedy(t *testing.T) {
	ca, trust := newCA(t)
	other, trustOther := newCA(t)
	n1 := certs.Identity{Kind: certs.Node, Name: "n1"}

	// A node that requires TLS.
	dir, pair := t.TempDir(), issue(t, ca, n1, time.Minute)
	files := certs.Files{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), CA: filepath.Join(dir, "ca")}
	err := errors.Join(os.WriteFile(files.Cert, pair.Cert, 0o600), os.WriteFile(files.Key, pair.Key, 0o600),
		os.WriteFile(files.CA, ca.Cert, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	store, err := certs.Open(files, certs.ForNode("n1"))
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t, func(c *server.Config) { c.TLS, c.TLSMode = store, certs.Require })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- n.server.Serve(l) }() // ends with the server
	address := l.Addr().String()

	// A node without, and one whose certificate has expired.
	plain := httptest.NewServer(n.server.Handler())
	t.Cleanup(plain.Close)
	expired := httptest.NewUnstartedServer(n.server.Handler())
	expired.Config.ErrorLog = log.New(io.Discard, "", 0)
	expired.TLS = &tls.Config{Certificates: []tls.Certificate{keyPair(t, issue(t, ca, n1, time.Nanosecond))}}
	expired.StartTLS()
	t.Cleanup(expired.Close)

	with := func(p certs.Pair) *tls.Config {
		config := trust.Clone()
		shown := keyPair(t, p)
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
		return config
	}
	me := certs.Identity{Kind: certs.Client, Name: "me"}
	for _, test := range []struct {
		name, endpoint string
		config         *tls.Config
		want           string // "" is no error
	}{
		{"all well", "https://" + address, trust, ""},
		{"all well, with a certificate", "https://" + address, with(issue(t, ca, me, time.Minute)), ""},
		{"plain to TLS", "http://" + address, nil, "give its address as https://HOST:PORT, and the cluster's CA"},
		{"TLS to plain", "https://" + plain.Listener.Addr().String(), trust, "give its address as http://"},
		{"unknown CA", "https://" + address, trustOther, "a CA that is not trusted here: give the cluster's with --tls-ca"},
		{"other name", "https://" + strings.Replace(address, "127.0.0.1", "localhost", 1), trust,
			"not of the name localhost"},
		{"expired", "https://" + expired.Listener.Addr().String(), trust, "the node's certificate has expired"},
		{
			"a certificate of another CA", "https://" + address, with(issue(t, other, me, time.Minute)),
			"the node refuses the certificate that it was shown",
		},
		{
			"a certificate that has expired", "https://" + address, with(issue(t, ca, me, time.Nanosecond)),
			"the node refuses the certificate that it was shown",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // each waits until the client's time is up
			within := 2 * time.Second
			if test.want == "" {
				within = 30 * time.Second
			}
			c, err := client.New(client.Config{Endpoints: []string{test.endpoint}, TLS: test.config, Timeout: within})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			}()
			_, err = c.Publish(t.Context(), event.New(event.TrainingProgress, nil))
			if test.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			text := ""
			if err != nil {
				text = err.Error()
			}
			// A node's answer has its remedy in a field of its own.
			if answer, is := errors.AsType[*api.Error](err); is {
				text += answer.Remedy
			}
			if !strings.Contains(text, test.want) {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
}

// Whoever brings an HTTP client configures TLS in that.
func TestTLSBesideAnHTTPClientIsRefused(t *testing.T) {
	t.Parallel()
	_, err := client.New(client.Config{Endpoints: []string{"https://127.0.0.1:1"}, TLS: &tls.Config{},
		HTTPClient: http.DefaultClient})
	if err == nil || !strings.Contains(err.Error(), "TLS is set beside HTTPClient") {
		t.Error(err)
	}
}
