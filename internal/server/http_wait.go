package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/service"
)

const (
	waitDefault = 30 * time.Second // for a wait that does not say how long
	waitCursors = 256              // at most in one wait
)

// getWait answers GET /v1/wait once all cursors have committed an offset, which may be one to come. When the time
// is up it answers how far they are, with reached false.
func (s *Server) getWait(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	offset, timed := p.uint("offset"), p.text("timeout") != ""
	names := p.cursorNames()
	if offset == 0 {
		p.fail(api.BadValue("offset", r.URL.Query().Get("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	// A wait may last as long as a stream, and takes one of their places.
	release, err := s.stream()
	if err != nil {
		return err
	}
	defer release()
	ctx := r.Context()
	// Its own limit has the cause that bounded gives to a timeout parameter.
	if !timed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, waitDefault, service.ErrStreamTime)
		defer cancel()
	}
	// Time that is up is an answer, not an error.
	v, err := s.ops.Log.WaitCommitted(ctx, offset, names)
	if err != nil && !errors.Is(err, service.ErrStreamTime) {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// cursorNames returns the distinct names in cursors, which are comma separated, and in each cursor parameter.
func (p *params) cursorNames() (names []string) {
	for _, name := range slices.Concat(p.list("cursor"), strings.Split(p.text("cursors"), ",")) {
		// A cursor that is named twice is one to wait for.
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if n := len(names); n == 0 || n > waitCursors {
		p.fail(&api.Error{Code: api.InvalidArgument, Field: "cursors", Message: fmt.Sprintf("%d cursors to wait for", n),
			Remedy: fmt.Sprintf("name 1 to %d, comma separated", waitCursors)})
	}
	return names
}
