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
	"github.com/ringrift/ringlog/raftnode"
)

const (
	waitDefault = 30 * time.Second // for a wait that does not say how long
	waitCursors = 256              // at most in one wait
)

// waitView says which of the cursors have committed an offset.
type waitView struct {
	Offset     uint64         `json:"offset"`
	Reached    bool           `json:"reached"` // by all of them
	LastOffset uint64         `json:"last_offset"`
	Cursors    []waitedCursor `json:"cursors"`
}

type waitedCursor struct {
	Name      string `json:"name"`
	Committed uint64 `json:"committed"`
	Behind    uint64 `json:"behind"` // offsets to go
	Reached   bool   `json:"reached"`
}

// getWait answers GET /v1/wait once all cursors have committed an offset, which may be
// one to come; or when the time is up, with reached false.
func (s *Server) getWait(w http.ResponseWriter, r *http.Request) error {
	p := newParams(r)
	offset, timed := p.uint("offset"), p.text("timeout") != ""
	names := p.cursorNames()
	if offset == 0 {
		p.fail(badParam("offset", r.URL.Query().Get("offset"), "an offset from 1"))
	}
	if err := p.done(); err != nil {
		return err
	}
	release, err := s.stream()
	if err != nil {
		return err
	}
	defer release()
	ctx := r.Context()
	if !timed {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, waitDefault, errStreamTime)
		defer cancel()
	}
	v, err := s.ops.waitCommitted(ctx, offset, names)
	if err != nil && !errors.Is(err, errStreamTime) {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

// cursorNames are those of cursors, comma separated, and of each cursor.
func (p *params) cursorNames() (names []string) {
	for _, name := range slices.Concat(p.list("cursor"), strings.Split(p.text("cursors"), ",")) {
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

// waitCommitted returns when all cursors have committed offset, or with the error of
// ctx how far they are. It looks again when one of them moved.
func (s *service) waitCommitted(ctx context.Context, offset uint64, names []string) (waitView, error) {
	watch := s.machine().WatchCursors(names)
	defer watch.Close()
	alive := time.NewTicker(s.heartbeat)
	defer alive.Stop()
	for caughtUp := false; ; {
		v, err := s.committedBy(offset, names)
		switch {
		case s.node.Diverged():
			return v, raftnode.ErrDiverged
		case err != nil && !caughtUp: // it may have been made elsewhere a moment ago
			if err := s.node.ReadBarrier(ctx); err != nil {
				return v, err
			}
			caughtUp = true
			continue
		case err != nil || v.Reached:
			return v, err
		}
		select {
		case <-watch.Moved():
		case <-alive.C: // whether the node still serves
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}

// committedBy compares the cursors with an offset; the error names the first that there
// is not.
func (s *service) committedBy(offset uint64, names []string) (waitView, error) {
	v := waitView{Offset: offset, Reached: true}
	for _, name := range names {
		c, ok := s.machine().Cursor(name)
		if !ok {
			return v, noCursor(name)
		}
		one := waitedCursor{Name: name, Committed: c.Committed, Behind: offset - min(offset, c.Committed)}
		one.Reached = one.Behind == 0
		v.Reached = v.Reached && one.Reached
		v.Cursors = append(v.Cursors, one)
	}
	_, v.LastOffset = s.machine().Log().Bounds()
	return v, nil
}
