package event

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
)

// causeKey is the key of the cause that a context has.
// It is a type of its own, so no other package can collide with it.
type causeKey struct{}

// cause is what events inherit.
type cause struct {
	correlation, causation string
	trace                  Trace
}

// CausedBy returns a context in which published events inherit from ev: they belong to its run and its trace, and name
// it as their cause by its offset. Handlers of package router have such a context.
func CausedBy(ctx context.Context, ev *Event) context.Context {
	c := cause{correlation: ev.CorrelationID, trace: ev.Trace}
	// An event that is not in the log has no offset to name.
	if ev.Offset > 0 {
		c.causation = strconv.FormatUint(ev.Offset, 10)
	}
	return context.WithValue(ctx, causeKey{}, c)
}

// TraceOf returns the trace of the cause that ctx has, zero if there is none.
func TraceOf(ctx context.Context) Trace {
	c, _ := ctx.Value(causeKey{}).(cause)
	return c.trace
}

// Inherit returns ev with the correlation id, causation id and trace of the cause that ctx has, for those that it lacks.
// A correlation_id in its payload is its own.
func Inherit(ctx context.Context, ev Event) Event {
	c, caused := ctx.Value(causeKey{}).(cause)
	// ev is a copy, so the caller's event does not change.
	if !caused {
		return ev
	}
	if ev.CausationID == "" {
		ev.CausationID = c.causation
	}
	if !ev.Trace.Valid() {
		ev.Trace = c.trace
	}
	if ev.CorrelationID == "" && c.correlation != "" && !correlated(ev.Payload) {
		ev.CorrelationID = c.correlation
	}
	return ev
}

// InheritAll is Inherit for a batch. It returns events themselves if ctx has no cause, else a copy.
func InheritAll(ctx context.Context, events []Event) []Event {
	if _, caused := ctx.Value(causeKey{}).(cause); !caused {
		return events
	}
	// A copy, as the caller's events must not change.
	inherited := make([]Event, len(events))
	for i, ev := range events {
		inherited[i] = Inherit(ctx, ev)
	}
	return inherited
}

// correlated reports whether a payload has a correlation id, which an event without one gets at the node.
func correlated(payload []byte) bool {
	// Most payloads have none, and need no decoding.
	// The name may also be inside of a value, so this decides only that it is absent.
	if !bytes.Contains(payload, []byte(`"correlation_id"`)) {
		return false
	}
	var own struct {
		ID json.RawMessage `json:"correlation_id"`
	}
	var e Event
	// Whatever the node could not use counts as none.
	return json.Unmarshal(payload, &own) == nil && own.ID != nil && fillCorrelation(&e, own.ID, DefaultLimits()) == nil &&
		e.CorrelationID != ""
}
