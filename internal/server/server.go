package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of what a connection may send before a handler sees it.
const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Server answers for one node. It owns what all requests share: who may call, the bounds on memory, streams and
// time, the table of routes, and the lifecycle. What a route does is its handler's, by subject, in the files http_*.go
// and connect*.go; a handler holds only the operations that it needs. It is safe for concurrent use.
type Server struct {
	cfg     Config
	logger  hclog.Logger
	ops     *service.Service
	metrics *metrics

	routes []route // the table of routes.go; read-only once New has returned
	// Made from routes.
	mux      *http.ServeMux
	literals literals

	admission *admission
	callers   *callers
	refusals  *refusals
	// identity, errors, forward and messages are shared by the handlers.
	identity *identity
	errors   *errorWriter
	forward  *forwarder
	messages *messageReader

	memory     *memory             // of callers' requests
	peerMemory *memory             // of other nodes' requests, which slow bodies of callers must not keep out
	scans      *semaphore.Weighted // calls that read the whole log
	backups    *semaphore.Weighted
	streams    *streamPlaces

	// The lifecycle, and the context that ends what would not end by itself.
	lifecycle lifecycle
	ctx       context.Context // ends when Close begins, with service.ErrStopping as its cause
	stop      context.CancelCauseFunc
}

// New returns the server of a node. It does not listen before Serve is called. The context of the service that it
// starts ends with Close.
func New(cfg Config) (*Server, error) { return newServer(cfg) }

// newServer is New with routes that a test has planted.
func newServer(cfg Config, planted ...route) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	advertised := cfg.Node.Report(raftnode.Question{}).HTTPAddr
	// What all requests share, and what is made from the configuration alone.
	s := &Server{
		cfg:        cfg,
		logger:     cfg.Logger,
		mux:        http.NewServeMux(),
		identity:   &identity{node: cfg.Node},
		errors:     &errorWriter{node: cfg.Node, logger: cfg.Logger},
		messages:   &messageReader{node: cfg.Node, bodies: &bodyReader{}},
		memory:     newMemory(cfg.MaxBodies),
		peerMemory: newMemory(cfg.MaxBodies),
		scans:      semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))),
		backups:    semaphore.NewWeighted(1),
	}
	// A single peer may take all of the peers' memory: what bounds a client must not keep nodes from each other.
	s.peerMemory.each = cfg.MaxBodies
	s.forward = newForwarder(cfg, s.identity)
	// The duties of the service and all streams end with this context.
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.ops = service.New(s.ctx, cfg.Node, cfg.Heartbeat, cfg.Logger)
	s.callers, s.refusals = newCallers(cfg), newRefusals(s.logger)
	s.forward.callers = s.callers
	// The collectors read the service, so it exists before them.
	var err error
	s.metrics, err = newMetrics(cfg, s.ops)
	if err != nil {
		return nil, err
	}
	// The places show in the metrics, which exist by now.
	s.streams = newStreamPlaces(cfg.MaxStreams, s.metrics.streams)
	// The table, and what is made from it.
	s.routes = append(s.table(advertised), planted...)
	if err := checkPermissions(s.routes); err != nil {
		// The duties of the service have begun.
		s.stop(err)
		s.ops.Wait()
		return nil, err
	}
	s.admission = newAdmission(cfg, advertised, s.callers, s.routes)
	s.literals = literalsOf(s.routes)
	for _, r := range s.routes {
		s.mux.Handle(r.pattern(), s.handler(r))
	}
	s.lifecycle.calls.Go(func() { s.callers.run(s.ctx) })
	// Calls to other nodes name the cluster of this server.
	if p, ok := cfg.Peers.(*Peers); ok {
		p.own.Store(s.identity)
	}
	return s, nil
}

// Serve answers on a listener until Close, and closes the listener. It returns nil after Close.
func (s *Server) Serve(l net.Listener) error {
	// HTTP/2 without TLS is for callers of the Connect services. With TLS the listener makes the connections, and the
	// server the handshakes.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	limited := limitConns(l, s.cfg.MaxConns)
	h := &http.Server{
		Handler:           s.Handler(),
		ConnState:         limited.stateChanged,
		Protocols:         &protocols,
		MaxHeaderBytes:    maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          s.logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	// Under its lock either Close sees this server and shuts it down, or add sees that Close has begun.
	if !s.lifecycle.add(h) {
		return errors.Join(fmt.Errorf("serve: %w", service.ErrStopping), l.Close())
	}
	var accepting net.Listener = limited
	if s.cfg.TLS != nil {
		accepting = newSecureListener(limited, s.cfg.TLS.ServerConfig())
	}
	if err := h.Serve(accepting); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Close ends streams, waits for the calls under way until ctx ends, and releases listeners and connections. It may
// be called more than once.
func (s *Server) Close(ctx context.Context) error {
	// From here on no call and no listener is admitted.
	servers := s.lifecycle.close()
	// Streams end with this context, before Shutdown waits for their connections.
	s.stop(service.ErrStopping)
	var errs []error
	// Shutdown closes the listeners and idle connections, and waits for the busy ones.
	for _, h := range servers {
		if err := h.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("close: %w", err), h.Close())
		}
	}
	// A transport of the configuration belongs to the caller that made it.
	if s.cfg.Transport == nil {
		s.forward.client.CloseIdleConnections()
	}
	return errors.Join(append(errs, s.drain(ctx))...)
}

// drain waits until the handlers and the duties of the service have ended, or until ctx ends. Publish streams count
// as handlers: http.Server.Shutdown does not know their connections.
func (s *Server) drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends with the last handler: each of them is bounded in time
		s.lifecycle.calls.Wait()
		s.ops.Wait()
		close(done)
	}()
	// A handler that outlives ctx is left to end by itself.
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w", ctx.Err())
	}
}

// lifecycle counts the calls and listeners under way, and refuses new ones once it is closed. The zero value is open.
type lifecycle struct {
	calls sync.WaitGroup // handlers under way

	mu      sync.Mutex
	servers []*http.Server // of the listeners
	closed  bool           // no call is added once it is true, so calls.Wait may begin
}

// enter counts a call and returns true, or returns false once close was called. After true the caller
// must call calls.Done.
func (l *lifecycle) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls.Add(1)
	return true
}

// add notes the server of a listener, so Close shuts it down. It reports false once close was called.
func (l *lifecycle) add(h *http.Server) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.servers = append(l.servers, h)
	return true
}

// close admits nothing from here on, and returns the servers to shut down; a second call returns none.
func (l *lifecycle) close() []*http.Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	servers := l.servers
	l.closed, l.servers = true, nil
	return servers
}
