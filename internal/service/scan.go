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
	scanAfter   = 30 * time.Second // how long a cursor has had events to look at before it is scanned for
	scanCursors = 1024             // in one look
	scanReads   = 16               // of the log, in one look
)

// A scan for a cursor reads on from where the last one ended:
//
//	committed              passed                  find.to             tail
//	    |---------------------|-----------------------|------------------|
//	     nothing open, as the   nothing open, as this    not read yet
//	     log records it         node has found
//
// It ends at the first event that is open, at the tail, or once its share of reads is used up. What it found is
// recorded in the log once it is final, so the cursor's lag, its stall and what it keeps from a trim count from
// there on every node.

// cursorScanner is the leader's duty to find, for cursors that seem to lag, whether anything
// they would get is there, and to put that into the log. Without it a cursor with a filter
// would lag, hold events back and be reported as stalled because of what it never gets. One
// goroutine uses it.
type cursorScanner struct {
	core *core
	// By name. What it has is this node's own, until it is recorded.
	known map[string]cursorFind
	after string // the last cursor that was looked at
}

// cursorFind is what was found so far for a cursor, as it was then: nothing is open between
// what it had passed and to, and match says that the event after to is.
type cursorFind struct {
	// created, generation and seeks are the cursor's when it was scanned: if one has changed, the find does not hold.
	created           time.Time
	generation, seeks uint64
	to                uint64
	match             bool
}

// newCursorScanner returns a scanner that has found nothing yet.
func newCursorScanner(c *core) *cursorScanner {
	return &cursorScanner{core: c, known: map[string]cursorFind{}}
}

// run scans until ctx ends.
func (c *cursorScanner) run(ctx context.Context) {
	tick := time.NewTicker(scanEvery)
	defer tick.Stop()
	for {
		// A tick may be missed while a scan takes longer, which does no harm.
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := c.scanDue(ctx, time.Now()); err != nil && ctx.Err() == nil && !errors.Is(err, raftnode.ErrDiverged) {
			c.core.logger.Warn("scan for cursors", "error", err)
		}
	}
}

// scanDue scans for the cursors whose turn it is, within its bounds, and records what it found.
func (c *cursorScanner) scanDue(ctx context.Context, now time.Time) error {
	m := c.core.Machine()
	// The command needs LevelDelivery on all members.
	if c.core.node.LeadingTerm() == 0 || m.FeatureLevel() < frame.LevelDelivery {
		// Another leader may find more meanwhile, so nothing is kept for the next time.
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
	// The list resumes after the last cursor, so all of them get their turn.
	list := m.Unscanned(c.after, scanCursors)
	for i := range list {
		if reads == 0 || ctx.Err() != nil {
			break
		}
		cur := &list[i]
		// It is set first, so a cursor that fails is not the first to be looked at next time.
		c.after = cur.Name
		// How long the cursor has had something to look at.
		waits, err := c.openFor(cur, now)
		if err != nil {
			return err
		}
		// A stalled cursor does not wait: the scan may find that it has nothing to get.
		if waits < due && cur.Stalled == nil {
			continue
		}
		find, err := c.scanCursor(cur, &reads)
		if err != nil {
			return fmt.Errorf("cursor %q: %w", cur.Name, err)
		}
		// Report what the state does not know yet, once the scan has come to an open event or the tail.
		_, last := m.Log().Bounds()
		passed := cur.Passed()
		// Without a filter a match says nothing: the next event always is one.
		isNew := find.to > passed || (find.match && !cur.Filter.Empty())
		isComplete := find.match || find.to >= last
		if isNew && isComplete {
			// The state machine refuses a find for a cursor that has changed since.
			found = append(found, frame.CursorScan{
				Name:       cur.Name,
				Created:    cur.Created.UnixNano(),
				Generation: cur.Generation,
				From:       passed,
				To:         find.to,
				Match:      find.match,
			})
		}
	}
	// Several entries keep each one within the bound of the command.
	for part := range slices.Chunk(found, frame.MaxScans) {
		if _, err := c.core.Propose(ctx, frame.Request{Command: frame.CursorsScanned{Scans: part}}); err != nil {
			return err
		}
	}
	return nil
}

// openFor returns how long ago the first event that the cursor has not passed was appended; 0 if there is none.
func (c *cursorScanner) openFor(cur *fsm.Cursor, now time.Time) (time.Duration, error) {
	l := c.core.Machine().Log()
	first, last := l.Bounds()
	// The first event that is kept and that the cursor has not passed.
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

// scanCursor resumes where the last scan for the cursor ended, until it finds an open event or the tail, or reads are
// used up.
func (c *cursorScanner) scanCursor(cur *fsm.Cursor, reads *int) (cursorFind, error) {
	find := c.known[cur.Name]
	m := c.core.Machine()
	l := m.Log()
	first, last := l.Bounds()
	// An earlier find does not hold for a cursor that was made again, opened or moved since, or has passed it, nor if what
	// it has found was trimmed. The zero find, of a cursor that is not known, fails the first comparison.
	if !find.created.Equal(cur.Created) || find.generation != cur.Generation || find.seeks != cur.Seeks ||
		find.to < cur.Passed() || (find.match && find.to+1 < first) {
		find = cursorFind{created: cur.Created, generation: cur.Generation, seeks: cur.Seeks, to: cur.Passed()}
	}
	// The scan reads at most one event at a time: it asks for the next one that matches.
	matcher := cur.Filter.Compile(m.Catalogue())
	// Each round reads once, and moves find.to forward.
	for ; !find.match && find.to < last && *reads > 0; *reads-- {
		chunk, err := l.ReadFor(cur.Name, find.to+1, &matcher, 1)
		if err != nil {
			return find, err
		}
		// Everything before the next chunk has been looked at.
		find.to = chunk.Next - 1
		if len(chunk.Events) == 0 {
			continue
		}
		offset := chunk.Events[0].Offset
		// A group may have settled an event that its commit has not come to.
		find.match = !cur.Settled(offset)
		if find.match {
			// The event that is open is not passed.
			find.to = offset - 1
			continue
		}
		// Only a group has settled events after its commit, so Group is not nil here.
		for _, r := range cur.Group.Done { // nothing to look at in the rest of its range
			if r.From <= offset && offset <= r.To {
				find.to = r.To
			}
		}
	}
	// The find is kept also where it is not final: the next scan resumes there.
	c.known[cur.Name] = find
	return find, nil
}
