package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/certs"
)

// secureListener makes the connections of a listener those of TLS, by their first byte. Plain ones pass as they are:
// admission refuses their requests where TLS is required, so that a caller who has forgotten it reads why.
type secureListener struct {
	net.Listener
	config *tls.Config

	accepted chan accepted   // connections whose first byte has come
	ctx      context.Context // ended by Close
	cancel   context.CancelFunc
	running  sync.WaitGroup // run, and a begin for each connection without a first byte
}

// accepted is what Accept returns.
type accepted struct {
	conn net.Conn // nil with an error
	err  error    // of the listener below
}

// newSecureListener returns a listener that takes over l, which bounds how many connections there are.
func newSecureListener(l net.Listener, config *tls.Config) *secureListener {
	s := &secureListener{Listener: l, config: config, accepted: make(chan accepted)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.run)
	return s
}

// run accepts until the listener is closed.
func (l *secureListener) run() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			// Some errors pass: whoever calls Accept decides, and waits.
			if !l.deliver(accepted{err: err}) || errors.Is(err, net.ErrClosed) {
				return
			}
			continue
		}
		// In a goroutine each: a connection that sends nothing must not keep others from being accepted.
		l.running.Go(func() { l.begin(conn) })
	}
}

// begin waits for the first byte of a connection, as long as for a header. It closes a connection that sends nothing in
// that time.
func (l *secureListener) begin(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(readHeaderTimeout))
	// Close ends the wait, also if it came before this.
	stop := context.AfterFunc(l.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	peeked, isTLS, err := certs.Peek(conn)
	if err != nil {
		_ = conn.Close()
		return
	}
	// The server sets the deadlines from here on.
	_ = conn.SetReadDeadline(time.Time{})
	// The handshake is the server's, with the first read.
	if isTLS {
		peeked = tls.Server(peeked, l.config)
	}
	// Nobody takes it any more.
	if !l.deliver(accepted{conn: peeked}) {
		_ = conn.Close()
	}
}

// deliver hands over what Accept returns; it reports false once the listener is closed.
func (l *secureListener) deliver(a accepted) bool {
	select {
	case l.accepted <- a:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// Accept implements net.Listener.
func (l *secureListener) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It waits until no goroutine of the listener is left.
func (l *secureListener) Close() error {
	// First what waits, then who accepts: each of both ends by one of them.
	l.cancel()
	err := l.Listener.Close()
	l.running.Wait()
	return err
}

// refusePlain refuses a request that came without TLS. It is called where TLS is required.
func refusePlain(r *http.Request) error {
	if r.TLS != nil {
		return nil
	}
	return &api.Error{Code: api.Forbidden, Reason: api.ReasonTLSRequired,
		Message: "this node takes requests over TLS alone, and this one came in clear",
		Remedy:  "give its address as https://HOST:PORT, and the cluster's CA: --tls-ca FILE or RINGLOG_TLS_CA"}
}

// Security says how a node is called.
type Security struct {
	// Config returns the configuration of the next connection; nil is Go's own.
	Config func() *tls.Config
	// Mode says how an address with http is called, as an address does not say what a node has by now: certs.Require
	// is over TLS, certs.Allow as well, or in clear where the node has no TLS. Otherwise it is called in clear.
	Mode certs.Mode
}

// security returns how a node with this configuration calls others.
func (c *Config) security() Security {
	if c.TLS == nil {
		return Security{}
	}
	return Security{Config: c.TLS.CallConfig, Mode: c.TLSMode}
}

// dialFunc opens a connection.
type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// plainly returns the dial of addresses with http.
func (s Security) plainly(dial dialFunc) dialFunc {
	secured := s.secured(dial)
	switch s.Mode {
	case certs.Require:
		return secured
	// TLS is tried first, so that nothing is sent in clear to a node that has it.
	case certs.Allow:
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := secured(ctx, network, address)
			// The node answers, and not with TLS.
			if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
				return dial(ctx, network, address)
			}
			return conn, err
		}
	}
	return dial
}

// tlsWithin bounds a handshake of TLS.
const tlsWithin = 3 * time.Second

// secured returns the dial of addresses with https. Its errors are those of a dial: nothing of the call was sent.
func (s Security) secured(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		// The configuration is taken for each connection, as certificates may have been renewed.
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if s.Config != nil {
			config = s.Config().Clone()
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		// Go's own configuration verifies it. CallConfig of package certs looks at the node's id instead.
		config.ServerName = host
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, tlsWithin)
		defer cancel()
		secured := tls.Client(conn, config)
		// As an error of a dial it is known that nothing was sent, so the call may be repeated elsewhere.
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Addr: conn.RemoteAddr(), Err: err}
		}
		return secured, nil
	}
}

// tlsMetrics are about the certificate of a node. They are read from the store at each scrape.
func tlsMetrics(store *certs.Store) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "ringlog", Name: "tls_expiry_seconds",
			Help: "Seconds until this node's certificate, or the CA that signed it, expires.",
		}, func() float64 { return time.Until(store.State().Until).Seconds() }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: "ringlog", Name: "tls_reload_failures_total",
			Help: "New certificate files that this node could not use.",
		}, func() float64 { return float64(store.State().Failures) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "ringlog", Name: "tls_files_refused",
			Help: "Whether this node uses an older certificate than its files have: 1 or 0.",
		}, func() float64 {
			if store.State().Problem != nil {
				return 1
			}
			return 0
		}),
	}
}

// tlsStatus is how this node's connections are secured, for /status. It is nil for a node without TLS.
func tlsStatus(cfg *Config) *api.TLS {
	if cfg.TLS == nil {
		return nil
	}
	state := cfg.TLS.State()
	status := &api.TLS{Mode: string(cfg.TLSMode), Expires: state.Until.UTC()}
	if state.Problem != nil {
		status.Problem = state.Problem.Error()
	}
	return status
}
