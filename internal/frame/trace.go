package frame

import (
	"encoding/binary"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// The trace contexts of a block's rows are runs of rows that have the same one, or none, until all rows have had theirs:
//
//	uvarint  rows
//	1        0: none, nothing follows; 1: a trace context
//	16       trace id, not all zero
//	8        span id, not all zero
//	1        flags
//
// They are stored in the header, after what every header has: the body then is the one that the rows have without
// traces, so that a client's body is stored as it came, and readers that know no traces get it as it is. A block in
// which no row has one has no runs, and the bytes that it had before there were traces. One that has some is made from
// LevelTraces on, as older builds refuse a longer header.

// traceSize is what a trace context takes beside its run's number of rows.
const traceSize = 16 + 8 + 1

// traceRun says that the rows from a row on have a trace context, up to the next run.
type traceRun struct {
	from  int         // the first row
	trace event.Trace // the zero Trace is none
}

// traceRuns are the trace contexts of the rows of a batch. nil says that no row has one.
type traceRuns []traceRun

// add notes the trace context of the next row, which is number row. Rows of a batch without traces cost a comparison.
func (r *traceRuns) add(row int, t *event.Trace) {
	if len(*r) > 0 || t.SpanID != [8]byte{} {
		r.note(row, t)
	}
}

// note is add for a batch that has a trace, or may begin to.
func (r *traceRuns) note(row int, t *event.Trace) {
	// What is not valid is none. A batch begins with none.
	var known event.Trace
	if n := len(*r); n > 0 {
		known = (*r)[n-1].trace
	}
	if !t.Valid() {
		t = &event.Trace{}
	}
	if *t != known {
		*r = append(*r, traceRun{row, *t})
	}
}

// join notes those of another batch, whose rows follow the ones that there are.
func (r *traceRuns) join(rows int, other *Batch) {
	if other.Len() == 0 {
		return
	}
	// The rows of the other one begin with none as well.
	if len(other.traces) == 0 || other.traces[0].from > 0 {
		r.add(rows, &event.Trace{})
	}
	for i := range other.traces {
		r.add(rows+other.traces[i].from, &other.traces[i].trace)
	}
}

// appendTo appends the runs of so many rows as drawn above, nothing if no row has a trace.
func (r traceRuns) appendTo(b []byte, rows int) []byte {
	if len(r) == 0 {
		return b
	}
	// The rows before the first run have none.
	if r[0].from > 0 {
		b = append(binary.AppendUvarint(b, uint64(r[0].from)), 0)
	}
	for i := range r {
		// A run ends where the next one begins.
		end := rows
		if i+1 < len(r) {
			end = r[i+1].from
		}
		b = binary.AppendUvarint(b, uint64(end-r[i].from))
		if r[i].trace.Valid() {
			b = appendTrace(append(b, 1), &r[i].trace)
		} else {
			b = append(b, 0)
		}
	}
	return b
}

// appendTrace appends a trace context.
func appendTrace(b []byte, t *event.Trace) []byte {
	return append(append(append(b, t.TraceID[:]...), t.SpanID[:]...), t.Flags)
}

// trace reads a trace context.
func (d *decoder) trace() (t event.Trace) {
	copy(t.TraceID[:], d.Take(len(t.TraceID)))
	copy(t.SpanID[:], d.Take(len(t.SpanID)))
	t.Flags = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context without ids")
	}
	return t
}

// checkTraces returns an error unless b is the trace contexts of so many rows, or empty.
func checkTraces(b []byte, rows int) error {
	if len(b) == 0 {
		return nil
	}
	d := &decoder{Reader: fields.Reader{Rest: b}}
	some := false
	// Each run takes some of the rows, until none is left.
	for left := uint64(rows); left > 0 && d.Err == nil; {
		n, has := d.Uvarint(), d.Byte()
		switch {
		case n == 0 || n > left:
			d.Fail("a trace of %d rows where %d are left", n, left)
		case has > 1:
			d.Fail("a trace of kind %d", has)
		case has == 1:
			d.trace()
			some = true
		}
		left -= min(n, left)
	}
	// Such rows have no traces at all: one form for what means the same.
	if !some {
		d.Fail("traces of rows that have none")
	}
	return d.end("traces")
}

// traceReader returns the trace context of one row after the other. Its input was checked by checkTraces, or is empty.
type traceReader struct {
	fields.Reader
	left  uint64 // rows of the present run
	trace event.Trace
}

// newTraceReader returns a reader of what checkTraces has checked.
func newTraceReader(b []byte) traceReader { return traceReader{Reader: fields.Reader{Rest: b}} }

// next returns the trace context of the next row.
func (r *traceReader) next() event.Trace {
	if r.left == 0 {
		// After the last run, or without any, the rest has none.
		if len(r.Rest) == 0 {
			return event.Trace{}
		}
		r.left, r.trace = r.Uvarint(), event.Trace{}
		if r.Byte() == 1 {
			d := decoder{Reader: r.Reader}
			r.trace = d.trace()
			r.Rest = d.Rest
		}
	}
	r.left--
	return r.trace
}

// EachTrace calls yield with each run of rows that have the same trace context, of the traces of so many rows as a Header
// or a Packet has them: its first row, and how many there are. Rows without one are left out, and it yields nothing of
// bytes that are not traces.
func EachTrace(traces []byte, rows int, yield func(first, rows int, t event.Trace)) {
	if checkTraces(traces, rows) != nil {
		return
	}
	r := newTraceReader(traces)
	for row := 0; len(r.Rest) > 0; {
		t := r.next()
		// The run is yielded as a whole, so its other rows are skipped.
		same := 1 + int(r.left)
		r.left = 0
		if t.Valid() {
			yield(row, same, t)
		}
		row += same
	}
}
