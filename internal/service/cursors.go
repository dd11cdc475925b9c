package service

import (
	"context"
	"fmt"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
)

// view measures a cursor against the local log.
func (s *Cursors) view(c fsm.Cursor) api.Cursor { return s.lagMeter(lagBlocks).view(c) }

// view is a cursor as callers see it.
func (m *LagMeter) view(c fsm.Cursor) api.Cursor {
	l := m.Of(&c)
	return api.Cursor{Name: c.Name, Filter: c.Filter, Policy: api.CursorPolicy(c.Policy), Committed: c.Committed, Generation: c.Generation,
		Start: c.Start, Created: c.Created, Touched: c.Touched, Seeks: c.Seeks, LastSeek: (*api.Seek)(c.LastSeek), Scanned: c.Scanned, Found: c.Found,
		Moved: c.Moved, Stalled: (*api.Stall)(c.Stalled), Gap: (*api.Gap)(c.Gap),
		LagEvents: l.Events, LagSeconds: l.Wait.Seconds(), LagAtLeast: l.atLeast, Group: m.service.GroupOf(&c)}
}

// List returns the first cursors whose names follow after.
func (s *Cursors) List(after string, limit int) (page api.CursorPage) {
	var cursors []fsm.Cursor
	cursors, page.Next, page.Total = s.Machine().CursorsAfter(after, limit)
	page.Cursors = s.Views(cursors)
	return page
}

// Views measures a list of cursors against the local log.
func (s *Cursors) Views(cursors []fsm.Cursor) []api.Cursor {
	list, m := make([]api.Cursor, len(cursors)), s.Lags()
	for i, c := range cursors {
		list[i] = m.view(c)
	}
	return list
}

// Get returns a cursor as this node knows it.
func (s *Cursors) Get(name string) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	c, ok := s.Machine().Cursor(name)
	if !ok {
		return api.Cursor{}, noCursor(name)
	}
	return s.view(c), nil
}

// noCursor returns the error for a cursor that does not exist.
func noCursor(name string) *api.Error {
	return &api.Error{Code: api.NotFound, Field: "cursor", Message: fmt.Sprintf("there is no cursor %q", name),
		Remedy: "list them: ringlog cursor ls; or create it: ringlog cursor create " + name}
}

func (s *core) checkCursorName(name string) error {
	if name == "" {
		return &api.Error{Code: api.InvalidArgument, Field: "cursor", Message: "a cursor without a name", Remedy: "name it"}
	}
	return checkName("cursor", name, s.Machine().Settings().Limits.NameBytes)
}

// CursorSpec is what a cursor is made with.
type CursorSpec struct {
	Name   string
	From   api.Position // the default is the start
	Filter event.Filter
	Policy frame.CursorPolicy
}

// Create makes a cursor, or returns the existing one if it is the same.
func (s *Cursors) Create(ctx context.Context, c CursorSpec) (api.Cursor, error) {
	if err := s.checkCursorName(c.Name); err != nil {
		return api.Cursor{}, err
	}
	if err := s.checkFilter(ctx, c.Filter); err != nil {
		return api.Cursor{}, err
	}
	at, err := s.place(ctx, "from", c.From)
	if err != nil {
		return api.Cursor{}, err
	}
	return s.propose(ctx, frame.CursorCreate{Name: c.Name, Start: at, Filter: c.Filter, Policy: c.Policy})
}

// Change gives a cursor another filter and policy, for the events after its commit.
func (s *Cursors) Change(ctx context.Context, name string, f event.Filter, p frame.CursorPolicy) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	if err := s.checkFilter(ctx, f); err != nil {
		return api.Cursor{}, err
	}
	return s.propose(ctx, frame.CursorChange{Name: name, Filter: f, Policy: p})
}

// place returns a position as commands have it: what start and end mean is decided
// where the command is applied, everything else here.
func (s *core) place(ctx context.Context, field string, p api.Position) (frame.Position, error) {
	switch p.Kind {
	case api.AtDefault, api.AtStart:
		return frame.Position{Kind: frame.AtStart}, nil
	case api.AtEnd:
		return frame.Position{Kind: frame.AtEnd}, nil
	}
	// A node that lags would resolve the others to an earlier offset, or refuse one that exists.
	if err := s.node.ReadBarrier(ctx); err != nil {
		return frame.Position{}, err
	}
	next, err := resolvePosition(s.Machine(), p, api.AtStart)
	if err != nil {
		return frame.Position{}, err
	}
	if _, last := s.Machine().Log().Bounds(); next > last+1 {
		return frame.Position{}, api.BeyondTail(field, next, last, fmt.Sprintf("send end, or an offset up to %d, which is the next event's", last+1))
	}
	return frame.Position{Kind: frame.AtOffset, Offset: next}, nil
}

// propose gets a command about a cursor decided, and returns the cursor as it is after it.
func (s *Cursors) propose(ctx context.Context, c frame.Command) (api.Cursor, error) {
	result, err := s.command(ctx, c)
	if err != nil {
		return api.Cursor{}, err
	}
	if result.Cursor == nil {
		return api.Cursor{}, fmt.Errorf("server: %T was answered without a cursor", c)
	}
	return s.view(*result.Cursor), nil
}

// Open takes a cursor for a reader: its generation rises, and the reader before is fenced. opener, if not "",
// lets a repeated call be answered like the first.
func (s *Cursors) Open(ctx context.Context, name, opener string) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	if err := checkName("opener", opener, frame.MaxCallerID); err != nil {
		return api.Cursor{}, err
	}
	return s.propose(ctx, frame.CursorOpen{Name: name, Opener: opener})
}

// Commit returns the cursor's commit after it, which is higher than offset
// where that was committed before.
func (s *Cursors) Commit(ctx context.Context, name string, offset, generation uint64) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	return s.propose(ctx, frame.CursorCommit{Name: name, Offset: offset, Generation: generation})
}

// Seek moves a cursor. seeker, if not "", lets a repeated call be answered like the first.
func (s *Cursors) Seek(ctx context.Context, name string, to api.Position, seeker string) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	// Unlike a cursor that is made, a seek has no position by default.
	if to.Kind == api.AtDefault {
		return api.Cursor{}, api.BadPosition("to", "")
	}
	if err := checkName("seeker", seeker, frame.MaxCallerID); err != nil {
		return api.Cursor{}, err
	}
	at, err := s.place(ctx, "to", to)
	if err != nil {
		return api.Cursor{}, err
	}
	return s.propose(ctx, frame.CursorSeek{Name: name, To: at, Seeker: seeker})
}

// Delete removes a cursor and returns it as it was.
func (s *Cursors) Delete(ctx context.Context, name string) (api.Cursor, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.Cursor{}, err
	}
	return s.propose(ctx, frame.CursorDelete{Name: name})
}

// ReadCursor says how to read the events after a cursor's commit.
type ReadCursor struct {
	Name       string
	Generation uint64
	From       uint64 // a resumed reader's next offset; 0 is after the commit
	Limit      uint64
	Follow     bool
	Spans      bool
}

// OpenTail reads the events after a cursor's commit for as long as the generation holds it. A gap comes first where
// some were trimmed before the cursor had committed them.
func (s *Cursors) OpenTail(ctx context.Context, r ReadCursor) (*tail.Tail, api.Cursor, error) {
	if err := s.checkCursorName(r.Name); err != nil {
		return nil, api.Cursor{}, err
	}
	if r.Generation == 0 {
		return nil, api.Cursor{}, &api.Error{Code: api.InvalidArgument, Field: "generation", Message: "a read without the generation that holds the cursor",
			Remedy: "open the cursor first and send the generation that it answers with"}
	}
	c, err := s.holder(ctx, r)
	if err != nil {
		return nil, api.Cursor{}, err
	}
	// A leader has found nothing for the cursor up to Passed.
	next := max(c.Passed()+1, r.From)
	t := s.newTail(TailRequest{Filter: c.Filter, Limit: r.Limit, Follow: r.Follow, Spans: r.Spans}, next)
	t.ReadFor(r.Name)
	// Another reader that opens the cursor fences this one before its next batch.
	t.Guard(func() error { return s.holds(r) }, func(g *log.Gap) *log.Gap { return s.cursorGap(r.Name, t, g) })
	return t, s.view(c), nil
}

// holder returns the cursor that the caller's generation holds. A node that does not have
// the generation yet catches up first.
func (s *Cursors) holder(ctx context.Context, r ReadCursor) (fsm.Cursor, error) {
	c, ok := s.Machine().Cursor(r.Name)
	if !ok || c.Generation < r.Generation {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return fsm.Cursor{}, err
		}
		c, _ = s.Machine().Cursor(r.Name)
	}
	return c, s.holds(r)
}

// holds returns nil while the caller's generation is the newest of the cursor, else why it is not.
func (s *Cursors) holds(r ReadCursor) error {
	newest, ok := s.Machine().CursorGeneration(r.Name)
	switch {
	case !ok:
		return noCursor(r.Name)
	case newest < r.Generation:
		return &api.Error{Code: api.InvalidArgument, Field: "generation", Offset: newest,
			Message: fmt.Sprintf("generation %d of cursor %q does not exist, the newest is %d", r.Generation, r.Name, newest),
			Remedy:  "send the generation that opening the cursor answered with"}
	case newest > r.Generation:
		return &api.Error{Code: api.Fenced, Field: "generation", Offset: newest,
			Message: fmt.Sprintf("generation %d of cursor %q is over, %d holds it", r.Generation, r.Name, newest),
			Remedy:  "another reader opened the cursor; open it again to take it back"}
	}
	return nil
}

// cursorGap is a gap that a reader ran into, with the counts of the cursor's record of it where there is one.
func (s *Cursors) cursorGap(name string, t *tail.Tail, met *log.Gap) *log.Gap {
	if c, ok := s.Machine().Cursor(name); ok && c.Gap != nil && met.From <= c.Gap.To {
		return tail.FilterGap(c.Gap, t.Matcher())
	}
	return met
}
