package server

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/internal/certs"
)

// tlsSite returns the certificate of n1, the CA of it, and the files.
func tlsSite(t *testing.T) (store *certs.Store, roots *x509.CertPool, f certs.Files) {
	t.Helper()
	ca, err := certs.NewCA("test", 2*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	n1 := certs.Identity{Kind: certs.Node, Name: "n1"}
	pair, err := ca.Issue(certs.Request{Identity: n1, Hosts: []string{"127.0.0.1"}, Valid: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f = certs.Files{Cert: filepath.Join(dir, "c"), Key: filepath.Join(dir, "k"), CA: filepath.Join(dir, "ca")}
	err = errors.Join(os.WriteFile(f.Cert, pair.Cert, 0o600), os.WriteFile(f.Key, pair.Key, 0o600),
		os.WriteFile(f.CA, ca.Cert, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	store, err = certs.Open(f, certs.ForNode("n1"))
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	return store, roots, f
}

// Whether all callers have moved to TLS is seen by what still comes in clear.
func TestRequestsInClearAreCounted(t *testing.T) {
	t.Parallel()
	for _, mode := range []certs.Mode{certs.Allow, certs.Require} {
		t.Run(string(mode), func(t *testing.T) {
			store, roots, _ := tlsSite(t)
			s := newSite(t, func(c *Config) { c.TLS, c.TLSMode = store, mode })
			tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
			defer tr.CloseIdleConnections()
			secure := strings.Replace(s.url, "http://", "https://", 1)
			counted := func() int {
				t.Helper()
				_, text, _ := strings.Cut(fetch(t, tr, secure+"/metrics"), "\nringlog_tls_plain_requests_total ")
				line, _, _ := strings.Cut(text, "\n")
				n, err := strconv.Atoi(line)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := counted()
			fetch(t, tr, s.url+"/healthz")
			fetch(t, tr, secure+"/healthz")
			if got := counted() - before; got != 1 {
				t.Errorf("%d requests in clear are counted, not 1", got)
			}
		})
	}
}

// fetch returns the body of an answer, whatever its status.
func fetch(t *testing.T, tr http.RoundTripper, url string) string {
	t.Helper()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// One port takes TLS and plain connections, or refuses the requests of plain ones in words.
func TestOnePortTakesTLSAndPlain(t *testing.T) {
	t.Parallel()
	for _, mode := range []certs.Mode{certs.Allow, certs.Require} {
		t.Run(string(mode), func(t *testing.T) {
			store, roots, files := tlsSite(t)
			s := newSite(t, func(c *Config) { c.TLS, c.TLSMode = store, mode })
			host := strings.TrimPrefix(s.url, "http://")
			get := func(scheme, path string, h2 bool) (*http.Response, string) {
				t.Helper()
				tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: h2}
				defer tr.CloseIdleConnections()
				resp, err := (&http.Client{Transport: tr}).Get(scheme + "://" + host + path)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, _ := io.ReadAll(resp.Body)
				return resp, string(text)
			}
			for _, h2 := range []bool{false, true} {
				resp, text := get("https", "/healthz", h2)
				if resp.StatusCode != http.StatusOK || (resp.ProtoMajor == 2) != h2 {
					t.Errorf("over TLS, HTTP/2 %v: %s %s %s", h2, resp.Proto, resp.Status, text)
				}
			}
			resp, text := get("http", "/healthz", false)
			if mode == certs.Allow && resp.StatusCode != http.StatusOK {
				t.Errorf("in clear: %s %s", resp.Status, text)
			}
			if mode == certs.Require && (resp.StatusCode != http.StatusForbidden || !strings.Contains(text, `"tls_required"`)) {
				t.Errorf("in clear: %s %s", resp.Status, text)
			}

			// Files that cannot be used are shown, and the certificate stays in use.
			if err := os.Remove(files.Key); err != nil {
				t.Fatal(err)
			}
			_, _ = store.Reload()
			_, text = get("https", "/metrics", false)
			for _, want := range []string{"\nringlog_tls_files_refused 1\n", "\nringlog_tls_reload_failures_total 1\n",
				"\nringlog_tls_expiry_seconds 3"} { // nearly an hour
				if !strings.Contains(text, want) {
					t.Errorf("no %q in %s", want, text)
				}
			}
		})
	}
}

// A listener that is closed waits for no connection that says nothing, whether it came before that or meanwhile.
func TestClosingWaitsForNoSilentConnection(t *testing.T) {
	for _, meanwhile := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inner := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
			l := newSecureListener(inner, nil)
			near, far := net.Pipe()
			defer far.Close()
			began := time.Now()
			if meanwhile {
				l.cancel()
				l.begin(near)
			} else {
				inner.conns <- near
				synctest.Wait()
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("meanwhile %v: it took %s", meanwhile, took)
			}
		})
	}
}

// pipes is a listener of connections that a test hands to it.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { close(p.closed); return nil }

func (p *pipes) Addr() net.Addr { return nil }
