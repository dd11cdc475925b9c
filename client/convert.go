package client

import (
	"errors"
	"fmt"
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// eachEvent calls yield with the events of runs, in order, until it returns false. An event is valid during its call.
func eachEvent(runs []*ringlogv1.Run, yield func(*event.Event) bool) error {
	for _, run := range runs {
		// A node sends a run either as single events or as a span of a stored block.
		each := eachOfRun
		if run.GetSpan() != nil {
			each = eachOfSpan
		}
		more, err := each(run, yield)
		if !more || err != nil {
			return err
		}
	}
	return nil
}

// eachOfRun yields the events of a run that has them one by one. more reports whether yield
// wants the next run.
func eachOfRun(run *ringlogv1.Run, yield func(*event.Event) bool) (more bool, err error) {
	at, term := time.Unix(0, run.GetAppendedAtUnixNano()).UTC(), run.GetTerm()
	var ev event.Event
	for _, w := range run.GetEvents() {
		ev = event.Event{
			Type: event.Type(w.Type), Value: w.Value, Payload: w.Payload,
			Source: w.Source, Key: w.Key, DedupID: w.DedupId, NoDedup: w.NoDedup,
			CorrelationID: w.CorrelationId, CausationID: w.CausationId,
			Original: w.OriginalType, Foreign: w.Foreign,
			Offset: w.Offset, AppendedAt: at, Term: term, Target: w.Target, Redrive: w.Redrive,
		}

		ev.Trace, _ = event.ParseTrace(w.Traceparent) // what a later version may write in another form counts as none
		// A zero time is none: it is not 1970.
		if w.TimeUnixNano != 0 {
			ev.Time = time.Unix(0, w.TimeUnixNano).UTC()
		}
		if !yield(&ev) {
			return false, nil
		}
	}
	return true, nil
}

// errEnough ends the reading of a span.
var errEnough = errors.New("enough")

// eachOfSpan decompresses the block of a run and yields the events that the span selects: it
// passes skip events after first, and yields take of them. The bits of dead mark suppressed
// records.
func eachOfSpan(run *ringlogv1.Run, yield func(*event.Event) bool) (more bool, err error) {
	s, at := run.GetSpan(), time.Unix(0, run.GetAppendedAtUnixNano()).UTC()

	// A span is a part of a block as it is stored: events are counted to know their offsets,
	// suppressed ones have none.
	w := s.GetPacket()
	p := frame.Packet{Rows: int(w.GetRows()), Types: w.GetTypes(), Sources: w.GetSources(), Body: w.GetBody(),
		Traces: w.GetTraces()}
	opened, err := p.Open(frame.MaxBlockBytes)
	if err != nil {
		return false, err
	}
	offset, from := s.GetFirst(), s.GetFirst()+uint64(s.GetSkip())
	err = opened.Each(func(row int, e *event.Event) error {
		if dead := s.GetDead(); row/8 < len(dead) && dead[row/8]&(1<<(row%8)) != 0 {
			return nil
		}
		e.Offset, e.AppendedAt, e.Term = offset, at, run.GetTerm()
		offset++
		switch {
		case e.Offset < from:
			return nil
		case e.Offset >= from+uint64(s.GetTake()) || !yield(e):
			return errEnough
		}
		return nil
	})

	// The span must have brought all that it promised.
	end := from + uint64(s.GetTake())
	switch {
	case err == errEnough:
		return offset > end, nil
	case err == nil && offset != end:
		err = fmt.Errorf("a block ends at offset %d, not at %d", offset-1, end-1)
	}
	return true, err
}

// eventsOf returns the events of runs as one list, in order.
func eventsOf(runs []*ringlogv1.Run) ([]event.Event, error) {
	events := make([]event.Event, 0, countEvents(runs))
	err := eachEvent(runs, func(e *event.Event) bool {
		events = append(events, *e)
		return true
	})
	return events, err
}

// gapOf returns a gap from the wire, nil for none.
func gapOf(w *ringlogv1.Gap) *Gap {
	if w == nil {
		return nil
	}
	return &Gap{From: w.From, To: w.To, Reason: w.Reason, Types: w.Types, Uncounted: w.Uncounted}
}

// filterToWire returns a filter for a request.
func filterToWire(f event.Filter) *ringlogv1.Filter {
	return &ringlogv1.Filter{Types: f.Types, Categories: f.Categories, Sources: f.Sources, Keys: f.Keys,
		CorrelationIds: f.CorrelationIDs}
}

// filterOf is the reverse of filterToWire; nil is the zero Filter.
func filterOf(w *ringlogv1.Filter) event.Filter {
	return event.Filter{Types: w.GetTypes(), Categories: w.GetCategories(), Sources: w.GetSources(), Keys: w.GetKeys(),
		CorrelationIDs: w.GetCorrelationIds()}
}
