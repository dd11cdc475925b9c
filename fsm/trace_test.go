package fsm

import (
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// tracedEv is ev in the span of a number.
func tracedEv(n int, span byte) event.Event {
	e := ev(n)
	e.Trace = event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{span}, Flags: 1}
	return e
}

// A retry in another span is the duplicate that it is without one, and the trace of the first is kept: in the log, in a
// dead letter and its redrive, and in what is scheduled.
func TestATraceDecidesNothing(t *testing.T) {
	n := newNode(t)
	var at uint64
	apply := func(requests ...request) []Result {
		at++
		results := applyTo(t, n.m, entryOf(at, 1, "n1", epoch.Add(time.Duration(at)*time.Second), requests...))
		for i := range results {
			if results[i].Refusal != nil {
				t.Fatal(results[i].Refusal)
			}
		}
		return results
	}
	apply(do(frame.MemberPut{Member: frame.Member{ID: "n1", FeatureLevel: FeatureLevel}}),
		do(frame.CursorCreate{Name: "c"}))
	first := apply(publish(tracedEv(1, 1), withID(tracedEv(2, 2), "id")))[0].First
	again := apply(publish(tracedEv(1, 3)), publish(ev(1)), publish(withID(tracedEv(2, 4), "id")))
	for i, want := range []uint64{first, first, first + 1} {
		if d := again[i].Duplicates; len(d) != 1 || d[0].Offset != want {
			t.Errorf("retry %d: %+v, want a duplicate of %d", i, d, want)
		}
	}
	span := func(offset uint64) byte {
		e, err := n.m.Log().Get(offset)
		if err != nil {
			t.Fatal(err)
		}
		return e.Trace.SpanID[0]
	}
	if span(first) != 1 || span(first+1) != 2 {
		t.Errorf("spans %d and %d, want 1 and 2", span(first), span(first+1))
	}

	// A dead letter, which is redriven.
	stored, _ := n.m.Log().Get(first)
	apply(do(frame.DeadLetter{Cursor: "c", Offset: first, Handler: "h", Attempts: 1, Event: frame.EncodeCopy(&stored)}))
	apply(do(frame.Redrive{Letters: []uint64{1}}))
	_, last := n.m.Log().Bounds()
	redriven := uint64(0)
	for offset := first + 2; offset <= last; offset++ {
		if e, err := n.m.Log().Get(offset); err == nil && e.Redrive == 1 {
			redriven = offset
		}
	}
	if redriven == 0 || span(redriven) != 1 {
		t.Errorf("redriven at %d without the trace of its event", redriven)
	}

	// A scheduled event. Another span does not make it another one.
	for _, by := range []byte{5, 6} {
		e := tracedEv(9, by)
		apply(do(frame.Schedule{ID: "s", At: epoch.Add(time.Hour), Event: frame.EncodeCopy(&e)}))
	}
	e, waits, err := n.m.ScheduledEvent("s")
	if err != nil || !waits || e.Trace.SpanID[0] != 5 {
		t.Errorf("scheduled in span %v: %v", e.Trace, err)
	}
}
