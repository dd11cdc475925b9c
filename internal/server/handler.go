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

// maxExchangeBody bounds, in bytes, the body of an exchange, and of any call that is passed on to the leader.
const maxExchangeBody = 1 << 20

const (
	contentJSON   = "application/json"
	contentNDJSON = "application/x-ndjson"
	contentSSE    = "text/event-stream"
)

// handlerFunc answers a request, or returns the error to answer with. Once a byte was written, an error cuts the
// connection instead.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// route is one operation of the HTTP interface.
type route struct {
	method, path string
	handle       handlerFunc
	stream       bool // ends by itself: it has no request timeout unless the caller asks for one
	leader       bool // passed on to the leader
	scan         bool // reads the log from end to end: a few run at a time
	backup       bool // streams a backup: one runs at a time
	about        bool // describes the node: answered also where the node serves nobody
}

// Handler answers all of the server's routes. Serve adds the bounds on headers and
// idle connections.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

// serveHTTP does what holds for every request, whichever protocol it is of, and hands it to its route.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	out := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.cfg.WriteTimeout}
	began := time.Now()
	// Refusals name the cluster, too.
	if id := s.clusterID(); id != "" {
		out.Header().Set(api.ClusterHeader, id)
	}
	if !s.enter() {
		s.writeError(out, r, service.ErrStopping)
		return
	}
	defer s.calls.Done()
	// What the request holds in memory is counted from here to its end.
	memory := s.memory
	if strings.HasPrefix(r.URL.Path, peerPath) {
		memory = s.peerMemory
	}
	held := memory.open(r.RemoteAddr)
	defer held.close()
	r = r.WithContext(withHold(r.Context(), held))
	// Deferred calls run from the last to the first: the inner recover answers for a handler that panicked,
	// observe counts that answer, and the outer recover covers observe itself.
	defer s.recover(out, r) // of observe
	defer s.observe(out, r, began)
	defer s.recover(out, r)
	// A body is bounded in time and memory, whichever handler reads it.
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
	// The mux would answer 404 and 405 in plain text.
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.unrouted(out, r)
		return
	}
	s.mux.ServeHTTP(out, r)
}

// admit refuses what fromBrowser refuses, and callers without the token.
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

// allowed reports whether a request has the token or needs none: health checks, which know none, and the
// challenge, by which nodes prove to each other that they have it.
func (s *Server) allowed(r *http.Request) bool {
	if s.cfg.Token == "" || r.URL.Path == "/healthz" || r.URL.Path == "/readyz" || r.URL.Path == ringlogv1connect.PeerServiceChallengeProcedure {
		return true
	}
	// Digests have one length, so that the time of the comparison reveals nothing of the token.
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	given := digest(strings.TrimSpace(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(given[:], s.token[:]) == 1
}

func digest(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }

// recover answers for a handler that panicked. It has to be deferred directly. http.ErrAbortHandler, which cuts a
// connection on purpose, is passed on to net/http.
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
	// The caller learns that something went wrong; what it was is in the log.
	s.writeError(w, r, &api.Error{Code: api.Internal, Message: "a fault in this node's handler", Remedy: "see the node's own log"})
}

// handler makes a route's function an http.Handler.
func (s *Server) handler(rt route) http.Handler {
	handle := rt.handle
	// Streams read their parameter consistency themselves.
	if rt.method == http.MethodGet && !rt.stream && !rt.about {
		handle = s.consistent(handle)
	}
	if rt.leader {
		handle = s.onLeader(handle)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// observe does not measure how long a stream takes.
		if out, ok := w.(*response); ok {
			out.stream = rt.stream
		}
		ctx, cancel, err := s.bounded(r, rt.stream)
		if err == nil {
			defer cancel()
			// A node whose state differs from the majority's must not serve any of it.
			if !rt.about && s.cfg.Node.Diverged() {
				err = raftnode.ErrDiverged
			} else {
				err = s.inTurn(ctx, rt, func() error { return handle(w, r.WithContext(ctx)) })
			}
			// Operations return context.Canceled where Close ended them; the caller is to learn why.
			if errors.Is(err, context.Canceled) && context.Cause(ctx) == service.ErrStopping {
				err = service.ErrStopping
			}
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	})
}

// inTurn runs what reads the whole log as soon as one of few places is free, and refuses after turnWithin: each
// such call takes the disk and a processor from those who publish. Other routes run at once.
func (s *Server) inTurn(ctx context.Context, rt route, do func() error) error {
	places := s.scans
	switch {
	case rt.backup:
		places = s.backups
	case !rt.scan:
		return do()
	}
	// Only the wait is bounded by turnWithin; do has the time of the request.
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

// consistent serves the parameter consistency for reads that are no streams. A linearizable read waits until this
// node has applied all that was acknowledged before it.
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
		// The route refuses parameters that it does not know, so it gets a copy of the request without this one.
		rest := *r.URL
		p.values.Del("consistency")
		rest.RawQuery = p.values.Encode()
		own := *r
		own.URL = &rest
		return handle(w, &own)
	}
}

// bounded returns a context with the time that the timeout parameter, or the server, allows; a stream without the
// parameter has no limit. Streams and other reads also end when the server closes: nothing is lost with them, and
// another node can serve them. Requests that may change something keep their time to be answered. The caller has
// to call the CancelFunc.
func (s *Server) bounded(r *http.Request, stream bool) (context.Context, context.CancelFunc, error) {
	limit := s.cfg.RequestTimeout
	text := ""
	// The query is parsed only where it may have the parameter.
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
	// Reads end with the server.
	if stream || r.Method == http.MethodGet || r.Method == http.MethodHead {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		unhook := context.AfterFunc(s.ctx, func() { cancel(service.ErrStopping) })
		end = func() { unhook(); cancel(nil) }
	}
	if stream && text == "" {
		return ctx, end, nil
	}
	// The cause lets a stream say in its last record that its time was up.
	cause := context.DeadlineExceeded
	if stream {
		cause = service.ErrStreamTime
	}
	ctx, endTime := context.WithTimeoutCause(ctx, limit, cause)
	return ctx, func() { endTime(); end() }, nil
}

// unrouted answers a request that no route takes: with 405 and the methods there are, or with 404.
func (s *Server) unrouted(w http.ResponseWriter, r *http.Request) {
	// Only the mux knows which methods a path has: its own answer names them in Allow.
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

// writeError answers with an error, in the form of the protocol that was used. Where an answer has begun it panics
// with http.ErrAbortHandler, which cuts the connection: the caller then sees that the answer is not whole.
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
	// The Connect protocols have error forms of their own.
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

// writeBytes answers with a body that is complete. It ignores write errors: a caller that has gone is no error of
// the node's.
func writeBytes(w http.ResponseWriter, status int, contentType string, b []byte) error {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
	return nil
}
