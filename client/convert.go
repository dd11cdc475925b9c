package client

import (
	"time"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/event"
)

// wireBytes is about what an event takes in a request.
func wireBytes(ev *event.Event) int {
	const overhead = 32 // lengths, time
	return overhead + len(ev.Type) + len(ev.Value) + len(ev.Payload) + len(ev.Source) + len(ev.Key) + len(ev.DedupID) +
		len(ev.CorrelationID) + len(ev.CausationID) + len(ev.Original)
}

// appendRun appends a run's events.
func appendRun(events []event.Event, run *ringlogv1.Run) []event.Event {
	at, term := time.Unix(0, run.GetAppendedAtUnixNano()).UTC(), run.GetTerm()
	for _, w := range run.GetEvents() {
		ev := event.Event{
			Type: event.Type(w.Type), Value: w.Value, Payload: w.Payload,
			Source: w.Source, Key: w.Key, DedupID: w.DedupId, NoDedup: w.NoDedup,
			CorrelationID: w.CorrelationId, CausationID: w.CausationId,
			Original: w.OriginalType, Foreign: w.Foreign,
			Offset: w.Offset, AppendedAt: at, Term: term,
		}
		if w.TimeUnixNano != 0 {
			ev.Time = time.Unix(0, w.TimeUnixNano).UTC()
		}
		events = append(events, ev)
	}
	return events
}

func eventsOf(runs []*ringlogv1.Run) []event.Event {
	n := 0
	for _, run := range runs {
		n += len(run.Events)
	}
	events := make([]event.Event, 0, n)
	for _, run := range runs {
		events = appendRun(events, run)
	}
	return events
}

func gapOf(w *ringlogv1.Gap) *Gap {
	if w == nil {
		return nil
	}
	return &Gap{From: w.From, To: w.To, Reason: w.Reason, Types: w.Types, Uncounted: w.Uncounted}
}

func filterToWire(f event.Filter) *ringlogv1.Filter {
	return &ringlogv1.Filter{Types: f.Types, Categories: f.Categories, Sources: f.Sources, Keys: f.Keys, CorrelationIds: f.CorrelationIDs}
}

func filterOf(w *ringlogv1.Filter) event.Filter {
	return event.Filter{Types: w.GetTypes(), Categories: w.GetCategories(), Sources: w.GetSources(), Keys: w.GetKeys(),
		CorrelationIDs: w.GetCorrelationIds()}
}
