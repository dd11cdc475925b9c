package service

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/log"
)

// ExplainDelivery says what became of the event at an offset for a cursor.
func (cs *Cursors) ExplainDelivery(ctx context.Context, name string, offset uint64) (api.DeliveryFate, error) {
	// The error for a cursor that does not exist is the usual one.
	if _, err := cs.Get(ctx, name); err != nil {
		return api.DeliveryFate{}, err
	}
	// A group's copy from Group has what is settled after the commit.
	// If the cursor was removed since, c is empty.
	c, isGroup := cs.Machine().Group(name)
	if !isGroup {
		c, _ = cs.Machine().Cursor(name)
	}
	// The answer is filled in step by step; each step needs the one before.
	v := delivery{api.DeliveryFate{Cursor: name, Offset: offset, Committed: c.Committed, Generation: c.Generation}}
	e, err := cs.Machine().Log().Get(offset)
	if _, trimmed := errors.AsType[*log.TrimmedError](err); trimmed {
		v.Trimmed = true
	} else if err != nil {
		return v.DeliveryFate, err
	} else if !cs.allowed(ctx)(e.Type) {
		return v.DeliveryFate, cs.noSuchEvent(offset)
	} else if err := v.showEvent(ctx, cs.Machine(), &e); err != nil {
		return v.DeliveryFate, err
	}
	// Only the dead letter of a trimmed event remains; e is then empty.
	// Redrive is 0 unless the event is a copy.
	if err := v.findLetter(ctx, cs.Machine(), e.Redrive); err != nil {
		return v.DeliveryFate, err
	}
	// The letter of a trimmed event does not show its type.
	if v.Trimmed && !access.Of(ctx).AllTypes() {
		v.Letter = nil
	}
	if !v.Trimmed {
		v.FilteredBy = rejectingParts(c.Filter, &e, name, cs.Machine().Catalogue())
	}
	v.setFate(&c)
	return v.DeliveryFate, nil
}

// delivery is an answer that is being worked out: the event first, then its dead letter, then what the filter says of
// it. The fate follows from all of them.
type delivery struct{ api.DeliveryFate }

// showEvent adds the event and what deduplication did with it.
func (v *delivery) showEvent(ctx context.Context, m *fsm.Machine, e *event.Event) error {
	v.Event = &api.DeliveredEvent{
		Type:          e.Type,
		Source:        e.Source,
		Key:           e.Key,
		CorrelationID: e.CorrelationID,
		AppendedAt:    e.AppendedAt,
		Target:        e.Target,
		Redrive:       e.Redrive,
	}
	// Only duplicates that were suppressed are worth a line.
	x, err := m.Explain(ctx, v.Offset)
	if err == nil && x.Suppressed > 0 {
		v.Duplicates = &api.Duplicates{Suppressed: x.Suppressed, First: x.First, Last: x.Last, Sources: []api.SourceCount{}}
		for _, one := range x.Sources {
			v.Duplicates.Sources = append(v.Duplicates.Sources, api.SourceCount(one))
		}
	}
	return err
}

// findLetter adds the dead letter of the event: the one that the cursor made at the
// offset, or for a copy the one it is of, or one whose copies died again elsewhere. One
// that was resolved is gone.
func (v *delivery) findLetter(ctx context.Context, m *fsm.Machine, redrive uint64) error {
	l, err := m.LetterAt(v.Cursor, v.Offset)
	// A copy knows the letter that it is of.
	if errors.Is(err, fsm.ErrNoLetter) && redrive != 0 {
		l, _, err = m.Letter(redrive)
	}
	// The lineage of a letter has the offsets of the event and its earlier copies.
	if errors.Is(err, fsm.ErrNoLetter) {
		err = m.EachLetter(ctx, 0, func(one fsm.LetterView) bool {
			if one.Cursor == v.Cursor && slices.Contains(one.Lineage, v.Offset) {
				l = one
			}
			return l.ID == 0
		})
	}
	// A letter of another cursor says nothing about this one.
	if err == nil && l.ID != 0 && l.Cursor == v.Cursor {
		v.Letter = &api.DeadDelivery{
			ID:       l.ID,
			Handler:  l.Handler,
			Error:    l.Error,
			Attempts: l.Attempts,
			Dead:     l.Dead,
			Copy:     l.Copy,
		}
	}
	return err
}

// rejectingParts lists the parts of a filter that keep an event from a cursor. An event that was
// redriven for one cursor goes to that one whatever its filter, and to nobody else.
func rejectingParts(f event.Filter, e *event.Event, cursor string, c *event.Catalogue) (parts []api.FilterPart) {
	if e.Target == cursor {
		return nil
	}
	if e.Target != "" {
		return []api.FilterPart{{Part: "target", Wants: []string{cursor}, Has: e.Target}}
	}
	// A type that the catalogue lacks is in no category.
	category := ""
	if d, ok := c.Definition(e.Type); ok {
		category = d.Category
	}
	// Each part is tried alone, so all that reject the event are listed.
	for _, one := range []struct {
		part, has string
		wants     []string
		alone     event.Filter
	}{
		{"types", string(e.Type), f.Types, event.Filter{Types: f.Types}},
		{"categories", category, f.Categories, event.Filter{Categories: f.Categories}},
		{"sources", e.Source, f.Sources, event.Filter{Sources: f.Sources}},
		{"keys", e.Key, f.Keys, event.Filter{Keys: f.Keys}},
		{"correlation_ids", e.CorrelationID, f.CorrelationIDs, event.Filter{CorrelationIDs: f.CorrelationIDs}},
	} {
		// A part that the filter leaves open matches everything.
		if m := one.alone.Compile(c); !m.Match(e) {
			parts = append(parts, api.FilterPart{Part: one.part, Wants: one.wants, Has: one.has})
		}
	}
	return parts
}

// setFate sets the fate and its reason, once everything else is known.
func (v *delivery) setFate(c *fsm.Cursor) {
	v.Fate, v.Reason = v.fateOf(c)
	// The number of open events before it shows how long it has to wait.
	if v.Fate == api.FatePending {
		v.InFront, v.Deliveries = c.OpenBefore(v.Offset), c.Deliveries(v.Offset)
	}
}

// fateOf returns the event's fate and the reason. The first case that holds counts: a dead letter, then the filter,
// then what is settled.
func (v *delivery) fateOf(c *fsm.Cursor) (fate, reason string) {
	// The wording is for people, and may change.
	switch l := v.Letter; {
	// First what its dead letter says: a copy of one, one that was redriven, one that the cursor was
	// moved back before.
	case l != nil && l.Copy == v.Offset:
		return api.FatePending, fmt.Sprintf(
			"it is the copy of dead letter %d, appended again for this cursor, which has not committed it",
			l.ID,
		)
	case l != nil && l.Copy != 0:
		return api.FateRedriven, fmt.Sprintf(
			"dead letter %d was appended again at offset %d, which the cursor has not committed",
			l.ID, l.Copy,
		)
	case l != nil && !c.Settled(v.Offset):
		return api.FatePending, fmt.Sprintf(
			"the cursor was moved back before it: its reader gets it again, though it is dead letter %d",
			l.ID,
		)
	case l != nil:
		return api.FateDead, fmt.Sprintf("it is dead letter %d", l.ID)
	// Then the filter, and how far the cursor has come.
	case len(v.FilteredBy) > 0:
		return api.FateFiltered, "the cursor's filter does not let it through"
	case c.Settled(v.Offset):
		return v.fateOfPassed(c)
	// A trimmed event is judged by what the cursor records.
	case v.Trimmed && v.Offset <= c.Scanned:
		return api.FateFiltered, fmt.Sprintf(
			"the cursor's filter passes nothing up to %d; the event itself is trimmed", c.Scanned,
		)
	case v.Trimmed:
		v.Gap = (*api.Gap)(gapOver(c, v.Offset))
		return api.FateTrimmed, "it was trimmed before the cursor had committed it: its reader gets a gap in its place"
	case c.Group != nil:
		return api.FatePending, v.whyPending(c.Group)
	case c.Generation == 0:
		return api.FatePending, "nobody has opened the cursor yet"
	}
	return api.FatePending, "it was not committed yet; whether its reader has it is not known here"
}

// whyPending says how far a group is with an event that it has not settled.
func (v *delivery) whyPending(g *fsm.Group) string {
	// What the log records of a group's open event is how often it failed, and why.
	retry, failed := g.Retry(v.Offset)
	switch {
	case failed && retry.Error != "":
		return fmt.Sprintf("it will be redelivered: delivery %d failed: %s", retry.Deliveries, retry.Error)
	case failed:
		return fmt.Sprintf("it will be redelivered: it was released after %d deliveries that failed", retry.Deliveries)
	// The leader has counted up to Reserved; what it delivered is not in the log.
	case v.Offset <= g.Reserved:
		return "it was perhaps handed to a member, which has not acknowledged it"
	}
	return "it was not handed to a member yet"
}

// fateOfPassed returns the fate of an event that is settled, and the reason.
func (v *delivery) fateOfPassed(c *fsm.Cursor) (fate, reason string) {
	// Passed does not mean handled: a seek, or the beginning of the cursor, passes events, too.
	switch seek := c.LastSeek; {
	case v.Offset > c.Committed:
		return api.FateCommitted, "the group has settled it, and not yet others before it"
	// Only the last seek is known.
	case seek != nil && seek.From < v.Offset && v.Offset <= seek.To:
		v.Seek = (*api.Seek)(seek)
		return api.FateSkipped, fmt.Sprintf("the cursor was moved over it, from %d to %d", seek.From, seek.To)
	// A cursor that was never opened has had no reader.
	case v.Offset <= c.Start || c.Generation == 0:
		return api.FateBefore, "the cursor began after it: it was never handed to a reader"
	case v.Trimmed:
		return api.FateCommitted, "the cursor has moved past it; the event is trimmed, so no more is known"
	}
	return api.FateCommitted, "its reader has committed it, or an offset after it"
}

// gapOver returns the cursor's gap where it covers the offset, else nil.
func gapOver(c *fsm.Cursor, offset uint64) *log.Gap {
	// A cursor records its last gap alone.
	if c.Gap != nil && c.Gap.From <= offset && offset <= c.Gap.To {
		return c.Gap
	}
	return nil
}
