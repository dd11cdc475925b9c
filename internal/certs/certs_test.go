package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const year = 365 * 24 * time.Hour

// place is a folder with the files of a CA and of what it has issued.
type place struct {
	testing.TB
	dir string
	ca  *CA
}

func newPlace(t testing.TB) place {
	t.Helper()
	ca, err := NewCA("test", 2*year)
	if err != nil {
		t.Fatal(err)
	}
	p := place{t, t.TempDir(), ca}
	p.write("ca.pem", ca.Cert, 0o644)
	return p
}

func (p place) write(name string, data []byte, mode os.FileMode) string {
	p.Helper()
	file := filepath.Join(p.dir, name)
	if err := errors.Join(os.WriteFile(file, data, mode), os.Chmod(file, mode)); err != nil {
		p.Fatal(err)
	}
	return file
}

// issue writes the certificate of somebody, in place of the last one.
func (p place) issue(i Identity, valid time.Duration) Files {
	p.Helper()
	r := Request{Identity: i, Valid: valid}
	if i.Kind == Node {
		r.Hosts = []string{"127.0.0.1", "localhost"}
	}
	pair, err := p.ca.Issue(r)
	if err != nil {
		p.Fatal(err)
	}
	return Files{Cert: p.write("own.pem", pair.Cert, 0o644), Key: p.write("own-key.pem", pair.Key, 0o600),
		CA: filepath.Join(p.dir, "ca.pem")}
}

func TestIdentityOf(t *testing.T) {
	for text, want := range map[string]string{
		"ringlog://node/n1":                          "ringlog://node/n1",
		"ringlog://client/a.b-c_d":                   "ringlog://client/a.b-c_d",
		"spiffe://x/y ringlog://node/n1":             "ringlog://node/n1",
		"":                                           "",
		"https://node/n1":                            "",
		"ringlog://node/":                            "",
		"ringlog://node/n1/":                         "",
		"ringlog://node//n1":                         "",
		"ringlog://node/n%31":                        "",
		"ringlog://node/n1?x=y":                      "",
		"ringlog://node/n1#x":                        "",
		"ringlog://node:80/n1":                       "",
		"ringlog://me@node/n1":                       "",
		"ringlog://NODE/n1":                          "",
		"ringlog://admin/n1":                         "",
		"ringlog:node/n1":                            "",
		"ringlog://node/n1 ringlog://node/n2":        "",
		"ringlog://node/n1 ringlog://client/n1":      "",
		"ringlog://node/n1 ringlog://node/n1":        "",
		"ringlog://node/" + strings.Repeat("x", 65):  "",
		"ringlog://node/n1%0a":                       "",
		"ringlog://node/n1%00.other ringlog://x/y/z": "",
	} {
		c := &x509.Certificate{}
		for field := range strings.FieldsSeq(text) {
			u, err := url.Parse(field)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		i, err := IdentityOf(c)
		if (want == "" && !errors.Is(err, ErrNoIdentity)) || (want != "" && (err != nil || i.String() != want)) {
			t.Errorf("%q is of %v, %v; want %q", text, i, err, want)
		}
	}
}

// Each error names the file and what is wrong with it.
func TestBadFilesAreRefusedByName(t *testing.T) {
	n1 := Identity{Node, "n1"}
	type spoil = func(p place, f *Files)
	for name, test := range map[string]struct {
		spoil spoil
		want  string // %s is the folder
	}{
		"no certificate": {
			func(p place, f *Files) { f.Cert = filepath.Join(p.dir, "none.pem") }, "none.pem: no such file",
		},
		"no key":   {func(_ place, f *Files) { os.Remove(f.Key) }, "own-key.pem: no such file"},
		"no CA":    {func(_ place, f *Files) { os.Remove(f.CA) }, "ca.pem: no such file"},
		"a folder": {func(p place, f *Files) { f.CA = p.dir }, "is a directory"},
		"open key": {
			func(_ place, f *Files) { os.Chmod(f.Key, 0o604) },
			"own-key.pem can be read by others (mode 0604): chmod 600",
		},
		"empty": {
			func(p place, _ *Files) { p.write("own.pem", nil, 0o644) },
			"own.pem: there is no certificate in PEM in it",
		},
		"cut": {
			func(_ place, f *Files) { os.Truncate(f.Cert, 300) }, "own.pem: there is no certificate in PEM in it",
		},
		"damaged": {func(p place, f *Files) { p.damage(f.Cert) }, "own.pem: certificate 1: x509: "},
		"key without PEM": {
			func(p place, _ *Files) { p.write("own-key.pem", []byte("secret"), 0o600) },
			"own-key.pem do not belong together: tls: failed to find any PEM data in key input",
		},
		"huge": {func(_ place, f *Files) { os.Truncate(f.CA, 2<<20) }, "ca.pem is larger than 1048576 bytes"},
		"another's key": {
			func(p place, _ *Files) { p.write("own-key.pem", p.ca.Key, 0o600) },
			"own.pem and key %s/own-key.pem do not belong together: tls: private key does not match public key",
		},
		"a node as the CA": {
			func(_ place, f *Files) { f.CA = f.Cert }, `own.pem: the certificate of "n1" in it is not of a CA`,
		},
		"expired": {
			func(p place, f *Files) { *f = p.issue(n1, time.Second); time.Sleep(2 * time.Second) },
			"has expired or is not valid yet",
		},
		"another CA's": {func(p place, _ *Files) {
			other, _ := NewCA("other", year)
			p.write("ca.pem", other.Cert, 0o644)
		}, "own.pem, with CA %s/ca.pem: certificate is not signed by the cluster's CA"},
		"another node's": {
			func(p place, f *Files) { *f = p.issue(Identity{Node, "n2"}, year) },
			"own.pem: it is of ringlog://node/n2 and not of ringlog://node/n1: make one with ringlog cert node n1",
		},
		"a client's": {
			func(p place, f *Files) { *f = p.issue(Identity{Client, "n1"}, year) },
			"own.pem: it is of ringlog://client/n1 and not",
		},
		"the CA's own": {func(p place, _ *Files) {
			p.write("own.pem", p.ca.Cert, 0o644)
			p.write("own-key.pem", p.ca.Key, 0o600)
		}, "own.pem: certificate names no one that ringlog knows"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPlace(t)
				f := p.issue(n1, year)
				good, err := Open(f, ForNode("n1"))
				if err != nil {
					t.Fatal(err)
				}
				test.spoil(p, &f)
				want := strings.ReplaceAll(test.want, "%s", p.dir)
				if _, err = Open(f, ForNode("n1")); err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("open: %v, want %q", err, want)
				}
				// A node that runs keeps what it has, says why, and counts it once.
				good.files = f
				until := good.State().Until
				for range 3 {
					if changed, err := good.Reload(); changed || err == nil || !strings.Contains(err.Error(), want) {
						t.Fatalf("reload: %v, %v", changed, err)
					}
				}
				if s := good.State(); s.Problem == nil || s.Failures != 1 || !s.Until.Equal(until) {
					t.Errorf("afterwards: %+v, was valid until %s", s, until)
				}
			})
		})
	}
}

// damage changes a byte of the certificate in a PEM file.
func (p place) damage(file string) {
	data, err := os.ReadFile(file)
	if err != nil {
		p.Fatal(err)
	}
	// The first bytes are lengths.
	copy(data[len("-----BEGIN CERTIFICATE-----\n"):], "AAAAAAAA")
	p.write(filepath.Base(file), data, 0o644)
}

// New connections use new files, and one that is open stays.
func TestReload(t *testing.T) {
	p := newPlace(t)
	s, err := Open(p.issue(Identity{Node, "n1"}, year), ForNode("n1"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.ca.Leaf)
	dial := func() *tls.Conn {
		t.Helper()
		near, far := net.Pipe()
		server := tls.Server(far, s.ServerConfig())
		client := tls.Client(near, &tls.Config{RootCAs: roots, ServerName: "localhost"})
		go func() { _, _ = io.Copy(server, server); server.Close() }()
		t.Cleanup(func() { near.Close(); far.Close() })
		if err := client.Handshake(); err != nil {
			t.Fatal(err)
		}
		return client
	}
	serial := func(c *tls.Conn) string { return c.ConnectionState().PeerCertificates[0].SerialNumber.String() }
	old := dial()
	if changed, err := s.Reload(); changed || err != nil {
		t.Fatalf("the same files: %v, %v", changed, err)
	}
	p.issue(Identity{Node, "n1"}, year/2)
	if changed, err := s.Reload(); !changed || err != nil {
		t.Fatalf("new files: %v, %v", changed, err)
	}
	if fresh := dial(); serial(fresh) == serial(old) {
		t.Error("a new connection got the old certificate")
	}
	old.Write([]byte("x"))
	if _, err := io.ReadFull(old, make([]byte, 1)); err != nil {
		t.Errorf("the connection from before: %v", err)
	}
	if left := time.Until(s.State().Until); left > year/2 || left < year/2-time.Hour {
		t.Errorf("valid for %s", left)
	}
}

// What one side of a connection learns of the other.
func TestNodeOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace(t)
		n1, err := Open(p.issue(Identity{Node, "n1"}, year), ForNode("n1"))
		if err != nil {
			t.Fatal(err)
		}
		other, _ := NewCA("test", year)
		issue := func(ca *CA, i Identity) *x509.Certificate {
			pair, err := ca.Issue(Request{Identity: i, Hosts: []string{"localhost"}, Valid: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			return pair.Leaf
		}
		ask := func(c *x509.Certificate, as x509.ExtKeyUsage) (string, error) {
			return n1.NodeOf(tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}}, as)
		}
		n2 := issue(p.ca, Identity{Node, "n2"})
		client := issue(p.ca, Identity{Client, "n2"})
		for _, test := range []struct {
			of   *x509.Certificate
			as   x509.ExtKeyUsage
			want error
		}{
			{n2, x509.ExtKeyUsageClientAuth, nil},
			{n2, x509.ExtKeyUsageServerAuth, nil},
			{client, x509.ExtKeyUsageClientAuth, ErrNotNode},
			{client, x509.ExtKeyUsageServerAuth, ErrUsage},
			{issue(other, Identity{Node, "n2"}), x509.ExtKeyUsageClientAuth, ErrUnknownCA},
			{p.ca.Leaf, x509.ExtKeyUsageClientAuth, ErrNoIdentity},
		} {
			if id, err := ask(test.of, test.as); !errors.Is(err, test.want) || (id == "n2") != (test.want == nil) {
				t.Errorf("%s of %v as %v: %q, %v; want %v", test.of.Subject, test.of.URIs, test.as, id, err, test.want)
			}
		}
		time.Sleep(2 * time.Hour)
		if _, err := ask(n2, x509.ExtKeyUsageClientAuth); !errors.Is(err, ErrExpired) {
			t.Errorf("later: %v", err)
		}
	})
}

// A client's certificate is read for each connection; bad files leave the last good one in use.
func TestAClientRenewsItsCertificate(t *testing.T) {
	p := newPlace(t)
	files := p.issue(Identity{Client, "trainer"}, year)
	config, err := ClientConfig(files)
	if err != nil {
		t.Fatal(err)
	}
	get := func() string {
		pair, err := config.GetClientCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.SerialNumber.String()
	}
	first := get()
	p.issue(Identity{Client, "trainer"}, year)
	second := get()
	if first == second {
		t.Error("the new certificate is not used")
	}
	for _, spoil := range []func(){
		func() { p.write("own.pem", []byte("x"), 0o644) },
		func() { os.Remove(files.Key) },
	} {
		spoil()
		if get() != first {
			t.Error("a bad file ends the use of a good certificate")
		}
		if _, err := ClientConfig(files); err == nil {
			t.Error("a bad file is taken at the start")
		}
	}
}

func TestPeek(t *testing.T) {
	for in, want := range map[string]bool{"\x16\x03\x01": true, "GET /": false, "RLRH": false, "\x00": false} {
		near, far := net.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		go func() { io.WriteString(near, in); near.Close(); cancel() }()
		c, isTLS, err := Peek(far)
		if err != nil || isTLS != want {
			t.Errorf("%q: %v, %v", in, isTLS, err)
			continue
		}
		if all, err := io.ReadAll(c); string(all) != in || err != nil {
			t.Errorf("%q was read as %q, %v", in, all, err)
		}
		<-ctx.Done()
	}
}

func FuzzParse(f *testing.F) {
	ca, err := NewCA("fuzz", year)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(ca.Cert)
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := Parse(data)
		if (err == nil) != (len(list) > 0) {
			t.Fatalf("%d certificates, %v", len(list), err)
		}
		for _, c := range list {
			if i, err := IdentityOf(c); err == nil && !name.MatchString(i.Name) {
				t.Fatalf("%v", i)
			}
		}
	})
}

// FuzzIdentityOf maps two URIs of a certificate to who it is of. A certificate is of somebody only if exactly one of
// them says so, in the one form that its identity has.
func FuzzIdentityOf(f *testing.F) {
	f.Add("ringlog://node/n1", "")
	f.Add("ringlog://client/trainer", "spiffe://cluster/n1")
	f.Add("ringlog://node/n1", "ringlog://node/n1")
	for _, odd := range []string{"RINGLOG://node/n1", "ringlog:node/n1", "ringlog://node:1/n1", "ringlog://user@node/n1",
		"ringlog://node/n1?x", "ringlog://node/n1#y", "ringlog://node/%6e1", "ringlog://node//n1", "ringlog://Node/n1"} {
		f.Add(odd, "")
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		c, said := &x509.Certificate{}, 0
		var of string
		for _, text := range []string{first, second} {
			u, err := url.Parse(text)
			if err != nil || text == "" {
				continue
			}
			c.URIs = append(c.URIs, u)
			if u.Scheme == scheme {
				said++
				of = u.String()
			}
		}
		i, err := IdentityOf(c)
		if err != nil {
			if !errors.Is(err, ErrNoIdentity) || i != (Identity{}) {
				t.Fatalf("%v, %v", i, err)
			}
			return
		}
		// The name is what a member or a token may have, and the URI is the one that a certificate of it gets.
		u, err := i.url()
		if err != nil || said != 1 || u.String() != of || of != i.String() || (i.Kind != Node && i.Kind != Client) {
			t.Fatalf("%q and %q are of %v, %v", first, second, i, err)
		}
	})
}
