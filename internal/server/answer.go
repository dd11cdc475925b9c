package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/raftnode"
)

// errorWriter answers with errors, in the form of each protocol.
type errorWriter struct {
	node   Node
	logger hclog.Logger
}

// toAPI is service.ToAPI, completed with the address of the leader where that helps the caller. It logs internal
// errors.
func (e *errorWriter) toAPI(err error) *api.Error {
	// A copy, since the error may be shared.
	shown := *service.ToAPI(err)
	// The log of a node that is in no cluster yet has no tail to be past.
	if shown.Code == api.PastTail {
		if forming, ok := errors.AsType[*raftnode.NotFormedError](e.node.NoLeaderError()); ok {
			shown = *service.ToAPI(forming)
		}
	}
	switch shown.Code {
	case api.NoLeader, api.Unavailable, api.NoQuorum, api.OutcomeUnknown:
		shown.LeaderHTTP = e.node.LeaderHTTP()
	case api.Internal:
		e.logger.Error("request failed", "error", err)
	}
	return &shown
}

// writeError answers with an error; over HTTP as
//
//	{"error":{"code":"no_leader","message":"…","remedy":"…","leader_http":"…"}}
//
// and over Connect as an error of that protocol, with the same in a detail. Where an answer has begun it panics
// with http.ErrAbortHandler, which cuts the connection: the caller then sees that the answer is not whole.
func (e *errorWriter) writeError(w http.ResponseWriter, r *http.Request, err error) {
	if out, ok := w.(*response); ok && out.status != 0 {
		panic(http.ErrAbortHandler)
	}
	// From here on the error is in the form that callers get.
	shown := e.toAPI(err)
	h := w.Header()
	if b, ok := r.Body.(*body); ok && !b.discardRest(r) {
		h.Set("Connection", "close") // else net/http waits for the body before it answers
	}
	// Headers say what programs need that do not parse the body.
	setRetryAfter(h, shown.Code)
	if shown.LeaderHTTP != "" {
		h.Set(headerLeader, shown.LeaderHTTP)
	}
	if shown.Code == api.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="ringlog"`)
	}
	// The Connect protocols have error forms of their own.
	if strings.HasPrefix(r.URL.Path, "/ringlog.v1.") {
		if writer := connect.NewErrorWriter(); writer.IsSupported(r) {
			_ = writer.Write(w, r, connectError(shown))
			return
		}
	}
	_ = writeJSON(w, shown.Code.Status(), map[string]*api.Error{"error": shown})
}

// answerJSON answers with what an operation returned. It returns the operation's error, if there is one.
func answerJSON(w http.ResponseWriter, v any, err error) error {
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// writeJSON answers with a value. That the caller has left is not this node's error.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	// The whole answer is encoded first, so an error can still be answered.
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return writeBytes(w, status, contentJSON, append(b, '\n'))
}

// setWarnings adds what a caller is warned about to the header, which every protocol and also a stream has.
func setWarnings(h http.Header, list []event.Warning) {
	if len(list) == 0 {
		return
	}
	// The header is one list, as some clients read only one header of a name.
	var before []event.Warning
	if json.Unmarshal([]byte(h.Get(api.WarningsHeader)), &before) == nil {
		list = append(before, list...)
	}
	// Types and categories are ASCII, so the JSON is what a header may have.
	text, err := json.Marshal(list)
	if err == nil {
		h.Set(api.WarningsHeader, string(text))
	}
}

// writeBytes answers with a body that is complete. It ignores write errors: that the caller has left is not this
// node's error.
func writeBytes(w http.ResponseWriter, status int, contentType string, b []byte) error {
	// With its length an answer over HTTP/1.1 needs no chunks.
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
	return nil
}
