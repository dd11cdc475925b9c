package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of what a connection may send before a handler sees it.
const (
	maxHeaderBytes    = 64 << 10
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
)

// Server answers for one node. It is safe for concurrent use.
type Server struct {
	cfg         Config
	ops         *service.Service
	logger      hclog.Logger
	metrics     *metrics
	mux         *http.ServeMux
	forward     *http.Client  // to the leader
	within      time.Duration // bounds a call that is passed on and has no deadline
	token       [32]byte      // digest of cfg.Token
	advertised  string        // where other nodes reach this one
	hosts       []string      // cfg.Hosts and the host of advertised, in lower case
	started     time.Time
	idOfCluster atomic.Pointer[string] // see clusterID

	crossOrigin *http.CrossOriginProtection

	memory     *memory             // of callers' requests
	peerMemory *memory             // of other nodes' requests, which slow bodies of callers must not keep out
	scans      *semaphore.Weighted // calls that read the whole log
	backups    *semaphore.Weighted
	streams    chan struct{}  // holds one element for each stream under way
	calls      sync.WaitGroup // handlers under way
	buffers    sync.Pool      // of *[]byte, to read bodies into

	ctx  context.Context // ends when Close begins
	stop context.CancelCauseFunc

	mu      sync.Mutex
	servers []*http.Server
	closed  bool
}

// New returns the server of a node. It does not listen before Serve is called. The context of the service that it
// starts ends with Close.
func New(cfg Config) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, logger: cfg.Logger, mux: http.NewServeMux(), token: digest(cfg.Token), started: time.Now(),
		streams: make(chan struct{}, cfg.MaxStreams), crossOrigin: http.NewCrossOriginProtection(),
		within: service.MaxExchangeWait + 5*time.Second, scans: semaphore.NewWeighted(int64(runtime.GOMAXPROCS(0))), backups: semaphore.NewWeighted(1)}
	// The address under which other nodes reach this one is also a name that browsers may use.
	s.advertised = cfg.Node.Report(raftnode.Question{}).HTTPAddr
	for _, name := range append(slices.Clone(cfg.Hosts), s.advertised) {
		s.hosts = append(s.hosts, hostOf(name))
	}
	// Peers have a memory of their own, of which a single one may take all: calls of clients must not keep nodes
	// from each other.
	s.memory, s.peerMemory = newMemory(cfg.MaxBodies), newMemory(cfg.MaxBodies)
	s.peerMemory.each = cfg.MaxBodies
	s.ctx, s.stop = context.WithCancelCause(context.Background())
	s.ops = service.New(s.ctx, cfg.Node, cfg.Heartbeat, cfg.Logger)
	s.forward = &http.Client{Transport: cfg.Transport}
	if cfg.Transport == nil {
		s.forward.Transport = newTransport(cfg.Token)
	}
	// The collectors read the service, so it exists before them.
	var err error
	if s.metrics, err = newMetrics(cfg, s.ops); err != nil {
		return nil, err
	}
	for _, r := range s.routes() {
		s.mux.Handle(r.method+" "+r.path, s.handler(r))
	}
	s.mountConnect()
	// Calls to other nodes name the cluster of this server.
	if p, ok := cfg.Peers.(*Peers); ok {
		p.own.Store(s)
	}
	return s, nil
}

// Serve answers on a listener until Close, and closes the listener. It returns nil after Close.
func (s *Server) Serve(l net.Listener) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	h := &http.Server{Handler: s.Handler(), Protocols: &protocols, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: s.logger.Named("http").StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}
	// Under the lock either Close sees this server and shuts it down, or Serve sees that Close has begun.
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.Join(fmt.Errorf("server: serve: %w", service.ErrStopping), l.Close())
	}
	s.servers = append(s.servers, h)
	s.mu.Unlock()
	if err := h.Serve(limitConns(l, s.cfg.MaxConns)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("server: serve %s: %w", l.Addr(), err)
	}
	return nil
}

// Close ends streams, waits for the calls under way until ctx ends, and releases listeners and connections. It may
// be called more than once.
func (s *Server) Close(ctx context.Context) error {
	// From here on enter and Serve refuse.
	s.mu.Lock()
	servers := s.servers
	s.closed, s.servers = true, nil
	s.mu.Unlock()
	// Streams end with this context, before Shutdown waits for their connections.
	s.stop(service.ErrStopping)
	var errs []error
	for _, h := range servers {
		if err := h.Shutdown(ctx); err != nil {
			errs = append(errs, fmt.Errorf("server: close: %w", err), h.Close())
		}
	}
	// A transport of the configuration belongs to whoever made it.
	if s.cfg.Transport == nil {
		s.forward.CloseIdleConnections()
	}
	return errors.Join(append(errs, s.drain(ctx))...)
}

// drain waits until the handlers and the duties of the service have ended, or until ctx ends. Publishing lines
// count as handlers: http.Server.Shutdown does not know their connections.
func (s *Server) drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() { // ends with the last handler: each of them is bounded in time
		s.calls.Wait()
		s.ops.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("server: close: %w", ctx.Err())
	}
}

// enter counts a call that begins and reports whether it may: none may once Close has begun. After true the caller
// must call s.calls.Done.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.calls.Add(1)
	return true
}

// leaderHTTP returns where the leader answers, "" when that is not known.
func (s *Server) leaderHTTP() string { return raftnode.URL(s.cfg.Node.Status().LeaderHTTP) }

// explain is service.ToAPI, completed with the address of the leader where that helps the caller. It logs internal
// errors.
func (s *Server) explain(err error) *api.Error {
	e := *service.ToAPI(err)
	switch e.Code {
	case api.NoLeader, api.Unavailable, api.NoQuorum, api.OutcomeUnknown:
		e.LeaderHTTP = s.leaderHTTP()
	case api.Internal:
		s.logger.Error("request failed", "error", err)
	}
	return &e
}
