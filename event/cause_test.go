package event

import (
	"context"
	"testing"
)

// What is published in a handler's context belongs to the run of its event, unless it says otherwise.
func TestEventsInheritFromTheirCause(t *testing.T) {
	caused := CausedBy(t.Context(), &Event{Offset: 41, CorrelationID: "run-7"})
	for _, c := range []struct {
		name                   string
		ctx                    context.Context
		ev                     Event
		correlation, causation string
	}{
		{"no cause", t.Context(), Event{}, "", ""},
		{"nothing of its own", caused, Event{Payload: []byte(`{"n":1}`)}, "run-7", "41"},
		{"ids of its own", caused, Event{CorrelationID: "run-8", CausationID: "x"}, "run-8", "x"},
		{"a run in its payload", caused, Event{Payload: []byte(`{"correlation_id":"run-8"}`)}, "", "41"},
		{"an empty run in its payload", caused, Event{Payload: []byte(`{"correlation_id":""}`)}, "run-7", "41"},
		{"a number in its payload", caused, Event{Payload: []byte(`{"correlation_id":7}`)}, "run-7", "41"},
		{"no text in its payload", caused, Event{Payload: []byte(`{"correlation_id":null}`)}, "run-7", "41"},
		{"a run within its payload", caused, Event{Payload: []byte(`{"a":{"correlation_id":"x"}}`)}, "run-7", "41"},
		{"a cause without offset and run", CausedBy(t.Context(), &Event{}), Event{}, "", ""},
	} {
		for _, got := range []Event{Inherit(c.ctx, c.ev), InheritAll(c.ctx, []Event{c.ev})[0]} {
			if got.CorrelationID != c.correlation || got.CausationID != c.causation {
				t.Errorf("%s: run %q, cause %q", c.name, got.CorrelationID, got.CausationID)
			}
		}
	}
	// The caller's events stay as they are.
	events := []Event{{}}
	InheritAll(caused, events)
	if events[0].CorrelationID != "" {
		t.Error("a batch was changed in place")
	}
}
