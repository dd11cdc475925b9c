package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// Bounds of the texts that a dead letter keeps, in bytes.
const (
	MaxErrorText   = 4 << 10
	maxHandlerText = 256
)

// Failure is why an event is dead-lettered.
type Failure struct {
	Handler, Text string
	Attempts      uint64
	First         time.Time // zero: now
}

// clip bounds a text in bytes and says how much is gone.
func clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "�")
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return fmt.Sprintf("%s … (%d more bytes)", text[:cut], len(text)-cut)
}

// DeadLetter keeps the event at offset with the dead letters, and moves the cursor past
// it. The event's copy comes from this node's log.
func (s *Letters) DeadLetter(ctx context.Context, name string, offset, generation uint64, f Failure) (api.DeadLettered, error) {
	if err := s.checkCursorName(name); err != nil {
		return api.DeadLettered{}, err
	}
	command, err := s.CompleteLetter(ctx, frame.DeadLetter{Cursor: name, Generation: generation, Offset: offset, Handler: f.Handler, Error: f.Text,
		Attempts: f.Attempts, FirstFailed: f.First})
	if err != nil {
		return api.DeadLettered{}, err
	}
	result, err := s.command(ctx, command)
	if err != nil {
		return api.DeadLettered{}, err
	}
	if result.Letter == nil || result.Cursor == nil {
		return api.DeadLettered{}, fmt.Errorf("server: a dead letter of cursor %s at %d was answered without one", name, offset)
	}
	letter := letterOf(result.Letter)
	return api.DeadLettered{Letter: &letter, Cursor: s.cursors.view(*result.Cursor), Replayed: result.Replayed}, nil
}

// CompleteLetter adds the copy of the event to a dead letter and bounds its texts.
func (s *Letters) CompleteLetter(ctx context.Context, l frame.DeadLetter) (frame.DeadLetter, error) {
	l.Handler, l.Error = clip(l.Handler, maxHandlerText), clip(l.Error, MaxErrorText)
	copied, err := s.copyFor(ctx, l.Cursor, l.Offset)
	l.Event = copied
	return l, err
}

// copyFor returns a copy of the event at offset. Where it is trimmed but was
// dead-lettered before, the copy is the letter's. After the tail there is nothing to copy:
// the state machine refuses the letter.
func (s *Letters) copyFor(ctx context.Context, cursor string, offset uint64) ([]byte, error) {
	if offset == 0 {
		return nil, api.BadValue("offset", "0", "the offset of an event that was read")
	}
	// Another node may have the event already.
	if _, last := s.Machine().Log().Bounds(); offset > last {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	e, err := s.Machine().Log().Get(offset)
	if trimmed := (*log.TrimmedError)(nil); errors.As(err, &trimmed) {
		letter, missing := s.Machine().LetterAt(cursor, offset)
		if missing != nil {
			return nil, err
		}
		_, e, err = s.Machine().Letter(letter.ID)
	}
	if ahead := (*log.PastTailError)(nil); errors.As(err, &ahead) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// A copy that was redriven for another cursor was never delivered to this one.
	if e.Target != "" && e.Target != cursor {
		return nil, &api.Error{Code: api.InvalidArgument, Field: "offset", Message: fmt.Sprintf("offset %d is for the cursor %q alone", offset, e.Target),
			Remedy: "dead-letter what this cursor was given"}
	}
	return frame.EncodeCopy(&e), nil
}

// checkSelection refuses a selection that contradicts itself, or selects nothing.
func checkSelection(sel *api.LetterSelection) error {
	chosen := sel.Type != "" || sel.Cursor != nil || sel.Error != "" || sel.OlderThan != ""
	switch {
	case len(sel.IDs) > 0 && (chosen || sel.All):
		return &api.Error{Code: api.InvalidArgument, Field: "ids", Message: "ids beside other conditions", Remedy: "send one or the other"}
	case sel.All && chosen:
		return &api.Error{Code: api.InvalidArgument, Field: "all", Message: "all beside conditions", Remedy: "send one or the other"}
	case len(sel.IDs) == 0 && !chosen && !sel.All:
		return &api.Error{Code: api.InvalidArgument, Field: "ids", Message: "nothing says which dead letters", Remedy: "send ids, or all, type, cursor, error or older_than"}
	case slices.Contains(sel.IDs, 0):
		return api.BadValue("ids", "0", "ids from 1")
	}
	return nil
}

// LetterMatcher holds the conditions of a selection.
type LetterMatcher struct {
	types  *event.Matcher // nil is every type
	cursor *string
	text   string
	state  string
	before time.Time
}

// Matcher returns a matcher of letters by a type or pattern, a cursor, a part of the error and a state; what
// is empty, or nil, matches every letter.
func (s *Letters) Matcher(typ string, cursor *string, text, state string) (LetterMatcher, error) {
	m := LetterMatcher{cursor: cursor, text: text, state: state}
	if typ == "" {
		return m, nil
	}
	f := event.Filter{Types: []string{typ}}
	if err := f.Validate(); err != nil {
		return m, err
	}
	types := f.Compile(s.Machine().Catalogue())
	m.types = &types
	return m, nil
}

// match reports whether a letter meets all of the conditions.
func (m *LetterMatcher) match(l *fsm.LetterView) bool {
	return (m.types == nil || m.types.MatchType(string(l.Type))) && (m.cursor == nil || *m.cursor == l.Cursor) &&
		strings.Contains(l.Error, m.text) && (m.state == "" || m.state == l.State) && (m.before.IsZero() || !l.Dead.After(m.before))
}

// chosen are the ids of a selection.
type chosen struct {
	ids   []uint64
	more  bool // beyond max_events
	older time.Duration
}

// take adds an id, unless there are as many as were asked for.
func (c *chosen) take(id, limit uint64) bool {
	if c.more = limit > 0 && uint64(len(c.ids)) == limit; !c.more {
		c.ids = append(c.ids, id)
	}
	return !c.more
}

// choose finds the dead letters of a selection. Ids that were named are taken without a check whether they exist.
func (s *Letters) choose(ctx context.Context, sel *api.LetterSelection) (c chosen, err error) {
	if err := checkSelection(sel); err != nil {
		return c, err
	}
	if err := s.node.ReadBarrier(ctx); err != nil {
		return c, err
	}
	for _, id := range sel.IDs {
		if !c.take(id, sel.MaxEvents) {
			break
		}
	}
	if len(sel.IDs) > 0 {
		return c, nil
	}
	m, err := s.Matcher(sel.Type, sel.Cursor, sel.Error, fsm.LetterDead)
	if err != nil {
		return c, err
	}
	if sel.OlderThan != "" {
		if c.older, err = api.ParseAge("older_than", sel.OlderThan); err != nil {
			return c, err
		}
		m.before = time.Now().Add(-c.older) // the state machine looks again, by replicated time
	}
	err = s.Machine().EachLetter(ctx, sel.After, func(l fsm.LetterView) bool {
		return !m.match(&l) || c.take(l.ID, sel.MaxEvents)
	})
	return c, err
}

// batches gets the chosen letters decided, at most frame.MaxLetters in one entry. Where a later entry fails, it
// returns what the earlier ones did, and no error.
func (s *Letters) batches(ctx context.Context, sel *api.LetterSelection, c chosen, command func(ids []uint64) frame.Command) (api.LettersDone, error) {
	answer := api.LettersDone{Matched: len(c.ids), More: c.more, DryRun: sel.DryRun, Left: len(c.ids)}
	if sel.DryRun {
		return answer, nil
	}
	for left := c.ids; len(left) > 0; {
		n := min(len(left), frame.MaxLetters)
		result, err := s.command(ctx, command(left[:n]))
		if err != nil && answer.Done > 0 {
			return answer, nil // the caller sees what is left
		}
		if err != nil || result.Letters == nil {
			return answer, err
		}
		// Letters that did not fit into the entry begin the next one.
		n -= len(result.Letters.Left)
		answer.Last, left = left[n-1], left[n:]
		addDone(&answer, result.Letters)
		answer.Left = len(left)
	}
	return answer, nil
}

// addDone counts what one command did.
func addDone(a *api.LettersDone, r *fsm.LettersResult) {
	a.Done += r.Done
	a.Skipped += r.Skipped
	a.Missing = append(a.Missing, r.Missing...)
	a.NoCursor = append(a.NoCursor, r.NoCursor...)
}

// named returns the error for letters that were named by id if nothing was done about any of them.
func (s *Letters) named(sel *api.LetterSelection, a api.LettersDone, err error) (api.LettersDone, error) {
	switch {
	case err != nil || len(sel.IDs) == 0 || a.Done > 0 || a.Skipped > 0:
	case len(a.Missing) > 0:
		err = s.noLetter(a.Missing[0])
	case len(a.NoCursor) > 0:
		err = s.noCursorOf(a.NoCursor[0])
	}
	return a, err
}

// noLetter returns the error for a dead letter that does not exist, or no longer.
func (s *Letters) noLetter(id uint64) *api.Error {
	e := &api.Error{Code: api.NotFound, Field: "id", Message: fmt.Sprintf("there is no dead letter %d", id), Remedy: "list them: ringlog dlq ls"}
	if ever := s.Machine().Stats().Letters.Ever; id <= ever {
		e.Message += " any more: it was handled after a redrive, or purged"
	}
	return e
}

// noCursorOf returns the error for a letter that has no cursor to be redriven for.
func (s *Letters) noCursorOf(id uint64) error {
	l, _, err := s.Machine().Letter(id)
	if err != nil {
		return err
	}
	e := &api.Error{Code: api.NotFound, Field: "cursor", Message: fmt.Sprintf("letter %d came from no cursor", id), Remedy: "say which one is to get it: --to CURSOR"}
	if l.Cursor != "" {
		e.Message = fmt.Sprintf("the cursor %q of letter %d is not there any more", l.Cursor, id)
		e.Remedy += ", or make it again: ringlog cursor create " + l.Cursor
	}
	return e
}

// Redrive appends dead letters again, for their cursors or the one named.
func (s *Letters) Redrive(ctx context.Context, sel *api.LetterSelection, to string) (api.LettersDone, error) {
	c, err := s.choose(ctx, sel)
	if err != nil {
		return api.LettersDone{}, err
	}
	a, err := s.batches(ctx, sel, c, func(ids []uint64) frame.Command { return frame.Redrive{Letters: ids, To: to} })
	return s.named(sel, a, err)
}

// Purge removes dead letters.
func (s *Letters) Purge(ctx context.Context, sel *api.LetterSelection) (api.LettersDone, error) {
	c, err := s.choose(ctx, sel)
	if err != nil {
		return api.LettersDone{}, err
	}
	a, err := s.batches(ctx, sel, c, func(ids []uint64) frame.Command { return frame.Purge{Letters: ids, OlderThan: c.older} })
	return s.named(sel, a, err)
}

// Get returns one letter and its event.
func (s *Letters) Get(id uint64) (api.Letter, event.Event, error) {
	l, e, err := s.Machine().Letter(id)
	if errors.Is(err, fsm.ErrNoLetter) {
		err = s.noLetter(id)
	}
	return letterOf(&l), e, err
}

// List returns the first letters whose ids follow after, up to limit.
func (s *Letters) List(ctx context.Context, m LetterMatcher, after uint64, limit int) (page api.LetterPage, err error) {
	page.Letters = []api.Letter{}
	err = s.Machine().EachLetter(ctx, after, func(l fsm.LetterView) bool {
		if !m.match(&l) {
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
func (s *Letters) Summary(ctx context.Context) (sum api.LetterSummary, err error) {
	sum = api.LetterSummary{LetterStats: api.LetterStats(s.Machine().Stats().Letters), ByCursor: map[string]int{}, ByType: map[string]int{}}
	err = s.Machine().EachLetter(ctx, 0, func(l fsm.LetterView) bool {
		sum.ByCursor[l.Cursor]++
		sum.ByType[string(l.Type)]++
		if l.State == fsm.LetterDead {
			sum.Dead++
		}
		return true
	})
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
func (s *Letters) Errors(ctx context.Context, m LetterMatcher) ([]*api.LetterErrors, error) {
	groups, list := map[string]*api.LetterErrors{}, []*api.LetterErrors{}
	err := s.Machine().EachLetter(ctx, 0, func(l fsm.LetterView) bool {
		if !m.match(&l) {
			return true
		}
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
	if g.First.IsZero() || l.FirstFailed.Before(g.First) {
		g.First = l.FirstFailed
	}
	if l.LastFailed.After(g.Last) {
		g.Last = l.LastFailed
	}
	if len(g.Letters) < errorExamples {
		g.Letters = append(g.Letters, l.ID)
	}
}

// errorShape is an error's first line with # for each number, so that those which only
// differ in times and ids are one.
func errorShape(text string) string {
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
	return clip(cmp.Or(strings.TrimSpace(b.String()), "(no error was given)"), maxErrorLine)
}

// letterOf is a letter as callers see it.
func letterOf(l *fsm.LetterView) api.Letter {
	return api.Letter{ID: l.ID, Cursor: l.Cursor, Offset: l.Offset, Type: l.Type, Key: l.Key, Source: l.Source, CorrelationID: l.CorrelationID,
		Handler: l.Handler, Error: l.Error, Attempts: l.Attempts, FirstFailed: l.FirstFailed, LastFailed: l.LastFailed, Dead: l.Dead,
		Stepped: l.Stepped, Redrives: l.Redrives, Lineage: l.Lineage, Origin: l.Origin, Bytes: l.Bytes, State: l.State, Copy: l.Copy}
}
