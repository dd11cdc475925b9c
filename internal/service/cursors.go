package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/internal/tail"
	"github.com/ringrift/ringlog/log"
)

// Cursors holds the operations on durable cursors. A group's cursor is one too, so what they show of it
// comes from the engine.
type Cursors struct {
	*core
	engine *engine.Engine
}

// view measures a cursor against the local log.
func (cs *Cursors) view(ctx context.Context, c fsm.Cursor) api.Cursor {
	return cs.mine(ctx, cs.lagMeter(lagBlocks).view(c))
}

// view is a cursor as callers see it.
func (m *LagMeter) view(c fsm.Cursor) api.Cursor {
	l := m.Of(&c)
	return api.Cursor{
		Name:       c.Name,
		Filter:     c.Filter,
		Policy:     api.CursorPolicy(c.Policy),
		Committed:  c.Committed,
		Generation: c.Generation,
		Start:      c.Start,
		Created:    c.Created,
		Touched:    c.Touched,
		Seeks:      c.Seeks,
		LastSeek:   (*api.Seek)(c.LastSeek),
		Scanned:    c.Scanned,
		Found:      c.Found,
		Moved:      c.Moved,
		Stalled:    (*api.Stall)(c.Stalled),
		Gap:        (*api.Gap)(c.Gap),
		LagEvents:  l.Events,
		LagSeconds: l.Wait.Seconds(),
		LagAtLeast: l.atLeast,
		// Nil for a cursor that is not a group, or has no limits.
		Group:        m.cursors.GroupOf(&c),
		Backpressure: (*api.LagPressure)(m.settings.PressureOf(&c)),
	}
}

// List returns the first cursors whose names follow after.
func (cs *Cursors) List(ctx context.Context, after string, limit int) (page api.CursorPage) {
	// Only the cursors of this page are measured.
	var cursors []fsm.Cursor
	cursors, page.Next, page.Total = cs.Machine().CursorsAfter(after, limit, access.Of(ctx).Cursor)
	page.Cursors = cs.Views(cursors)
	for i := range page.Cursors {
		page.Cursors[i] = cs.mine(ctx, page.Cursors[i])
	}
	return page
}

// Views measures a list of cursors against the local log.
func (cs *Cursors) Views(cursors []fsm.Cursor) []api.Cursor {
	list, m := make([]api.Cursor, len(cursors)), cs.Lags()
	// One meter bounds what is read of the log for the whole list.
	for i, c := range cursors {
		list[i] = m.view(c)
	}
	return list
}

// Get returns a cursor as this node knows it.
func (cs *Cursors) Get(ctx context.Context, name string) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, name); err != nil {
		return api.Cursor{}, err
	}
	c, ok := cs.Machine().Cursor(name)
	if !ok {
		return api.Cursor{}, noCursor(name)
	}
	return cs.view(ctx, c), nil
}

// noCursor returns the error for a cursor that does not exist.
func noCursor(name string) *api.Error {
	// Names are often mistyped, so the remedy lists them first.
	return api.Refuse(api.NotFound, "cursor",
		fmt.Sprintf("there is no cursor %q", name),
		"list them: GET /v1/cursors, or ringlog cursor ls; or create it: PUT /v1/cursors/NAME, "+
			"or ringlog cursor create "+name)
}

// checkCursorName refuses what cannot be the name of a cursor or a group, by the settings in force.
func (c *core) checkCursorName(kind, name string) error {
	return api.CheckCursorName(kind, name, c.Machine().Settings().Limits.NameBytes)
}

// CursorSpec is what a cursor is made with.
type CursorSpec struct {
	// Name identifies the cursor in the cluster; a group has one, too.
	Name string
	From api.Position // the default is the start
	// Filter chooses the events, and may be changed later.
	Filter event.Filter
	// Policy bounds what an uncommitted cursor keeps from retention.
	Policy frame.CursorPolicy
}

// Create makes a cursor, or returns the existing one if it is the same.
func (cs *Cursors) Create(ctx context.Context, c CursorSpec) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, c.Name); err != nil {
		return api.Cursor{}, err
	}
	if err := cs.checkFilter(ctx, c.Filter); err != nil {
		return api.Cursor{}, err
	}
	// What start and end are is decided when the command is applied.
	at, err := cs.commandPosition(ctx, "from", c.From)
	if err != nil {
		return api.Cursor{}, err
	}
	made, err := cs.proposeFilter(ctx, frame.CursorCreate{
		Name:   c.Name,
		Start:  at,
		Filter: c.Filter,
		Policy: c.Policy,
	}, c.Filter)
	return made, cs.nameDifferences(ctx, err, c, nil)
}

// proposeFilter gets a command decided that gives a cursor its filter.
func (cs *Cursors) proposeFilter(ctx context.Context, c frame.Command, f event.Filter) (api.Cursor, error) {
	done, err := cs.propose(ctx, c)
	if err == nil {
		// This node has applied the command, so its catalogue has what was registered before.
		done.Warnings = cs.FilterWarnings(f)
	}
	return done, err
}

// Change gives a cursor another filter and policy, for the events after its commit.
func (cs *Cursors) Change(ctx context.Context, name string, f event.Filter, p frame.CursorPolicy) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, name); err != nil {
		return api.Cursor{}, err
	}
	if err := cs.checkFilter(ctx, f); err != nil {
		return api.Cursor{}, err
	}
	// Readers are fenced, as they would continue with the old filter.
	return cs.proposeFilter(ctx, frame.CursorChange{Name: name, Filter: f, Policy: p}, f)
}

// commandPosition returns a position as commands have it: what start and end mean is decided
// where the command is applied, everything else here.
func (c *core) commandPosition(ctx context.Context, field string, p api.Position) (frame.Position, error) {
	switch p.Kind {
	case api.AtDefault, api.AtStart:
		return frame.Position{Kind: frame.AtStart}, nil
	case api.AtEnd:
		return frame.Position{Kind: frame.AtEnd}, nil
	}
	// A node that lags would resolve the others to an earlier offset, or refuse one that exists.
	if err := c.node.ReadBarrier(ctx); err != nil {
		return frame.Position{}, err
	}
	// From here on the position is an offset, which all nodes apply alike.
	next, err := resolvePosition(c.Machine(), p, api.AtStart)
	if err != nil {
		return frame.Position{}, err
	}
	// last+1 is the end of the log: the offset of the next event.
	if _, last := c.Machine().Log().Bounds(); next > last+1 {
		return frame.Position{}, api.BeyondTail(
			field, next, last,
			fmt.Sprintf("send end, or an offset up to %d, which is the next event's", last+1),
		)
	}
	return frame.Position{Kind: frame.AtOffset, Offset: next}, nil
}

// propose proposes a command about a cursor, and returns the cursor as it is afterwards.
func (cs *Cursors) propose(ctx context.Context, c frame.Command) (api.Cursor, error) {
	// The state machine decides, and answers with the cursor after the command.
	result, err := cs.proposeAndApply(ctx, c)
	if err != nil {
		return api.Cursor{}, err
	}
	// Every command about a cursor answers with it.
	if result.Cursor == nil {
		return api.Cursor{}, errors.New("a command about a cursor was answered without it")
	}
	return cs.view(ctx, *result.Cursor), nil
}

// Open takes a cursor for a reader: its generation increases, and the reader before is fenced. opener, if not "",
// lets a repeated call be answered like the first.
func (cs *Cursors) Open(ctx context.Context, name, opener string) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, name); err != nil {
		return api.Cursor{}, err
	}
	if err := api.CheckName("opener", opener, frame.MaxCallerID); err != nil {
		return api.Cursor{}, err
	}
	// The generation increases in the log, so every node fences the reader before.
	return cs.propose(ctx, frame.CursorOpen{Name: name, Opener: opener})
}

// Commit returns the cursor's commit after it, which is higher than offset
// where that was committed before.
func (cs *Cursors) Commit(
	ctx context.Context, name string, offset, generation uint64, lease frame.RoleLease,
) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, name); err != nil {
		return api.Cursor{}, err
	}
	if err := checkLease(lease); err != nil {
		return api.Cursor{}, err
	}
	// An offset that was committed before changes nothing, so a retry is harmless.
	return cs.propose(ctx, frame.CursorCommit{Name: name, Offset: offset, Generation: generation, Lease: lease})
}

// Seek moves a cursor. seeker, if not "", lets a repeated call be answered like the first.
func (cs *Cursors) Seek(ctx context.Context, name string, to api.Position, seeker string) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, name); err != nil {
		return api.Cursor{}, err
	}
	// Unlike a cursor that is made, a seek has no position by default.
	if to.Kind == api.AtDefault {
		return api.Cursor{}, api.BadPosition("to", "")
	}
	if err := api.CheckName("seeker", seeker, frame.MaxCallerID); err != nil {
		return api.Cursor{}, err
	}
	// The position is resolved once, so a retry moves the cursor to the same place.
	at, err := cs.commandPosition(ctx, "to", to)
	if err != nil {
		return api.Cursor{}, err
	}
	return cs.propose(ctx, frame.CursorSeek{Name: name, To: at, Seeker: seeker})
}

// Delete removes a cursor and returns it as it was.
func (cs *Cursors) Delete(ctx context.Context, name string) (api.Cursor, error) {
	if err := cs.checkCursor(ctx, name); err != nil {
		return api.Cursor{}, err
	}
	return cs.propose(ctx, frame.CursorDelete{Name: name})
}

// ReadCursor says how to read the events after a cursor's commit.
type ReadCursor struct {
	Name string
	// Generation is what opening the cursor answered with. A newer one fences this read.
	Generation uint64
	From       uint64 // a resumed reader's next offset; 0 is after the commit
	Limit      uint64
	// Follow waits for more at the end of the log.
	Follow bool
	// Spans asks for events as they are stored, where there is no filter.
	Spans bool
}

// OpenTail reads the events after a cursor's commit for as long as the generation holds it. A gap comes first where
// some were trimmed before the cursor had committed them.
func (cs *Cursors) OpenTail(ctx context.Context, r ReadCursor) (*tail.Tail, api.Cursor, error) {
	if err := cs.checkCursor(ctx, r.Name); err != nil {
		return nil, api.Cursor{}, err
	}
	if r.Generation == 0 {
		return nil, api.Cursor{}, api.Refuse(api.InvalidArgument, "generation",
			"a read without the generation that holds the cursor",
			"open the cursor first and send the generation that it answers with")
	}
	// The caller has to hold the cursor before anything is read for it.
	c, err := cs.heldCursor(ctx, r)
	if err != nil {
		return nil, api.Cursor{}, err
	}
	// A leader has found nothing for the cursor up to Passed.
	// From is where a resumed reader has come to, which may be after the commit.
	next := max(c.Passed()+1, r.From)
	t := cs.newTail(TailRequest{Filter: c.Filter, Limit: r.Limit, Follow: r.Follow, Spans: r.Spans,
		types: access.Of(ctx).Types()}, next)
	// What was redriven for this cursor is read, too.
	t.ReadFor(r.Name)
	// Another reader that opens the cursor fences this one before its next batch.
	// The first function is called before each batch, the second for a gap that the reader meets.
	t.Guard(func() error { return cs.checkGeneration(r) }, func(g *log.Gap) *log.Gap { return cs.cursorGap(r.Name, t, g) })
	return t, cs.view(ctx, c), nil
}

// heldCursor returns the cursor that the caller's generation holds. A node that does not have
// the generation yet catches up first.
func (cs *Cursors) heldCursor(ctx context.Context, r ReadCursor) (fsm.Cursor, error) {
	c, ok := cs.Machine().Cursor(r.Name)
	// The cursor may have been opened on another node a moment ago.
	if !ok || c.Generation < r.Generation {
		if err := cs.node.ReadBarrier(ctx); err != nil {
			return fsm.Cursor{}, err
		}
		// A cursor that is still missing is an error of checkGeneration.
		c, _ = cs.Machine().Cursor(r.Name)
	}
	return c, cs.checkGeneration(r)
}

// checkGeneration returns nil while the caller's generation is the newest of the cursor, else why it is not.
func (cs *Cursors) checkGeneration(r ReadCursor) error {
	// The generation alone is read, which is cheap enough for each batch.
	newest, ok := cs.Machine().CursorGeneration(r.Name)
	switch {
	case !ok:
		return noCursor(r.Name)
	// The caller made up the number, or the cursor was removed and made again.
	case newest < r.Generation:
		return &api.Error{Code: api.InvalidArgument, Field: "generation", Offset: newest,
			Message: fmt.Sprintf("generation %d of cursor %q does not exist, the newest is %d", r.Generation, r.Name, newest),
			Remedy:  "send the generation that opening the cursor answered with"}
	// Another reader has opened the cursor since.
	case newest > r.Generation:
		return &api.Error{Code: api.Fenced, Field: "generation", Offset: newest,
			Message: fmt.Sprintf("generation %d of cursor %q is over, %d holds it", r.Generation, r.Name, newest),
			Remedy:  "another reader opened the cursor; open it again to take it back"}
	}
	return nil
}

// cursorGap is a gap that a reader ran into, with the counts of the cursor's record of it where there is one.
func (cs *Cursors) cursorGap(name string, t *tail.Tail, met *log.Gap) *log.Gap {
	// The record counts what the gap had, by type; what the reader met has only its bounds.
	// A gap that begins after the recorded one is another.
	if c, ok := cs.Machine().Cursor(name); ok && c.Gap != nil && met.From <= c.Gap.To {
		return tail.FilterGap(c.Gap, t.Matcher())
	}
	return met
}
