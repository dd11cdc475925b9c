package server

import (
	"context"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// cursorView is a cursor with what it is still to get.
type cursorView struct {
	fsm.Cursor
	LagEvents  uint64        `json:"lag_events"`             // that match, and that a group has not settled
	LagSeconds float64       `json:"lag_seconds"`            // how long the oldest of them waits
	LagAtLeast *uint64       `json:"lag_at_least,omitempty"` // set where not all was looked at: LagEvents is an upper bound
	lag        time.Duration // LagSeconds
	Group      *groupView    `json:"group,omitempty"` // where members share it
}

// view measures a cursor against the local log.
func (s *service) view(c fsm.Cursor) cursorView { return s.lagMeter(lagBlocks).view(c) }

func (m *lagMeter) view(c fsm.Cursor) cursorView {
	l := m.of(&c)
	return cursorView{Cursor: c, LagEvents: l.events, LagSeconds: l.wait.Seconds(), LagAtLeast: l.atLeast, lag: l.wait, Group: m.s.groupOf(&c)}
}

// cursorPage is a page of cursors, by name.
type cursorPage struct {
	Cursors []cursorView `json:"cursors"`
	Next    string       `json:"next,omitempty"` // ask again with after=next for more
	Total   int          `json:"cursors_total"`
}

// cursors returns the first cursors whose names follow after.
func (s *service) cursors(after string, limit int) (page cursorPage) {
	var cursors []fsm.Cursor
	cursors, page.Next, page.Total = s.machine().CursorsAfter(after, limit)
	page.Cursors = s.views(cursors)
	return page
}

func (s *service) views(cursors []fsm.Cursor) []cursorView {
	list, m := make([]cursorView, len(cursors)), s.lagMeter(lagBlocksListed)
	for i, c := range cursors {
		list[i] = m.view(c)
	}
	return list
}

func (s *service) cursor(name string) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	c, ok := s.machine().Cursor(name)
	if !ok {
		return cursorView{}, noCursor(name)
	}
	return s.view(c), nil
}

func noCursor(name string) *api.Error {
	return &api.Error{Code: api.NotFound, Field: "cursor", Message: fmt.Sprintf("there is no cursor %q", name),
		Remedy: "list them: ringlog cursor ls; or create it: ringlog cursor create " + name}
}

func (s *service) checkCursorName(name string) error {
	if name == "" {
		return &api.Error{Code: api.InvalidArgument, Field: "cursor", Message: "a cursor without a name", Remedy: "name it"}
	}
	return checkName("cursor", name, s.machine().Settings().Limits.NameBytes)
}

// cursorSpec is what a cursor is made with.
type cursorSpec struct {
	name   string
	from   api.Position // the default is the start
	filter event.Filter
	policy frame.CursorPolicy
}

// createCursor makes a cursor, or answers with the one there is when it is the same.
func (s *service) createCursor(ctx context.Context, c cursorSpec) (cursorView, error) {
	if err := s.checkCursorName(c.name); err != nil {
		return cursorView{}, err
	}
	if err := s.checkFilter(ctx, c.filter); err != nil {
		return cursorView{}, err
	}
	at, err := s.place(ctx, "from", c.from)
	if err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.CursorCreate{Name: c.name, Start: at, Filter: c.filter, Policy: c.policy})
}

// changeCursor gives a cursor another filter and policy, from behind its commit.
func (s *service) changeCursor(ctx context.Context, name string, f event.Filter, p frame.CursorPolicy) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	if err := s.checkFilter(ctx, f); err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.CursorChange{Name: name, Filter: f, Policy: p})
}

// place says a position as commands know it: what start and end mean is decided
// where the command is applied, everything else here.
func (s *service) place(ctx context.Context, field string, p api.Position) (frame.Position, error) {
	switch p.Kind {
	case api.AtDefault, api.AtStart:
		return frame.Position{Kind: frame.AtStart}, nil
	case api.AtEnd:
		return frame.Position{Kind: frame.AtEnd}, nil
	}
	if err := s.node.ReadBarrier(ctx); err != nil {
		return frame.Position{}, err
	}
	next, err := resolvePosition(s.machine(), p, api.AtStart)
	if err != nil {
		return frame.Position{}, err
	}
	if _, last := s.machine().Log().Bounds(); next > last+1 {
		return frame.Position{}, pastTail(field, next, last, fmt.Sprintf("send end, or an offset up to %d, which is the next event's", last+1))
	}
	return frame.Position{Kind: frame.AtOffset, Offset: next}, nil
}

func (s *service) cursorCommand(ctx context.Context, c frame.Command) (cursorView, error) {
	result, err := s.command(ctx, c)
	if err != nil {
		return cursorView{}, err
	}
	if result.Cursor == nil {
		return cursorView{}, fmt.Errorf("server: %T was answered without a cursor", c)
	}
	return s.view(*result.Cursor), nil
}

func (s *service) openCursor(ctx context.Context, name, opener string) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	if err := checkName("opener", opener, frame.MaxCallerID); err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.CursorOpen{Name: name, Opener: opener})
}

// commitCursor returns the cursor's commit after it, which is higher than offset
// where that was committed before.
func (s *service) commitCursor(ctx context.Context, name string, offset, generation uint64) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.CursorCommit{Name: name, Offset: offset, Generation: generation})
}

func (s *service) seekCursor(ctx context.Context, name string, to api.Position, seeker string) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	if to.Kind == api.AtDefault {
		return cursorView{}, badPosition("to", "")
	}
	if err := checkName("seeker", seeker, frame.MaxCallerID); err != nil {
		return cursorView{}, err
	}
	at, err := s.place(ctx, "to", to)
	if err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.CursorSeek{Name: name, To: at, Seeker: seeker})
}

func (s *service) deleteCursor(ctx context.Context, name string) (cursorView, error) {
	if err := s.checkCursorName(name); err != nil {
		return cursorView{}, err
	}
	return s.cursorCommand(ctx, frame.CursorDelete{Name: name})
}

// readCursor says how to read behind a cursor's commit.
type readCursor struct {
	name       string
	generation uint64
	from       uint64 // a resumed reader's next offset; 0 is behind the commit
	limit      uint64
	follow     bool
	spans      bool
}

// openCursorTail reads the events behind a cursor's commit for as long as the
// generation holds it. What was trimmed before the cursor had it comes first.
func (s *service) openCursorTail(ctx context.Context, r readCursor) (*tail, cursorView, error) {
	if err := s.checkCursorName(r.name); err != nil {
		return nil, cursorView{}, err
	}
	if r.generation == 0 {
		return nil, cursorView{}, &api.Error{Code: api.InvalidArgument, Field: "generation", Message: "a read without the generation that holds the cursor",
			Remedy: "open the cursor first and send the generation that it answers with"}
	}
	c, err := s.holder(ctx, r)
	if err != nil {
		return nil, cursorView{}, err
	}
	next := max(c.Passed()+1, r.from)
	t := s.newTail(tailRequest{filter: c.Filter, limit: r.limit, follow: r.follow, spans: r.spans}, next)
	t.cursor = r.name
	t.check = func() error { return s.holds(r) }
	t.gap = func(g *log.Gap) *log.Gap { return s.cursorGap(r.name, t, g) }
	return t, s.view(c), nil
}

// holder returns the cursor that the caller's generation holds. A node that has not
// heard of the generation yet catches up first.
func (s *service) holder(ctx context.Context, r readCursor) (fsm.Cursor, error) {
	c, ok := s.machine().Cursor(r.name)
	if !ok || c.Generation < r.generation {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return fsm.Cursor{}, err
		}
		c, _ = s.machine().Cursor(r.name)
	}
	return c, s.holds(r)
}

// holds reports whether the caller's generation still is the cursor's.
func (s *service) holds(r readCursor) error {
	newest, ok := s.machine().CursorGeneration(r.name)
	switch {
	case !ok:
		return noCursor(r.name)
	case newest < r.generation:
		return &api.Error{Code: api.InvalidArgument, Field: "generation", Offset: newest,
			Message: fmt.Sprintf("generation %d of cursor %q does not exist, the newest is %d", r.generation, r.name, newest),
			Remedy:  "send the generation that opening the cursor answered with"}
	case newest > r.generation:
		return &api.Error{Code: api.Fenced, Field: "generation", Offset: newest,
			Message: fmt.Sprintf("generation %d of cursor %q is over, %d holds it", r.generation, r.name, newest),
			Remedy:  "another reader opened the cursor; open it again to take it back"}
	}
	return nil
}

// cursorGap tells a gap that a reader ran into by what the cursor's record of it
// says, where there is one.
func (s *service) cursorGap(name string, t *tail, met *log.Gap) *log.Gap {
	if c, ok := s.machine().Cursor(name); ok && c.Gap != nil && met.From <= c.Gap.To {
		return filterGap(c.Gap, t.filter.matcher())
	}
	return met
}

// filterGap keeps the counts of types that the reader would have got.
func filterGap(g *log.Gap, m *event.Matcher) *log.Gap {
	out := *g
	out.Types = map[string]uint64{}
	for t, n := range g.Types {
		if m.MatchType(t) {
			out.Types[t] = n
		}
	}
	return &out
}
