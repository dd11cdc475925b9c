package event

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const someTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// A trace context is printed as it was read, and read as it was printed.
func TestTraceparentRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var want Trace
		copy(want.TraceID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "trace"))
		copy(want.SpanID[:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "span"))
		want.Flags = rapid.Byte().Draw(t, "flags")
		if !want.Valid() {
			return
		}
		got, err := ParseTrace(want.String())
		if err != nil || got != want || got.Sampled() != (want.Flags&1 == 1) {
			t.Fatalf("%s: %+v %v", want, got, err)
		}
	})
}

// What is not a traceparent of version 00 is refused with the field and a remedy, at its place in the event.
func TestATraceparentIsReadStrictly(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]string{
		"cut":                    someTrace[:54],
		"longer":                 someTrace + "-00",
		"another version":        "01" + someTrace[2:],
		"upper case":             strings.ToUpper(someTrace),
		"no hex":                 strings.Replace(someTrace, "4bf9", "4bg9", 1),
		"a sign among digits":    strings.Replace(someTrace, "4bf9", "+bf9", 1),
		"other separators":       strings.Replace(someTrace, "-", "_", 3),
		"a trace id of zeros":    "00-" + strings.Repeat("0", 32) + someTrace[35:],
		"a span id of zeros":     someTrace[:36] + strings.Repeat("0", 16) + someTrace[52:],
		"bytes that are no text": "00-" + strings.Repeat("é", 16) + someTrace[35:],
		"much":                   strings.Repeat("0", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseTrace(bad)
			if e, ok := errors.AsType[*Error](err); !ok || e.Field != "traceparent" || e.Reason != ReasonInvalidField ||
				e.Remedy == "" || len(e.Error()) > 400 {
				t.Errorf("%v", err)
			}
			text, _ := json.Marshal(map[string]string{"type": "A", "traceparent": bad})
			_, err = DecodeArray(append(append([]byte("["), text...), ']'), Limits{})
			if e, ok := errors.AsType[*Error](err); !ok || e.Field != "events[0].traceparent" || e.Remedy == "" {
				t.Errorf("%v", err)
			}
			// A stored one may be of a later version.
			var stored Event
			if err := json.Unmarshal(text, &stored); err != nil || stored.Trace != (Trace{}) {
				t.Errorf("stored: %v %v", stored.Trace, err)
			}
		})
	}
}

// An event is printed with its trace context and read again. One that is not valid is none.
func TestAnEventKeepsItsTraceInJSON(t *testing.T) {
	t.Parallel()
	ev, err := DecodeOne([]byte(`{"type":"A","traceparent":"`+someTrace+`"}`), Limits{})
	if err != nil || ev.Trace.String() != someTrace {
		t.Fatalf("%v %v", ev.Trace, err)
	}
	var again Event
	if err := json.Unmarshal(ev.AppendJSON(nil), &again); err != nil || again.Trace != ev.Trace {
		t.Errorf("%s: %v %v", ev.AppendJSON(nil), again.Trace, err)
	}
	ev.Trace.SpanID = [8]byte{}
	if text := ev.AppendJSON(nil); strings.Contains(string(text), "traceparent") || ev.Trace.String() != "" {
		t.Errorf("%s", text)
	}
	for _, none := range []string{`null`, `""`} {
		if ev, err := DecodeOne([]byte(`{"type":"A","traceparent":`+none+`}`), Limits{}); err != nil || ev.Trace.Valid() {
			t.Errorf("%s: %v %v", none, ev.Trace, err)
		}
	}
}

// The trace context counts for nothing: not for the content hash, nor for whether an event has the stored form. A
// policy without traces drops it.
func TestATraceIsNoContent(t *testing.T) {
	t.Parallel()
	plain, traced := New("A", nil), New("A", nil)
	traced.Trace, _ = ParseTrace(someTrace)
	sent := traced
	keeps, drops := Policy{}, Policy{NoTraces: true}
	want, _, _ := keeps.Normalize(&plain)
	if got, _, err := keeps.Normalize(&traced); err != nil || got != want || !traced.Trace.Valid() {
		t.Errorf("%s, want %s: %v %v", got, want, traced.Trace, err)
	}
	if got, _, err := drops.Normalize(&traced); err != nil || got != want || traced.Trace != (Trace{}) {
		t.Errorf("%s, want %s: %v %v", got, want, traced.Trace, err)
	}
	if !traced.SameForm(&sent) {
		t.Error("an event without its trace has another form")
	}
}

// What a handler publishes is of the trace of its event, unless it has one of its own.
func TestATraceIsInherited(t *testing.T) {
	t.Parallel()
	own, _ := ParseTrace(strings.Replace(someTrace, "00f067aa0ba902b7", "1111111111111111", 1))
	cause := Event{Offset: 3}
	cause.Trace, _ = ParseTrace(someTrace)
	ctx := CausedBy(context.Background(), &cause)
	if got := Inherit(ctx, New("A", nil)); got.Trace != cause.Trace || TraceOf(ctx) != cause.Trace {
		t.Errorf("%v, want %v", got.Trace, cause.Trace)
	}
	if got := Inherit(ctx, Event{Type: "A", Trace: own}); got.Trace != own {
		t.Errorf("%v, want %v", got.Trace, own)
	}
	if TraceOf(context.Background()).Valid() {
		t.Error("a trace without a cause")
	}
}
