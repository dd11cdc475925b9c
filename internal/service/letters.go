package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// Bounds of the texts that a dead letter keeps, in bytes.
const (
	MaxErrorText   = 4 << 10
	maxHandlerText = 256
)

// Letters holds the operations on dead letters.
type Letters struct {
	*core
	cursors *Cursors
}

// Failure is why an event is dead-lettered.
type Failure struct {
	// Handler names what failed, Text is its error; both are truncated to their bounds.
	Handler, Text string
	// Attempts is how often the handler was tried, First when it failed first; zero is now.
	Attempts uint64
	First    time.Time // zero: now
}

// DeadLetter keeps the event at offset with the dead letters, and moves the cursor past
// it. The event's copy comes from this node's log.
func (ls *Letters) DeadLetter(
	ctx context.Context, name string, offset, generation uint64, f Failure, lease frame.RoleLease,
) (api.DeadLettered, error) {
	if err := cmp.Or(ls.checkCursor(ctx, name), checkLease(lease)); err != nil {
		return api.DeadLettered{}, err
	}
	// A cursor passes over what is not its reader's, so that there is nothing of it to fail.
	if e, err := ls.Machine().Log().Get(offset); err == nil && !ls.allowed(ctx)(e.Type) {
		return api.DeadLettered{}, ls.noSuchEvent(offset)
	}
	command, err := ls.CompleteLetter(ctx, frame.DeadLetter{
		Cursor:      name,
		Generation:  generation,
		Offset:      offset,
		Handler:     f.Handler,
		Error:       f.Text,
		Attempts:    f.Attempts,
		FirstFailed: f.First,
	})
	if err != nil {
		return api.DeadLettered{}, err
	}
	command.Lease = lease
	// Letter and cursor are written by one command.
	result, err := ls.proposeAndApply(ctx, command)
	if err != nil {
		return api.DeadLettered{}, err
	}
	// Either would be a fault of the state machine.
	if result.Letter == nil || result.Cursor == nil {
		return api.DeadLettered{}, fmt.Errorf(
			"a dead letter of cursor %s at %d was answered without one", name, offset,
		)
	}
	letter := letterOf(result.Letter)
	// Replayed means that an earlier call has done it; the letter is that one's.
	return api.DeadLettered{Letter: &letter, Cursor: ls.cursors.view(ctx, *result.Cursor), Replayed: result.Replayed}, nil
}

// CompleteLetter adds the copy of the event to a dead letter and bounds its texts.
func (ls *Letters) CompleteLetter(ctx context.Context, l frame.DeadLetter) (frame.DeadLetter, error) {
	l.Handler, l.Error = api.TruncateText(l.Handler, maxHandlerText), api.TruncateText(l.Error, MaxErrorText)
	// The letter keeps the event, so it outlives a trim.
	copied, err := ls.copyFor(ctx, l.Cursor, l.Offset)
	l.Event = copied
	return l, err
}

// copyFor returns a copy of the event at offset. Where it is trimmed but was
// dead-lettered before, the copy is the letter's. After the tail there is nothing to copy:
// the state machine refuses the letter.
func (ls *Letters) copyFor(ctx context.Context, cursor string, offset uint64) ([]byte, error) {
	if offset == 0 {
		return nil, api.BadValue("offset", "0", "the offset of an event that was read")
	}
	// Another node may have the event already.
	if _, last := ls.Machine().Log().Bounds(); offset > last {
		if err := ls.node.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	// The copy comes from the log, where the event still is.
	e, err := ls.Machine().Log().Get(offset)
	if _, trimmed := errors.AsType[*log.TrimmedError](err); trimmed {
		// An earlier dead letter of the same offset has the copy; without one, the event is lost.
		letter, missing := ls.Machine().LetterAt(cursor, offset)
		if missing != nil {
			return nil, err
		}
		_, e, err = ls.Machine().Letter(letter.ID)
	}
	if _, ahead := errors.AsType[*log.PastTailError](err); ahead {
		// There is nothing to copy: the state machine refuses the letter, and says why.
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A copy that was redriven for another cursor was never delivered to this one.
	if e.Target != "" && e.Target != cursor {
		return nil, api.Refuse(api.InvalidArgument, "offset",
			fmt.Sprintf("offset %d is for the cursor %q alone", offset, e.Target),
			"dead-letter what this cursor was given")
	}
	return frame.EncodeCopy(&e), nil
}

// checkSelection refuses a selection that contradicts itself, or selects nothing.
func checkSelection(sel *api.LetterSelection) error {
	chosen := sel.Type != "" || sel.Cursor != nil || sel.Error != "" || sel.OlderThan != ""
	// Ids, all and conditions exclude each other, and one of them is required: a selection by mistake could purge
	// everything.
	switch {
	case len(sel.IDs) > 0 && (chosen || sel.All):
		return api.Refuse(api.InvalidArgument, "ids", "ids beside other conditions", "send one or the other")
	case sel.All && chosen:
		return api.Refuse(api.InvalidArgument, "all", "all beside conditions", "send one or the other")
	// A selection without a condition is refused, so an empty body purges nothing.
	case len(sel.IDs) == 0 && !chosen && !sel.All:
		return api.Refuse(api.InvalidArgument, "ids",
			"nothing says which dead letters",
			"send ids, or all, type, cursor, error or older_than")
	case slices.Contains(sel.IDs, 0):
		return api.BadValue("ids", "0", "ids from 1")
	}
	return nil
}

// LetterMatcher holds the conditions of a selection.
type LetterMatcher struct {
	// Conditions that are left out are nil, empty or zero.
	types  *event.Matcher // nil is every type
	cursor *string
	text   string
	state  string
	before time.Time
}

// Matcher returns a matcher of letters by a type or pattern, a cursor, a part of the error and a state; what
// is empty, or nil, matches every letter.
func (ls *Letters) Matcher(typ string, cursor *string, text, state string) (LetterMatcher, error) {
	m := LetterMatcher{cursor: cursor, text: text, state: state}
	if typ == "" {
		return m, nil
	}
	// A filter of one type checks the pattern, and resolves aliases.
	f := event.Filter{Types: []string{typ}}
	if err := f.Validate(); err != nil {
		return m, err
	}
	types := f.Compile(ls.Machine().Catalogue())
	m.types = &types
	return m, nil
}

// match reports whether a letter meets all of the conditions.
func (m *LetterMatcher) match(l *fsm.LetterView) bool {
	// Each condition that is left out matches every letter.
	return (m.types == nil || m.types.MatchType(string(l.Type))) && (m.cursor == nil || *m.cursor == l.Cursor) &&
		strings.Contains(l.Error, m.text) && (m.state == "" || m.state == l.State) &&
		(m.before.IsZero() || !l.Dead.After(m.before))
}

// own returns what reports whether a letter is the caller's: its cursor and its type are.
func (ls *Letters) own(ctx context.Context) func(*fsm.LetterView) bool {
	p, allowed := access.Of(ctx), ls.allowed(ctx)
	return func(l *fsm.LetterView) bool { return p.Cursor(l.Cursor) && allowed(l.Type) }
}

// chosen are the ids of a selection.
type chosen struct {
	// The ids ascend, unless the caller named them in another order.
	ids   []uint64
	more  bool // beyond max_events
	older time.Duration
}

// addID adds an id, unless there are as many as were asked for.
func (c *chosen) addID(id, limit uint64) bool {
	// The first id beyond the limit shows that there is more, and is not taken.
	c.more = limit > 0 && uint64(len(c.ids)) == limit
	if !c.more {
		c.ids = append(c.ids, id)
	}
	return !c.more
}

// chooseLetters finds the dead letters of a selection. Ids that were named are taken without a check whether they
// exist.
func (ls *Letters) chooseLetters(ctx context.Context, sel *api.LetterSelection) (c chosen, err error) {
	if err := checkSelection(sel); err != nil {
		return c, err
	}
	// What was dead-lettered before this call is found, on whichever node.
	if err := ls.node.ReadBarrier(ctx); err != nil {
		return c, err
	}
	// Named letters are taken in the order in which they were named.
	for _, id := range sel.IDs {
		if !c.addID(id, sel.MaxEvents) {
			break
		}
	}
	if len(sel.IDs) > 0 {
		return c, nil
	}
	// All others are found by their conditions; letters on their way to a cursor are left out.
	m, err := ls.Matcher(sel.Type, sel.Cursor, sel.Error, fsm.LetterDead)
	if err != nil {
		return c, err
	}
	if sel.OlderThan != "" {
		c.older, err = api.ParseAge("older_than", sel.OlderThan)
		if err != nil {
			return c, err
		}
		m.before = time.Now().Add(-c.older) // the state machine looks again, by replicated time
	}
	// The read ends with the first letter that would exceed max_events.
	err = ls.Machine().EachLetter(ctx, sel.After, func(l fsm.LetterView) bool {
		// false ends the reading.
		return !m.match(&l) || c.addID(l.ID, sel.MaxEvents)
	})
	return c, err
}

// proposeInBatches proposes the chosen letters, at most frame.MaxLetters in one entry. Where a later entry fails,
// it returns what the earlier ones did, and no error.
func (ls *Letters) proposeInBatches(
	ctx context.Context, sel *api.LetterSelection, c chosen,
	command func(ids []uint64) frame.Command,
) (api.LettersResult, error) {
	answer := api.LettersResult{Matched: len(c.ids), More: c.more, DryRun: sel.DryRun, Left: len(c.ids)}
	if sel.DryRun {
		return answer, nil
	}
	for left := c.ids; len(left) > 0; {
		// Each round proposes as many as one entry may have.
		n := min(len(left), frame.MaxLetters)
		result, err := ls.proposeAndApply(ctx, command(left[:n]))
		if err != nil && answer.Done > 0 {
			return answer, nil // the caller sees what is left
		}
		if err != nil || result.Letters == nil {
			return answer, err
		}
		// Letters that did not fit into the entry begin the next one.
		n -= len(result.Letters.Left)
		// The caller continues after the last one that was dealt with.
		answer.Last, left = left[n-1], left[n:]
		addDone(&answer, result.Letters)
		answer.Left = len(left)
	}
	return answer, nil
}

// addDone counts what one command did.
func addDone(a *api.LettersResult, r *fsm.LettersResult) {
	a.Done += r.Done
	a.Skipped += r.Skipped
	// Ids that several entries could not handle add up.
	a.Missing = append(a.Missing, r.Missing...)
	a.NoCursor = append(a.NoCursor, r.NoCursor...)
}

// checkNamed returns the error for letters that were named by id if nothing was done about any of them.
func (ls *Letters) checkNamed(sel *api.LetterSelection, a api.LettersResult, err error) (api.LettersResult, error) {
	// Where something was done, the answer lists what was not.
	switch {
	case err != nil || len(sel.IDs) == 0 || a.Done > 0 || a.Skipped > 0:
	case len(a.Missing) > 0:
		missing := ls.noLetter(a.Missing[0])
		missing.Field = "ids" // of the selection
		err = missing
	case len(a.NoCursor) > 0:
		err = ls.noCursorOf(a.NoCursor[0])
	}
	return a, err
}

// noLetter returns the error for a dead letter that does not exist, or no longer.
func (ls *Letters) noLetter(id uint64) *api.Error {
	e := api.Refuse(api.NotFound, "id", fmt.Sprintf("there is no dead letter %d", id),
		"list them: GET /v1/dlq?limit=100, or ringlog dlq ls")
	// Ids have no gaps, so any id up to the last one did exist.
	if ever := ls.Machine().Stats().Letters.Ever; id <= ever {
		e.Message += " any more: it was handled after a redrive, or purged"
	}
	return e
}

// noCursorOf returns the error for a letter that has no cursor to be redriven for.
func (ls *Letters) noCursorOf(id uint64) error {
	l, _, err := ls.Machine().Letter(id)
	if err != nil {
		return err
	}
	// A letter that was imported has no cursor.
	e := api.Refuse(api.NotFound, "cursor",
		fmt.Sprintf("letter %d came from no cursor", id),
		"say which one is to get it: to in the request, or --to CURSOR")
	// Any other letter had one, which was removed.
	if l.Cursor != "" {
		e.Message = fmt.Sprintf("the cursor %q of letter %d is not there any more", l.Cursor, id)
		e.Remedy += ", or make it again: PUT /v1/cursors/NAME, or ringlog cursor create " + l.Cursor
	}
	return e
}

// Redrive appends dead letters again, for their cursors or the one named.
func (ls *Letters) Redrive(ctx context.Context, sel *api.LetterSelection, to string) (api.LettersResult, error) {
	c, err := ls.chooseLetters(ctx, sel)
	if err != nil {
		return api.LettersResult{}, err
	}
	// The letters keep their ids: one whose event fails again is dead again.
	redrive := func(ids []uint64) frame.Command { return frame.Redrive{Letters: ids, To: to} }
	a, err := ls.proposeInBatches(ctx, sel, c, redrive)
	return ls.checkNamed(sel, a, err)
}

// Purge removes dead letters.
func (ls *Letters) Purge(ctx context.Context, sel *api.LetterSelection) (api.LettersResult, error) {
	c, err := ls.chooseLetters(ctx, sel)
	if err != nil {
		return api.LettersResult{}, err
	}
	// The age is checked again where the command is applied, by replicated time.
	purge := func(ids []uint64) frame.Command { return frame.Purge{Letters: ids, OlderThan: c.older} }
	a, err := ls.proposeInBatches(ctx, sel, c, purge)
	return ls.checkNamed(sel, a, err)
}

// Get returns one letter and its event.
func (ls *Letters) Get(ctx context.Context, id uint64) (api.Letter, event.Event, error) {
	l, e, err := ls.Machine().Letter(id)
	// One that is not the caller's is not there.
	if err == nil && !ls.own(ctx)(&l) {
		return api.Letter{}, event.Event{}, ls.noLetter(id)
	}
	// Whether the letter ever existed is in the error.
	if errors.Is(err, fsm.ErrNoLetter) {
		err = ls.noLetter(id)
	}
	return letterOf(&l), e, err
}

// List returns the first letters whose ids follow after, up to limit.
func (ls *Letters) List(
	ctx context.Context, m LetterMatcher, after uint64, limit int,
) (page api.LetterPage, err error) {
	page.Letters = []api.Letter{}
	own := ls.own(ctx)
	err = ls.Machine().EachLetter(ctx, after, func(l fsm.LetterView) bool {
		// Letters that do not match do not count for the page.
		if !m.match(&l) || !own(&l) {
			return true
		}
		// Only a letter that does not fit shows that there is a next page.
		if len(page.Letters) == limit {
			page.Next = page.Letters[limit-1].ID
			return false
		}
		page.Letters = append(page.Letters, letterOf(&l))
		return true
	})
	return page, err
}

// Summary counts the dead letters.
func (ls *Letters) Summary(ctx context.Context) (sum api.LetterSummary, err error) {
	sum = api.LetterSummary{ByCursor: map[string]int{}, ByType: map[string]int{}}
	// The counts of the state are of all letters.
	if p := access.Of(ctx); p.AllTypes() && p.AllCursors() {
		sum.LetterStats = api.LetterStats(ls.Machine().Stats().Letters)
	}
	own := ls.own(ctx)
	// The counts by cursor and type are not state, so all letters are read.
	err = ls.Machine().EachLetter(ctx, 0, func(l fsm.LetterView) bool {
		if !own(&l) {
			return true
		}
		sum.ByCursor[l.Cursor]++
		sum.ByType[string(l.Type)]++
		if l.State == fsm.LetterDead {
			sum.Dead++
		}
		return true
	})
	// The age is of this node's clock, which may differ from the leader's.
	if !sum.Oldest.IsZero() {
		sum.OldestAge = max(0, time.Since(sum.Oldest).Seconds())
	}
	return sum, err
}

// Bounds of an error summary.
const (
	maxErrorGroups = 1000
	maxErrorLine   = 200
	errorExamples  = 3
)

// Errors groups the letters by what they died of, the most frequent first.
func (ls *Letters) Errors(ctx context.Context, m LetterMatcher) ([]*api.LetterErrors, error) {
	groups, list := map[string]*api.LetterErrors{}, []*api.LetterErrors{}
	own := ls.own(ctx)
	err := ls.Machine().EachLetter(ctx, 0, func(l fsm.LetterView) bool {
		if !m.match(&l) || !own(&l) {
			return true
		}
		// Errors that differ only in numbers are one group.
		text := errorShape(l.Error)
		g := groups[text]
		// There may be any number of different errors: those beyond the limit share one group.
		if g == nil && len(list) >= maxErrorGroups {
			text = "(other errors)"
			g = groups[text]
		}
		if g == nil {
			g = &api.LetterErrors{Error: text, Cursors: map[string]int{}, Types: map[string]int{}}
			groups[text] = g
			list = append(list, g)
		}
		addLetter(g, &l)
		return true
	})
	// The most frequent error is usually the one to look at first.
	slices.SortStableFunc(list, func(a, b *api.LetterErrors) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Error, b.Error))
	})
	return list, err
}

// addLetter counts a letter.
func addLetter(g *api.LetterErrors, l *fsm.LetterView) {
	g.Count++
	g.Cursors[l.Cursor]++
	g.Types[string(l.Type)]++
	// The times span all letters of the group, which come by id and not by time.
	if g.First.IsZero() || l.FirstFailed.Before(g.First) {
		g.First = l.FirstFailed
	}
	if l.LastFailed.After(g.Last) {
		g.Last = l.LastFailed
	}
	// A few are enough to look at.
	if len(g.Letters) < errorExamples {
		g.Letters = append(g.Letters, l.ID)
	}
}

// errorShape is an error's first line with # for each number, so those which only
// differ in times and ids are one.
func errorShape(text string) string {
	// The rest is usually a stack.
	line, _, _ := strings.Cut(text, "\n")
	var b strings.Builder
	digits := false
	for _, r := range line {
		is := r >= '0' && r <= '9'
		switch {
		case !is:
			b.WriteRune(r)
		// One # for all digits of a number.
		case !digits:
			b.WriteByte('#')
		}
		digits = is
	}
	return api.TruncateText(cmp.Or(strings.TrimSpace(b.String()), "(no error was given)"), maxErrorLine)
}

// letterOf is a letter as callers see it.
func letterOf(l *fsm.LetterView) api.Letter {
	return api.Letter{
		ID:            l.ID,
		Cursor:        l.Cursor,
		Offset:        l.Offset,
		Type:          l.Type,
		Key:           l.Key,
		Source:        l.Source,
		CorrelationID: l.CorrelationID,
		Handler:       l.Handler,
		Error:         l.Error,
		Attempts:      l.Attempts,
		FirstFailed:   l.FirstFailed,
		LastFailed:    l.LastFailed,
		Dead:          l.Dead,
		Stepped:       l.Stepped,
		Redrives:      l.Redrives,
		Lineage:       l.Lineage,
		Origin:        l.Origin,
		Bytes:         l.Bytes,
		State:         l.State,
		Copy:          l.Copy,
	}
}
