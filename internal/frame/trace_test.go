package frame

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ringrift/ringlog/event"
)

// withoutTraces returns copies of events that have none.
func withoutTraces(events []event.Event) []event.Event {
	out := make([]event.Event, len(events))
	for i := range events {
		out[i] = events[i]
		out[i].Trace = event.Trace{}
	}
	return out
}

// Traces are at the end of the header, and nowhere else: without them a block has the bytes that it had before there
// were traces. They are part of neither the key of a row nor the identity of a request.
func TestTracesAreBesideTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(anEvent), 1, 20).Draw(t, "events")
		traced, plain := batchOf(events), batchOf(withoutTraces(events))
		with, without := EncodeBlock(traced), EncodeBlock(plain)
		if !bytes.Equal(with.Columns, without.Columns) || !bytes.Equal(with.Body, without.Body) {
			t.Fatal("traces change columns or body")
		}
		runs, found := bytes.CutPrefix(with.Header, without.Header)
		if !found || (len(runs) > 0) != (len(traced.traces) > 0) {
			t.Fatalf("header %x, without traces %x", with.Header, without.Header)
		}
		h, err := DecodeHeader(without.Header)
		if err != nil || len(h.Traces()) != 0 {
			t.Fatalf("%x %v", h.Traces(), err)
		}
		command := Publish{Producer: "p", Sequence: 1, Count: len(events)}
		id, own := Request{Command: command, Batch: traced}.ID()
		plainID, plainOwn := Request{Command: command, Batch: plain}.ID()
		if id != plainID || own != plainOwn {
			t.Fatal("a retry in another span is another request")
		}
	})
}

// However rows came together, each has its own trace, and equal ones that follow each other are stored once.
func TestTracesOfJoinedBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var joined, together Batch
		var want []event.Trace
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			events := rapid.SliceOfN(rapid.Custom(anEvent), 0, 8).Draw(t, "events")
			var part Batch
			for i := range events {
				part.Add(&events[i], event.Hash{})
				together.Add(&events[i], event.Hash{})
				want = append(want, events[i].Trace)
			}
			if rapid.Bool().Draw(t, "of a packet") {
				joined.Join(&part)
			} else {
				joined.join(&part)
			}
		}
		runs := joined.traces.appendTo(nil, joined.Len())
		if !bytes.Equal(runs, together.traces.appendTo(nil, together.Len())) {
			t.Fatalf("%v joined, %v together", joined.traces, together.traces)
		}
		if err := checkTraces(runs, len(want)); err != nil {
			t.Fatal(err)
		}
		r := newTraceReader(runs)
		for i := range want {
			if got := r.next(); got != want[i] {
				t.Fatalf("row %d: %v, want %v", i, got, want[i])
			}
		}
		if len(r.Rest) > 0 || r.Err != nil {
			t.Fatal(r.Rest, r.Err)
		}
	})
}

// What is not the traces of as many rows is refused, in a packet as in a header.
func TestTracesAreNotTrusted(t *testing.T) {
	trace := appendTrace(nil, &event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}})
	run := func(rows, kind byte, rest []byte) []byte { return append([]byte{rows, kind}, rest...) }
	events := []event.Event{event.New("T", nil), event.New("T", nil), event.New("T", nil)}
	for name, bad := range map[string][]byte{
		"too few rows":     run(2, 1, trace),
		"too many rows":    run(4, 1, trace),
		"no rows":          append(run(0, 1, trace), run(3, 1, trace)...),
		"many rows":        append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 1}, trace...),
		"none at all":      run(3, 0, nil),
		"an unknown kind":  run(3, 2, trace),
		"a trace of zeros": run(3, 1, make([]byte, traceSize)),
		"a span of zeros":  run(3, 1, append(bytes.Clone(trace[:16]), make([]byte, 9)...)),
		"cut":              run(3, 1, trace[:traceSize-1]),
		"bytes after them": append(run(3, 1, trace), 0),
	} {
		p := Pack(events)
		p.Traces = bad
		if _, err := p.Open(1 << 20); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, in a packet: %v", name, err)
		}
		if _, err := DecodeHeader(append(EncodeBlock(batchOf(events)).Header, bad...)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, in a header: %v", name, err)
		}
	}
	if _, err := DecodeCopy(append(EncodeCopy(&events[0]), make([]byte, traceSize)...)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a copy: %v", err)
	}
}

// Rows without a trace allocate nothing for traces, and one trace of all rows is noted once.
func TestTracesCostNothingWhereThereAreNone(t *testing.T) {
	var none, one traceRuns
	same := event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	row := 0
	if n := testing.AllocsPerRun(100, func() { none.add(row, &event.Trace{}); row++ }); n != 0 || none != nil {
		t.Errorf("%v allocations, %v", n, none)
	}
	for i := range 1000 {
		one.add(i, &same)
	}
	if len(one) != 1 || len(one.appendTo(nil, 1000)) != traceSize+3 {
		t.Errorf("%d runs, %x", len(one), one.appendTo(nil, 1000))
	}
	var b Builder
	b.Add(Publish{Count: 1}, batchOf([]event.Event{{Type: "T", Trace: same}}))
	b.Encode(Seal{Time: time.Unix(1, 0)})
	if len(b.events().traces) > 0 {
		t.Error("a builder keeps traces of its last frame")
	}
}

// A leader whose gate drops traces, as it does while a member cannot read them, takes a forwarded request without them.
func TestAForwardedTraceIsDropped(t *testing.T) {
	e := event.New("A", nil)
	e.Trace = event.Trace{TraceID: [16]byte{1}, SpanID: [8]byte{2}}
	r := Request{Command: Publish{Count: 1}, Batch: batchOf([]event.Event{e})}
	for _, drops := range []bool{false, true} {
		gate := event.Policy{NoTraces: drops}
		got, err := OpenRequest(r.Encode(), nil, func(e *event.Event) (event.Hash, error) {
			sent := *e
			hash, _, err := gate.Normalize(e)
			if !e.SameForm(&sent) {
				t.Error("without its trace it has another form")
			}
			return hash, err
		})
		if err != nil {
			t.Fatal(err)
		}
		plain := EncodeBlock(batchOf(withoutTraces([]event.Event{e})))
		if header := EncodeBlock(got.Batch).Header; bytes.Equal(header, plain.Header) != drops {
			t.Errorf("dropped: %t, header %x", !drops, header)
		}
	}
}
