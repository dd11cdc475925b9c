package server

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// Headers of the HTTP interface.
const (
	headerForwarded  = "Ringlog-Forwarded"   // 1 on a call that another node passed on
	headerLeader     = "Ringlog-Leader"      // on errors: where the leader answers
	headerProducer   = "Ringlog-Producer"    // with a publish: who sends
	headerSequence   = "Ringlog-Sequence"    // with a publish: the sender's 1, 2, 3 …
	headerLastOffset = "Ringlog-Last-Offset" // on a read: the tail when it began
)

// maxExchangeBody bounds the body of an exchange.
const maxExchangeBody = 1 << 20

const (
	contentJSON   = "application/json"
	contentNDJSON = "application/x-ndjson"
	contentSSE    = "text/event-stream"
)

// handlerFunc answers a request, or returns the error to answer with. After a first
// byte was written an error cuts the connection instead.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// route is one operation of the HTTP interface.
type route struct {
	method, path string
	handle       handlerFunc
	stream       bool // ends by itself: no request timeout
	leader       bool // passed on to the leader
	scan         bool // reads the log from end to end: few at a time
	backup       bool // one at a time
	about        bool // tells about the node: answered also where it serves nobody
}

// Handler answers all of the server's routes. Serve adds the bounds on headers and
// idle connections.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	out := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.cfg.WriteTimeout}
	began := time.Now()
	if id := s.clusterID(); id != "" {
		out.Header().Set(api.ClusterHeader, id)
	}
	if !s.enter() {
		s.writeError(out, r, service.ErrStopping)
		return
	}
	defer s.calls.Done()
	memory := s.memory
	if strings.HasPrefix(r.URL.Path, peerPath) {
		memory = s.peerMemory
	}
	held := memory.open(r.RemoteAddr)
	defer held.close()
	r = r.WithContext(withHold(r.Context(), held))
	defer s.recover(out, r) // of observe
	defer s.observe(out, r, began)
	defer s.recover(out, r)
	if r.Body != http.NoBody {
		r.Body = &body{ReadCloser: r.Body, hold: held, control: out.control, pace: pace{idle: s.cfg.BodyTimeout}}
	}
	err := s.admit(r)
	if err == nil {
		err = s.sameCluster(r)
	}
	if err != nil {
		s.writeError(out, r, err)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.unrouted(out, r)
		return
	}
	s.mux.ServeHTTP(out, r)
}

// admit refuses web pages and callers without the token.
func (s *Server) admit(r *http.Request) error {
	if err := s.fromBrowser(r); err != nil {
		return err
	}
	if !s.allowed(r) {
		return &api.Error{Code: api.Unauthenticated, Message: "a bearer token is needed, and this is none or the wrong one", Field: "Authorization",
			Remedy: "send Authorization: Bearer TOKEN; ringlog takes it from --token-file or RINGRIFT_CLUSTER_AUTH_TOKEN"}
	}
	return nil
}

func (s *Server) allowed(r *http.Request) bool {
	if s.cfg.Token == "" || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || r.URL.Path == ringlogv1connect.PeerServiceChallengeProcedure {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := digest(strings.TrimSpace(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], s.token[:]) == 1
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// recover answers for a handler that panicked.
func (s *Server) recover(w *response, r *http.Request) {
	value := recover()
	if value == nil {
		return
	}
	if value == http.ErrAbortHandler {
		panic(value)
	}
	s.logger.Error("panic in a handler", "path", r.URL.Path, "panic", value, "stack", string(debug.Stack()))
	s.metrics.panics.Inc()
	if s.cfg.OnPanic != nil {
		s.cfg.OnPanic(value)
	}
	s.writeError(w, r, &api.Error{Code: api.Internal, Message: "a fault in this node's handler", Remedy: "see the node's own log"})
}

// handler makes a route's function an http.Handler.
func (s *Server) handler(rt route) http.Handler {
	handle := rt.handle
	if rt.method == http.MethodGet && !rt.stream && !rt.about {
		handle = s.consistent(handle)
	}
	if rt.leader {
		handle = s.onLeader(handle)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if out, ok := w.(*response); ok {
			out.stream = rt.stream
		}
		ctx, cancel, err := s.bounded(r, rt.stream)
		if err == nil {
			defer cancel()
			if !rt.about && s.cfg.Node.Diverged() {
				err = raftnode.ErrDiverged
			} else {
				err = s.inTurn(ctx, rt, func() error { return handle(w, r.WithContext(ctx)) })
			}
			if errors.Is(err, context.Canceled) && context.Cause(ctx) == service.ErrStopping {
				err = service.ErrStopping
			}
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	})
}

// inTurn does what reads the whole log in turn with others that do: each takes the disk and a
// processor from those who publish.
func (s *Server) inTurn(ctx context.Context, rt route, do func() error) error {
	places := s.scans
	switch {
	case rt.backup:
		places = s.backups
	case !rt.scan:
		return do()
	}
	waiting, cancel := context.WithTimeout(ctx, turnWithin)
	defer cancel()
	if places.Acquire(waiting, 1) != nil {
		return &api.Error{Code: api.Overloaded, Message: "as many calls read the whole log as this node serves at a time", Remedy: "retry later, or ask another node"}
	}
	defer places.Release(1)
	return do()
}

// turnWithin is how long a call waits for its turn.
const turnWithin = 2 * time.Second

// maxTimeout is the longest time that a caller may ask for.
const maxTimeout = time.Hour

// consistent takes the parameter consistency of any read that is no stream: a linearizable one
// waits until this node has all that was acknowledged before.
func (s *Server) consistent(handle handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !strings.Contains(r.URL.RawQuery, "consistency=") {
			return handle(w, r)
		}
		p := newParams(r)
		linearizable := p.consistency()
		if p.err != nil {
			return p.err
		}
		if linearizable {
			if err := s.cfg.Node.ReadBarrier(r.Context()); err != nil {
				return err
			}
		}
		rest := *r.URL
		p.values.Del("consistency")
		rest.RawQuery = p.values.Encode()
		own := *r
		own.URL = &rest
		return handle(w, &own)
	}
}

// bounded gives a request the time that its timeout parameter, or the server, allows; a stream
// has none of its own. When the server closes, streams and other reads end: nothing is lost with
// them, and another node can serve them. What may change something has its time to be answered.
func (s *Server) bounded(r *http.Request, stream bool) (context.Context, context.CancelFunc, error) {
	limit := s.cfg.RequestTimeout
	text := ""
	if strings.Contains(r.URL.RawQuery, "timeout=") {
		text = r.URL.Query().Get("timeout")
	}
	if text != "" {
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > maxTimeout {
			return nil, nil, api.BadValue("timeout", text, "a duration up to 1h, such as 5s")
		}
		limit = d
	}
	ctx, end := r.Context(), context.CancelFunc(func() {})
	if stream || r.Method == http.MethodGet || r.Method == http.MethodHead {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		unhook := context.AfterFunc(s.ctx, func() { cancel(service.ErrStopping) })
		end = func() { unhook(); cancel(nil) }
	}
	if stream && text == "" {
		return ctx, end, nil
	}
	cause := context.DeadlineExceeded
	if stream {
		cause = service.ErrStreamTime
	}
	ctx, endTime := context.WithTimeoutCause(ctx, limit, cause)
	return ctx, func() { endTime(); end() }, nil
}

// unrouted answers what no route takes: 404, or 405 with the methods there are.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	plain, _ := s.mux.Handler(r)
	seen := headerOnly{}
	plain.ServeHTTP(seen, r)
	if allow := seen.Header().Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		s.writeError(w, r, &api.Error{Code: api.MethodNotAllowed, Field: "method",
			Message: fmt.Sprintf("%s is not for %s", r.Method, r.URL.Path), Remedy: "use " + allow})
		return
	}
	s.writeError(w, r, &api.Error{Code: api.NotFound, Message: "there is nothing at " + r.URL.Path, Field: "path",
		Remedy: "see /openapi.json for what there is"})
}

// headerOnly keeps the header of an answer and drops the rest.
type headerOnly http.Header

func (h headerOnly) Header() http.Header         { return http.Header(h) }
func (h headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h headerOnly) WriteHeader(int)             {}

// writeError answers with an error; where an answer has begun it can only cut it.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if out, ok := w.(*response); ok && out.status != 0 {
		panic(http.ErrAbortHandler)
	}
	e := s.explain(err)
	h := w.Header()
	if b, ok := r.Body.(*body); ok && !b.discard(r) {
		h.Set("Connection", "close") // else net/http waits for the body before it answers
	}
	setRetryAfter(h, e.Code)
	if e.LeaderHTTP != "" {
		h.Set(headerLeader, e.LeaderHTTP)
	}
	if e.Code == api.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="ringlog"`)
	}
	if strings.HasPrefix(r.URL.Path, "/ringlog.v1.") {
		if writer := connect.NewErrorWriter(); writer.IsSupported(r) {
			_ = writer.Write(w, r, connectError(e))
			return
		}
	}
	_ = writeJSON(w, e.Code.Status(), map[string]*api.Error{"error": e})
}

// writeJSON answers with a value. A caller that has gone is no error of the node's.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("server: answer: %w", err)
	}
	return writeBytes(w, status, contentJSON, append(b, '\n'))
}

func writeBytes(w http.ResponseWriter, status int, contentType string, b []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
	return nil
}
