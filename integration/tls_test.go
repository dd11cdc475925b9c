package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/certs"
)

// A running cluster goes from plain connections to TLS that is required by two rolling restarts, and then to another CA
// and other certificates without a restart. Meanwhile publishers publish and a tail follows: nothing that is
// acknowledged is lost, no request fails, and the tail gets each event once.
func TestARunningClusterMovesToTLS(t *testing.T) {
	t.Parallel()
	c := newCluster(t, t.TempDir(), 3).startAll()
	s := &tlsCluster{cluster: c, dir: t.TempDir(), ledger: newLedger()}
	first, second := s.newCA("first"), s.newCA("second")
	for _, p := range c.nodes {
		s.write(p.id+"-ca.pem", first.Cert)
		s.certify(p, first)
	}

	// Off to allow, under a load in clear.
	plain := s.begin(nil)
	for i, p := range c.nodes {
		s.restart(p, certs.Allow, trusting(first))
		if i == 0 {
			s.lead(p) // it has TLS, and those that follow it have none yet
		}
	}
	// Clients move over while the nodes take both.
	both := trusting(first, second)
	secured := s.begin(both)
	s.end(plain)
	for _, p := range c.nodes {
		s.restart(p, certs.Require, trusting(first))
	}
	if resp, err := plainHTTP.Get("http://" + c.nodes[0].http + "/status"); err != nil {
		t.Error(err)
	} else if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
		t.Errorf("in clear: %s", resp.Status)
	}

	// Nodes trust both CAs, then each has a certificate of the new one, then they trust that alone.
	s.renew(func(p *process) { s.write(p.id+"-ca.pem", slices.Concat(first.Cert, second.Cert)) })
	s.renew(func(p *process) { s.certify(p, second) })
	s.renew(func(p *process) { s.write(p.id+"-ca.pem", second.Cert) })
	s.use(trusting(second))
	old, err := client.New(client.Config{Endpoints: c.endpoints(), TLS: trusting(first), Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close(context.WithoutCancel(t.Context()))
	_, err = old.Publish(t.Context(), event.New(event.TrainingProgress, nil))
	if _, unknown := errors.AsType[x509.UnknownAuthorityError](err); !unknown {
		t.Errorf("whoever trusts the old CA alone: %v", err)
	}
	// Connections that are made from here on have new certificates at both ends.
	s.restart(c.leader(), certs.Require, trusting(second))
	s.end(secured)
	s.write("ca.pem", second.Cert)
	trusted := []string{"--tls-ca", filepath.Join(s.dir, "ca.pem")}
	// A member that was away for long under this load lags by much, until its next report.
	s.eventually(10*time.Second, "a healthy cluster", func() error {
		out, err := c.run(append(trusted, "check")...)
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	c.mustRun(append(trusted, "verify")...)
	compare(t, c, s.ledger)
}

// tlsCluster is a cluster with certificates and a load.
type tlsCluster struct {
	*cluster
	dir    string // of all files
	ledger *ledger

	publishers int // so far
	reads      int // how often nodes have read new files
}

// newCA makes a CA.
func (s *tlsCluster) newCA(name string) *certs.CA {
	s.t.Helper()
	ca, err := certs.NewCA(name, 100*24*time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	return ca
}

// trusting returns the configuration of a client that trusts these.
func trusting(cas ...*certs.CA) *tls.Config {
	roots := x509.NewCertPool()
	for _, ca := range cas {
		roots.AddCert(ca.Leaf)
	}
	return &tls.Config{RootCAs: roots}
}

// write replaces a file as a whole.
func (s *tlsCluster) write(name string, data []byte) {
	s.t.Helper()
	file := filepath.Join(s.dir, name)
	if err := errors.Join(os.WriteFile(file+".new", data, 0o600), os.Rename(file+".new", file)); err != nil {
		s.t.Fatal(err)
	}
}

// certify gives a node a certificate of a CA.
func (s *tlsCluster) certify(p *process, ca *certs.CA) {
	s.t.Helper()
	pair, err := ca.Issue(certs.Request{Identity: certs.Identity{Kind: certs.Node, Name: p.id},
		Hosts: []string{"127.0.0.1"}, Valid: 90 * 24 * time.Hour})
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(p.id+".pem", pair.Cert)
	s.write(p.id+"-key.pem", pair.Key)
}

// configure has a node start in a mode from now on.
func (s *tlsCluster) configure(p *process, mode certs.Mode, trust *tls.Config) {
	if at := slices.Index(p.args, "--tls-mode"); at >= 0 {
		p.args = p.args[:at]
	}
	file := func(name string) string { return filepath.Join(s.dir, p.id+name) }
	p.args = append(slices.Clone(p.args), "--tls-mode", string(mode),
		"--tls-cert", file(".pem"), "--tls-key", file("-key.pem"), "--tls-ca", file("-ca.pem"))
	p.secure, p.web = true, overTLS(trust)
}

// restart stops a node, starts it in a mode, and waits until it has caught up.
func (s *tlsCluster) restart(p *process, mode certs.Mode, trust *tls.Config) {
	s.t.Helper()
	p.stop()
	s.configure(p, mode, trust)
	p.start()
	s.eventually(30*time.Second, p.id+" with TLS", func() error {
		var ready struct{}
		return getJSON(context.Background(), p.web, p.url()+"/readyz", &ready)
	})
	s.progress()
}

// lead makes a node the leader.
func (s *tlsCluster) lead(p *process) {
	s.t.Helper()
	if s.leader() != p {
		s.mustRun("--endpoints", "http://"+p.http, "cluster", "step-down", "--to", p.id)
	}
	s.eventually(leaderless, p.id+" as leader", func() error {
		st, err := p.status()
		if err == nil && st.Role != "leader" {
			err = fmt.Errorf("it is a %s", st.Role)
		}
		return err
	})
	s.progress()
}

// overTLS returns a client with a configuration.
func overTLS(config *tls.Config) *http.Client {
	return &http.Client{Timeout: plainHTTP.Timeout, Transport: &http.Transport{TLSClientConfig: config}}
}

// use makes the test call all nodes with a configuration, over new connections.
func (s *tlsCluster) use(config *tls.Config) {
	s.forget()
	s.web = overTLS(config)
	for _, p := range s.nodes {
		p.web = s.web
	}
}

// renew changes files of each node, and waits until it has read them.
func (s *tlsCluster) renew(change func(*process)) {
	s.t.Helper()
	s.reads++
	for _, p := range s.nodes {
		change(p)
		p.signal(syscall.SIGHUP)
	}
	for _, p := range s.nodes {
		s.eventually(10*time.Second, "new certificate in use by "+p.id, func() error {
			text, err := os.ReadFile(p.log)
			if n := strings.Count(string(text), "certificate files read: changed=true"); n < s.reads {
				return fmt.Errorf("it has read new files %d times, not %d (%v)", n, s.reads, err)
			}
			return nil
		})
	}
	s.progress()
}

// progress waits for events that are acknowledged from now on.
func (s *tlsCluster) progress() {
	s.t.Helper()
	until := s.ledger.counts.Load() + 50
	s.eventually(30*time.Second, "acknowledged events", func() error {
		if n := s.ledger.counts.Load(); n < until {
			return fmt.Errorf("%d of %d", n, until)
		}
		return nil
	})
}

// leaderless is how long a request may take: clients and nodes find a new leader within that, on a busy machine, too.
const leaderless = 10 * time.Second

// tlsLoad is two publishers and a tail.
type tlsLoad struct {
	stop       context.CancelFunc // ends the publishers
	publishing sync.WaitGroup
	last       atomic.Uint64      // the highest offset that was acknowledged to them
	abandon    context.CancelFunc // ends the tail
	reading    sync.WaitGroup
	read       atomic.Uint64 // offset that the tail has got last
}

// begin starts a load over TLS, or in clear without a configuration.
func (s *tlsCluster) begin(secure *tls.Config) *tlsLoad {
	s.t.Helper()
	cl, err := client.New(client.Config{Endpoints: s.endpoints(), TLS: secure, Timeout: leaderless})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = cl.Close(context.WithoutCancel(s.t.Context())) })
	l := &tlsLoad{}
	var publishing, reading context.Context
	publishing, l.stop = context.WithCancel(s.t.Context())
	reading, l.abandon = context.WithCancel(s.t.Context())
	for range 2 {
		s.publishers++
		number := s.publishers
		l.publishing.Go(func() { s.publish(publishing, cl, l, number) })
	}
	l.reading.Go(func() { s.follow(reading, cl, l) })
	s.progress()
	return l
}

// publish publishes one event after the other until ctx ends. Each is acknowledged within the client's timeout.
func (s *tlsCluster) publish(ctx context.Context, cl *client.Client, l *tlsLoad, number int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("w%d-%d", number, n)
		e := event.New(event.TrainingProgress, map[string]any{"id": id, "epoch": n, "config_key": "hex8_2p"})
		s.ledger.send([]string{id})
		r, err := cl.Publish(context.WithoutCancel(ctx), e)
		if err != nil {
			s.t.Errorf("%s: %v", id, err)
			return
		}
		s.ledger.ack(id, r.Offset)
		for last := l.last.Load(); r.Offset > last && !l.last.CompareAndSwap(last, r.Offset); last = l.last.Load() {
		}
	}
}

// follow reads all events from the first on, until ctx ends.
func (s *tlsCluster) follow(ctx context.Context, cl *client.Client, l *tlsLoad) {
	for e, err := range cl.Tail(ctx, client.TailOptions{From: client.FromStart()}) {
		switch want := l.read.Load() + 1; {
		case err != nil && ctx.Err() != nil:
		case err != nil:
			s.t.Errorf("the tail after %d: %v", want-1, err)
		case e.Offset != want:
			s.t.Errorf("the tail gets %d after %d", e.Offset, want-1)
			return
		default:
			l.read.Store(e.Offset)
		}
	}
}

// end ends a load once its tail has got all that it has published.
func (s *tlsCluster) end(l *tlsLoad) {
	s.t.Helper()
	l.stop()
	l.publishing.Wait()
	s.eventually(leaderless, "events at the tail", func() error {
		if read, last := l.read.Load(), l.last.Load(); read < last {
			return fmt.Errorf("it has got %d of %d", read, last)
		}
		return nil
	})
	l.abandon()
	l.reading.Wait()
}
