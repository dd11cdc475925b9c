package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/certs"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// Headers of the HTTP interface.
const (
	headerForwarded  = "Ringlog-Forwarded"   // 1 on a call that another node passed on
	headerLeader     = "Ringlog-Leader"      // on answers: where the leader answers, if the node knows it
	headerProducer   = "Ringlog-Producer"    // with a publish: who sends
	headerSequence   = "Ringlog-Sequence"    // with a publish: the sender's 1, 2, 3 …
	headerRole       = "Ringlog-Role"        // with a publish, commit or dead letter: the role without which it is refused
	headerFence      = "Ringlog-Fence"       // beside it: the fence of that role's lease
	headerLastOffset = "Ringlog-Last-Offset" // on a read: the tail when it began
)

// The types that bodies and answers have.
const (
	contentJSON   = "application/json"
	contentNDJSON = "application/x-ndjson"
	contentSSE    = "text/event-stream"
	contentHTML   = "text/html; charset=utf-8"
)

// handlerFunc answers a request, or returns the error to answer with. Once a byte was written, an error cuts the
// connection instead.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// Handler answers all of the server's routes. Serve adds the bounds on headers and
// idle connections.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serveHTTP) }

// serveHTTP does what holds for every request, whichever protocol it is of, and hands it to its route.
func (s *Server) serveHTTP(w http.ResponseWriter, r *http.Request) {
	// The time to answer includes what precedes the handler.
	began := time.Now()
	// Every write is bounded in time, whichever handler does it.
	out := &response{ResponseWriter: w, control: http.NewResponseController(w), timeout: s.cfg.WriteTimeout}
	// Refusals name the cluster, too.
	if id := s.identity.clusterID(); id != "" {
		out.Header().Set(api.ClusterHeader, id)
	}
	if !s.lifecycle.enter() {
		s.errors.writeError(out, r, service.ErrStopping)
		return
	}
	defer s.lifecycle.calls.Done()
	// Deferred calls run from the last to the first: the inner recoverPanic answers for a handler that panicked,
	// countRequest counts that answer, and the outer recoverPanic covers countRequest itself.
	defer s.recoverPanic(out, r)
	defer func() { s.metrics.countRequest(out, r, began) }() // of the request that has its caller
	defer s.recoverPanic(out, r)
	// First whether anybody may call like this, then who calls: what it may do depends on the route.
	var err error
	if s.cfg.TLSMode == certs.Require {
		err = refusePlain(r)
	}
	if err == nil {
		err = s.admission.fromBrowser(r)
	}
	if err != nil {
		s.errors.writeError(out, r, err)
		return
	}
	who, unknown := s.callers.identify(r)
	r = withCaller(r, who, unknown)
	// What the request holds in memory is counted from here to its end: nothing was read of its body yet.
	memory := s.memory
	if strings.HasPrefix(r.URL.Path, peerPath) {
		memory = s.peerMemory
	}
	held := memory.openHold(payer(who, r.RemoteAddr))
	defer held.close()
	r = r.WithContext(withHold(r.Context(), held))
	// A body is bounded in time and memory, whichever handler reads it.
	if r.Body != http.NoBody {
		r.Body = &body{
			ReadCloser: r.Body,
			hold:       held,
			control:    out.control,
			pace:       pace{idle: s.cfg.BodyTimeout},
		}
	}
	setWarnings(out.Header(), s.admission.warnings(r))
	// The mux would answer 404 and 405 in plain text.
	if _, pattern := s.mux.Handler(r); pattern == "" || s.literals.lacks(r) {
		if err := s.admit(r, nil); err != nil {
			s.errors.writeError(out, r, err)
			return
		}
		s.answerUnrouted(out, r)
		return
	}
	// The route's own handler, see handler.
	s.mux.ServeHTTP(out, r)
}

// admit refuses a call that its caller may not make, and one that is meant for another cluster.
func (s *Server) admit(r *http.Request, rt *route) error {
	if err := s.admission.permit(r, rt); err != nil {
		// Such an answer also ends with the server.
		ctx, end := untilStopped(r.Context(), s.ctx)
		defer end()
		s.refusals.slow(ctx, r.RemoteAddr, err)
		return err
	}
	// Health checks are answered however many there are, and calls between nodes are nobody's own.
	if rt != nil && rt.needs != access.Open && rt.needs != access.Peer {
		who, _ := callerOf(r.Context())
		if err := s.callers.count(who); err != nil {
			return err
		}
	}
	return s.identity.sameCluster(r)
}

// handler makes the http.Handler of a route: what its row says is done here, and the rest by its own function.
func (s *Server) handler(rt route) http.Handler {
	// A Connect method bounds its time and its streams by itself, in interceptor.
	serve := s.operation(rt)
	if rt.service != nil {
		serve = s.messages.metered(rt)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// countRequest does not measure how long a stream takes.
		if out, ok := w.(*response); ok {
			out.stream = rt.stream
		}
		err := s.admit(r, &rt)
		switch {
		case err != nil:
		// A node whose state differs from the majority's must not serve any of it.
		case !rt.about && s.cfg.Node.Diverged():
			err = raftnode.ErrDiverged
		default:
			// A caller that the node does not know learns nothing of the cluster's addresses.
			if leader := s.cfg.Node.LeaderHTTP(); leader != "" && rt.needs != access.Open {
				w.Header().Set(headerLeader, leader)
			}
			// What lasts ends with the caller's token.
			if rt.stream || rt.lasts {
				ctx, cancel := s.callers.last(r.Context(), rt.needs)
				defer cancel()
				r = r.WithContext(ctx)
			}
			if rt.act != "" {
				r = r.WithContext(access.Acting(r.Context(), rt.act))
			}
			err = serve(w, r)
		}
		if err != nil {
			s.errors.writeError(w, r, err)
		}
	})
}

// operation returns the function of a route of the HTTP interface, in the time and with the turn that its row gives
// it, on the node that its row names, and with the consistency that the caller asks for.
func (s *Server) operation(rt route) handlerFunc {
	handle := rt.handle
	// Streams read their parameter consistency themselves. A scan reads, whatever its method.
	if (rt.method == http.MethodGet || rt.scan) && !rt.stream && !rt.about {
		handle = s.withConsistency(handle)
	}
	// Passed on before anything is read here: the leader checks its own consistency.
	if rt.leader {
		handle = s.forward.onLeader(handle)
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		// The bound holds for all readers of the body here.
		if b, ok := r.Body.(*body); ok {
			b.limit = rt.bodyLimit(s.cfg.Node.Machine())
		}
		ctx, cancel, err := s.limitTime(r, rt)
		if err != nil {
			return err
		}
		defer cancel()
		err = s.inTurn(ctx, rt, func() error { return handle(w, r.WithContext(ctx)) })
		// Operations return context.Canceled where Close ended them; the caller is to learn why.
		if errors.Is(err, context.Canceled) && context.Cause(ctx) == service.ErrStopping {
			return service.ErrStopping
		}
		return err
	}
}

// limitTime returns a context with the time that the timeout parameter, or the server, allows; a stream without the
// parameter has no limit. Streams and other reads also end when the server closes: nothing is lost with them, and
// another node can serve them. Requests that may change something keep their time to be answered. The caller has
// to call the CancelFunc.
func (s *Server) limitTime(r *http.Request, rt route) (context.Context, context.CancelFunc, error) {
	// The server's own limit, unless the caller asks for another.
	limit := s.cfg.RequestTimeout
	text := ""
	// The query is parsed only where it may have the parameter.
	if !rt.many && strings.Contains(r.URL.RawQuery, "timeout=") {
		text = r.URL.Query().Get("timeout")
	}
	if text != "" {
		// A caller may ask for less than the server's limit, or for more, up to maxTimeout.
		d, err := time.ParseDuration(text)
		if err != nil || d <= 0 || d > maxTimeout {
			return nil, nil, api.BadValue("timeout", text, "a duration up to 1h, such as 5s")
		}
		limit = d
	}
	ctx, end := r.Context(), context.CancelFunc(func() {})
	// Reads end with the server.
	if rt.stream || r.Method == http.MethodGet || r.Method == http.MethodHead {
		ctx, end = untilStopped(ctx, s.ctx)
	}
	if rt.stream && text == "" {
		return ctx, end, nil
	}
	// The cause lets a stream say in its last record that its time was up.
	cause := context.DeadlineExceeded
	if rt.stream {
		cause = service.ErrStreamTime
	}
	ctx, endTime := context.WithTimeoutCause(ctx, limit, cause)
	return ctx, func() { endTime(); end() }, nil
}

// untilStopped returns a context that also ends with stopping, and then has the cause service.ErrStopping. The
// caller has to call the CancelFunc.
func untilStopped(ctx, stopping context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(stopping, func() { cancel(service.ErrStopping) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// recoverPanic answers for a handler that panicked. It has to be deferred directly. http.ErrAbortHandler, which cuts a
// connection on purpose, is passed on to net/http.
func (s *Server) recoverPanic(w *response, r *http.Request) {
	value := recover()
	if value == nil {
		return
	}
	if value == http.ErrAbortHandler {
		panic(value)
	}
	// The stack is in the log alone.
	s.logger.Error("panic in a handler", "path", r.URL.Path, "panic", value, "stack", string(debug.Stack()))
	s.metrics.panics.Inc()
	if s.cfg.OnPanic != nil {
		s.cfg.OnPanic(value)
	}
	// The caller learns that something went wrong; what it was is in the log.
	s.errors.writeError(w, r, &api.Error{
		Code:    api.Internal,
		Message: "a fault in this node's handler",
		Remedy:  "see the node's own log",
	})
}

// inTurn runs what reads the whole log as soon as one of few places is free, and refuses after turnWithin: each
// such call takes the disk and a processor from those who publish. Other routes run at once.
func (s *Server) inTurn(ctx context.Context, rt route, do func() error) error {
	// Which of the two kinds of places the route needs, if any.
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
	// A caller that would wait longer is refused: another node may have a place.
	if places.Acquire(waiting, 1) != nil {
		return &api.Error{
			Code:    api.Overloaded,
			Message: "as many calls read the whole log as this node serves at a time",
			Remedy:  "retry later, or ask another node",
		}
	}
	defer places.Release(1)
	return do()
}

// turnWithin is how long a call waits for its turn.
const turnWithin = 2 * time.Second

// maxTimeout is the longest time that a caller may ask for.
const maxTimeout = time.Hour

// withConsistency serves the parameter consistency for reads that are not streams. A linearizable read waits until this
// node has applied all that was acknowledged before it.
func (s *Server) withConsistency(handle handlerFunc) handlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !strings.Contains(r.URL.RawQuery, "consistency=") {
			return handle(w, r)
		}
		// The query is parsed only where it may have the parameter.
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
		own := *r.WithContext(context.WithValue(r.Context(), linearizableKey{}, linearizable))
		own.URL = &rest
		return handle(w, &own)
	}
}

// linearizableKey is the key under which the context of a request has whether it is linearizable.
type linearizableKey struct{}

// linearizable reports whether the caller has asked for all that was acknowledged before. This node has it by now.
func linearizable(ctx context.Context) bool {
	asked, _ := ctx.Value(linearizableKey{}).(bool)
	return asked
}

// answerUnrouted answers a request that no route takes: with 405 and the methods there are, or with 404.
func (s *Server) answerUnrouted(w http.ResponseWriter, r *http.Request) {
	// Only the mux knows which methods a path with a wildcard has: its own answer names them in Allow.
	allow, literal := s.literals[r.URL.Path]
	if !literal {
		plain, _ := s.mux.Handler(r)
		seen := headerOnly{}
		plain.ServeHTTP(seen, r)
		allow = seen.Header().Get("Allow")
	}
	// The path exists, for other methods.
	if allow != "" {
		w.Header().Set("Allow", allow)
		s.errors.writeError(w, r, api.Refuse(api.MethodNotAllowed, "method",
			fmt.Sprintf("%s is not for %s", r.Method, r.URL.Path),
			"use "+allow))
		return
	}
	// No route has this path.
	unrouted := api.Refuse(api.NotFound, "path",
		fmt.Sprintf("this node has nothing at %.300s", r.URL.Path),
		"see /openapi.json for what there is; a newer version may have more")
	unrouted.Reason = api.ReasonUnknownPath
	s.errors.writeError(w, r, unrouted)
}

// literals has the methods of each path of the HTTP interface without a wildcard, as Allow lists them. To the mux such
// a path also has the methods of a route with a wildcard that matches it: /v1/dlq/purge those of /v1/dlq/{id}.
type literals map[string]string

// literalsOf returns the literals of a table.
func literalsOf(routes []route) literals {
	methods := map[string][]string{}
	for _, rt := range routes {
		if rt.service != nil || strings.Contains(rt.path, "{") {
			continue
		}
		methods[rt.path] = append(methods[rt.path], rt.method)
		if rt.method == http.MethodGet {
			methods[rt.path] = append(methods[rt.path], http.MethodHead)
		}
	}
	out := literals{}
	for path, list := range methods {
		slices.Sort(list)
		out[path] = strings.Join(list, ", ")
	}
	return out
}

// lacks reports whether the path of a request is one of them and has other methods than the request's.
func (l literals) lacks(r *http.Request) bool {
	allow, literal := l[r.URL.Path]
	return literal && !slices.Contains(strings.Split(allow, ", "), r.Method)
}

// headerOnly keeps the header of an answer and drops the rest.
type headerOnly http.Header

func (h headerOnly) Header() http.Header         { return http.Header(h) }
func (h headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (h headerOnly) WriteHeader(int)             {}
