package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of the leader's scan for cursors.
const (
	scanEvery   = 500 * time.Millisecond
	scanAfter   = 30 * time.Second // a cursor is scanned for that has had events to look at for as long
	scanCursors = 1024             // that one look is about
	scanReads   = 16               // of the log, in one look
)

// cursorScanner is the leader's duty to find, for cursors that seem to lag, whether anything
// they would get is there, and to put that into the log. Without it a cursor with a filter
// would lag, hold events back and be reported as stalled because of what it never gets. One
// goroutine uses it.
type cursorScanner struct {
	service *core
	known   map[string]cursorFind
	after   string // the last cursor that was looked at
}

// cursorFind is what was found so far for a cursor, as it was then: nothing is open between
// what it had passed and to, and match says that the event after to is.
type cursorFind struct {
	created           time.Time
	generation, seeks uint64
	to                uint64
	match             bool
}

func newCursorScanner(s *core) *cursorScanner {
	return &cursorScanner{service: s, known: map[string]cursorFind{}}
}

// run scans until ctx ends.
func (c *cursorScanner) run(ctx context.Context) {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := c.look(ctx, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, raftnode.ErrDiverged) {
			c.service.logger.Warn("scan for cursors", "error", err)
		}
	}
}

// look scans for the cursors whose turn it is, within its bounds, and records what it found.
func (c *cursorScanner) look(ctx context.Context, now time.Time) error {
	m := c.service.Machine()
	// The command needs LevelDelivery on all members.
	if c.service.node.LeadingTerm() == 0 || m.FeatureLevel() < frame.LevelDelivery {
		clear(c.known)
		return nil
	}
	// Early enough that a cursor is not reported as stalled because of what it never gets.
	due := scanAfter
	if stall := m.Settings().CursorStall; stall > 0 {
		due = min(due, stall/2)
	}
	if len(c.known) > 2*scanCursors {
		clear(c.known) // most are of cursors that are gone, or have moved
	}
	var found []frame.CursorScan
	reads := scanReads
	list := m.Unscanned(c.after, scanCursors)
	for i := range list {
		if reads == 0 || ctx.Err() != nil {
			break
		}
		cur := &list[i]
		c.after = cur.Name
		waits, err := c.waits(cur, now)
		if err != nil {
			return err
		}
		// A stalled cursor does not wait: the scan may find that it has nothing to get.
		if waits < due && cur.Stalled == nil {
			continue
		}
		find, err := c.scan(cur, &reads)
		if err != nil {
			return fmt.Errorf("cursor %q: %w", cur.Name, err)
		}
		// Report what the state does not know yet, once the scan has come to an open event or the tail.
		_, last := m.Log().Bounds()
		passed := cur.Passed()
		news := find.to > passed || find.match && !cur.Filter.Empty()
		if complete := find.match || find.to >= last; news && complete {
			found = append(found, frame.CursorScan{Name: cur.Name, Created: cur.Created.UnixNano(), Generation: cur.Generation,
				From: passed, To: find.to, Match: find.match})
		}
	}
	for part := range slices.Chunk(found, frame.MaxScans) {
		if _, err := c.service.Propose(ctx, frame.Request{Command: frame.CursorsScanned{Scans: part}}); err != nil {
			return err
		}
	}
	return nil
}

// waits returns how long ago the first event that the cursor has not passed was appended; 0 where there is none.
func (c *cursorScanner) waits(cur *fsm.Cursor, now time.Time) (time.Duration, error) {
	l := c.service.Machine().Log()
	first, last := l.Bounds()
	offset := max(first, cur.Passed()+1)
	if offset > last {
		return 0, nil
	}
	columns, err := l.Columns(offset)
	if err != nil {
		return 0, err
	}
	return now.Sub(columns.AppendedAt), nil
}

// scan resumes where the last scan for the cursor ended, until it finds an open event or the tail, or reads are
// used up.
func (c *cursorScanner) scan(cur *fsm.Cursor, reads *int) (cursorFind, error) {
	find := c.known[cur.Name]
	// An earlier find does not hold for a cursor that was made again, opened or moved since, or has passed it.
	if !find.created.Equal(cur.Created) || find.generation != cur.Generation || find.seeks != cur.Seeks || find.to < cur.Passed() {
		find = cursorFind{created: cur.Created, generation: cur.Generation, seeks: cur.Seeks, to: cur.Passed()}
	}
	m := c.service.Machine()
	l := m.Log()
	matcher := cur.Filter.Compile(m.Catalogue())
	for _, last := l.Bounds(); !find.match && find.to < last && *reads > 0; *reads-- {
		chunk, err := l.ReadFor(cur.Name, find.to+1, &matcher, 1)
		if err != nil {
			return find, err
		}
		find.to = chunk.Next - 1
		if len(chunk.Events) == 0 {
			continue
		}
		offset := chunk.Events[0].Offset
		if find.match = !cur.Settled(offset); find.match {
			find.to = offset - 1
			continue
		}
		for _, r := range cur.Group.Done { // nothing to look at in the rest of its range
			if r.From <= offset && offset <= r.To {
				find.to = r.To
			}
		}
	}
	c.known[cur.Name] = find
	return find, nil
}
