package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/log"
)

// What may have become of an event for a cursor.
const (
	FatePending   = "pending"       // it will be read; not committed yet
	FateCommitted = "committed"     // its reader said that it was handled
	FateBefore    = "before-cursor" // the cursor began after it
	FateSkipped   = "skipped"       // the last seek passed over it
	FateFiltered  = "filtered"      // the cursor does not get it
	FateDead      = "dead"          // there is a dead letter of it
	FateRedriven  = "redriven"      // its dead letter was appended again, and that is pending
	FateTrimmed   = "trimmed"       // it is gone, and the cursor had not committed it
)

// DeliveryView tells what became of an event for a cursor, as far as a node can know: a
// cursor knows what was committed, not what was handed to its reader.
type DeliveryView struct {
	Cursor     string `json:"cursor"`
	Offset     uint64 `json:"offset"`
	Fate       string `json:"fate"`
	Reason     string `json:"reason"`
	Committed  uint64 `json:"committed"`
	Generation uint64 `json:"generation"`           // how often the cursor was opened
	InFront    uint64 `json:"in_front"`             // offsets before it that are not committed either
	Deliveries uint64 `json:"deliveries,omitempty"` // by a group, that it has had so far
	Trimmed    bool   `json:"trimmed,omitempty"`    // the event itself is gone

	Event      *explained   `json:"event,omitempty"` // where it is kept
	FilteredBy []filterPart `json:"filtered_by,omitempty"`
	Letter     *deadView    `json:"letter,omitempty"`
	Gap        *log.Gap     `json:"gap,omitempty"`
	Seek       *fsm.Seek    `json:"seek,omitempty"`
	Duplicates *repeats     `json:"duplicates,omitempty"` // of the same content, which got this offset as their answer
}

type explained struct {
	Type          event.Type `json:"type"`
	Source        string     `json:"source,omitempty"`
	Key           string     `json:"key,omitempty"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	AppendedAt    time.Time  `json:"appended_at"`
	Target        string     `json:"target,omitempty"` // the one cursor it was appended again for
	Redrive       uint64     `json:"redrive,omitempty"`
}

// filterPart is a part of a cursor's filter that an event does not pass.
type filterPart struct {
	Part  string   `json:"part"` // types, categories, sources, keys, correlation_ids or target
	Wants []string `json:"wants"`
	Has   string   `json:"has"`
}

type deadView struct {
	ID       uint64    `json:"id"`
	Handler  string    `json:"handler,omitempty"`
	Error    string    `json:"error,omitempty"`
	Attempts uint64    `json:"attempts"`
	Dead     time.Time `json:"dead_lettered_at"`
	Copy     uint64    `json:"copy,omitempty"` // where its event stands now
}

type repeats struct {
	Suppressed uint64            `json:"suppressed"`
	First      time.Time         `json:"first"`
	Last       time.Time         `json:"last"`
	Sources    []fsm.SourceCount `json:"sources"`
}

func (s *Service) ExplainDelivery(ctx context.Context, name string, offset uint64) (DeliveryView, error) {
	c, err := s.Cursor(name)
	if err != nil {
		return DeliveryView{}, err
	}
	if g, is := s.Machine().Group(name); is {
		c.Cursor = g
	}
	v := DeliveryView{Cursor: name, Offset: offset, Committed: c.Committed, Generation: c.Generation}
	e, err := s.Machine().Log().Get(offset)
	if trimmed := (*log.TrimmedError)(nil); errors.As(err, &trimmed) {
		v.Trimmed = true
	} else if err != nil {
		return v, err
	} else if err := v.show(ctx, s.Machine(), &e); err != nil {
		return v, err
	}
	if err := v.findLetter(ctx, s.Machine(), e.Redrive); err != nil {
		return v, err
	}
	if !v.Trimmed {
		v.FilteredBy = rejects(c.Filter, &e, name, s.Machine().Catalogue())
	}
	v.decide(&c.Cursor)
	return v, nil
}

// show adds the event and what deduplication did with it.
func (v *DeliveryView) show(ctx context.Context, m *fsm.Machine, e *event.Event) error {
	v.Event = &explained{Type: e.Type, Source: e.Source, Key: e.Key, CorrelationID: e.CorrelationID, AppendedAt: e.AppendedAt, Target: e.Target, Redrive: e.Redrive}
	x, err := m.Explain(ctx, v.Offset)
	if err == nil && x.Suppressed > 0 {
		v.Duplicates = &repeats{Suppressed: x.Suppressed, First: x.First, Last: x.Last, Sources: x.Sources}
	}
	return err
}

// findLetter adds the dead letter of the event: the one that the cursor made at the
// offset, or for a copy the one it is of, or one whose copies died again elsewhere. One
// that was resolved is gone.
func (v *DeliveryView) findLetter(ctx context.Context, m *fsm.Machine, redrive uint64) error {
	l, err := m.LetterAt(v.Cursor, v.Offset)
	if errors.Is(err, fsm.ErrNoLetter) && redrive != 0 {
		l, _, err = m.Letter(redrive)
	}
	if errors.Is(err, fsm.ErrNoLetter) {
		err = m.EachLetter(ctx, 0, func(one fsm.LetterView) bool {
			if one.Cursor == v.Cursor && slices.Contains(one.Lineage, v.Offset) {
				l = one
			}
			return l.ID == 0
		})
	}
	if err == nil && l.ID != 0 && l.Cursor == v.Cursor {
		v.Letter = &deadView{ID: l.ID, Handler: l.Handler, Error: l.Error, Attempts: l.Attempts, Dead: l.Dead, Copy: l.Copy}
	}
	return err
}

// rejects lists the parts of a filter that keep an event from a cursor. What was
// appended again for one cursor goes to that whatever its filter, and to nobody else.
func rejects(f event.Filter, e *event.Event, cursor string, c *event.Catalogue) (parts []filterPart) {
	if e.Target == cursor {
		return nil
	}
	if e.Target != "" {
		return []filterPart{{Part: "target", Wants: []string{cursor}, Has: e.Target}}
	}
	category := ""
	if d, ok := c.Definition(e.Type); ok {
		category = d.Category
	}
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
		if m := one.alone.Compile(c); !m.Match(e) {
			parts = append(parts, filterPart{Part: one.part, Wants: one.wants, Has: one.has})
		}
	}
	return parts
}

// decide says what all that comes to.
func (v *DeliveryView) decide(c *fsm.Cursor) {
	v.Fate, v.Reason = v.judge(c)
	if v.Fate == FatePending {
		v.InFront, v.Deliveries = c.OpenBefore(v.Offset), c.Deliveries(v.Offset)
	}
}

func (v *DeliveryView) judge(c *fsm.Cursor) (fate, reason string) {
	switch l := v.Letter; {
	case l != nil && l.Copy == v.Offset:
		return FatePending, fmt.Sprintf("it is the copy of dead letter %d, appended again for this cursor, which has not committed it", l.ID)
	case l != nil && l.Copy != 0:
		return FateRedriven, fmt.Sprintf("dead letter %d was appended again at offset %d, which the cursor has not committed", l.ID, l.Copy)
	case l != nil && !c.Settled(v.Offset):
		return FatePending, fmt.Sprintf("the cursor was moved back before it: its reader gets it again, though it is dead letter %d", l.ID)
	case l != nil:
		return FateDead, fmt.Sprintf("it is dead letter %d", l.ID)
	case len(v.FilteredBy) > 0:
		return FateFiltered, "the cursor's filter does not let it through"
	case c.Settled(v.Offset):
		return v.judgePassed(c)
	case v.Trimmed && v.Offset <= c.Scanned:
		return FateFiltered, fmt.Sprintf("the cursor's filter passes nothing up to %d; the event itself is trimmed", c.Scanned)
	case v.Trimmed:
		v.Gap = gapOver(c, v.Offset)
		return FateTrimmed, "it was trimmed before the cursor had committed it: its reader is told of a gap"
	case c.Group != nil:
		return FatePending, v.judgeOpen(c.Group)
	case c.Generation == 0:
		return FatePending, "nobody has opened the cursor yet"
	}
	return FatePending, "it was not committed yet; whether its reader has it is not known here"
}

// judgeOpen says how far a group is with an event that it has not settled.
func (v *DeliveryView) judgeOpen(g *fsm.Group) string {
	retry, failed := g.Retry(v.Offset)
	switch {
	case failed && retry.Error != "":
		return fmt.Sprintf("it comes again: delivery %d failed: %s", retry.Deliveries, retry.Error)
	case failed:
		return fmt.Sprintf("it comes again: it was given back after %d deliveries that failed", retry.Deliveries)
	case v.Offset <= g.Reserved:
		return "it was perhaps handed to a member, which has not acknowledged it"
	}
	return "it was not handed to a member yet"
}

// judgePassed judges what a cursor is through with.
func (v *DeliveryView) judgePassed(c *fsm.Cursor) (fate, reason string) {
	switch seek := c.LastSeek; {
	case v.Offset > c.Committed:
		return FateCommitted, "the group has settled it, and not yet others before it"
	case seek != nil && seek.From < v.Offset && v.Offset <= seek.To:
		v.Seek = seek
		return FateSkipped, fmt.Sprintf("the cursor was moved over it, from %d to %d", seek.From, seek.To)
	case v.Offset <= c.Start || c.Generation == 0:
		return FateBefore, "the cursor began after it: it was never handed to a reader"
	case v.Trimmed:
		return FateCommitted, "the cursor has moved past it; the event is trimmed, so no more is known"
	}
	return FateCommitted, "its reader has committed it, or an offset after it"
}

func gapOver(c *fsm.Cursor, offset uint64) *log.Gap {
	if c.Gap != nil && c.Gap.From <= offset && offset <= c.Gap.To {
		return c.Gap
	}
	return nil
}
