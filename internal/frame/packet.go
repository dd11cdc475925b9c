package frame

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// Packet is the events of one request as a client sends them: a block's body and
// what is needed to decode it. A node that finds every event in the form in which
// the log stores events puts the body into the log unchanged.
type Packet struct {
	Rows    int
	Types   []string // each once, in order of first use
	Sources []string
	NoDedup []byte // bit i%8 of byte i/8: row i is not deduplicated; may be shorter
	Body    []byte // as block.go draws it
	// Traces are the rows' trace contexts, as trace.go draws them; empty if no row has one. They are beside the body, so
	// that a node or a reader that knows none reads the rest.
	Traces []byte
}

// scratch is the memory in which events are encoded before they are compressed.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack encodes events and compresses them. It does not normalise them.
func Pack(events []event.Event) Packet {
	p := Packet{Rows: len(events)}
	// Number the types and sources, and note which rows are not deduplicated.
	var d dictionaries
	var traces traceRuns
	for i := range events {
		d.add(string(events[i].Type), events[i].Source)
		traces.add(i, &events[i].Trace)
		if events[i].NoDedup {
			if p.NoDedup == nil {
				p.NoDedup = make([]byte, (len(events)+7)/8)
			}
			p.NoDedup[i/8] |= 1 << (i % 8)
		}
	}
	p.Types, p.Sources = d.types.list, d.sources.list
	p.Traces = traces.appendTo(nil, len(events))

	// The body: the rows' indexes into types and sources, then their records.
	lent := scratch.Get().(*[]byte)
	raw := d.appendIndexes((*lent)[:0])
	for i := range events {
		raw = appendRecord(raw, &events[i])
	}
	p.Body = appendBody(nil, raw, true)
	*lent = raw
	scratch.Put(lent)
	return p
}

// Opened is a packet whose body is decompressed.
type Opened struct {
	packet         *Packet
	types, sources []uint32 // of each row: indexes into the packet's lists
	records        []byte   // of all rows, one after the other
}

// Open decompresses a packet, and refuses one that takes more than maxBytes then.
func (p *Packet) Open(maxBytes int) (*Opened, error) {
	if p.Rows < 1 || p.Rows > MaxRows {
		return nil, fmt.Errorf("packet: %w: %d rows", ErrCorrupt, p.Rows)
	}
	// The size is a claim, which decompress holds the body to.
	if size := RawSize(p.Body); size > maxBytes {
		return nil, fmt.Errorf("packet: %w: %d bytes, the limit is %d", ErrTooLarge, size, maxBytes)
	}
	if err := checkTraces(p.Traces, p.Rows); err != nil {
		return nil, err
	}
	raw, err := decompress(p.Body)
	if err != nil {
		return nil, err
	}
	d := &decoder{Reader: fields.Reader{Rest: raw}}
	if p.Rows > len(raw)/minRecordBytes {
		d.Fail("a body of %d bytes for %d rows", len(raw), p.Rows)
		return nil, d.end("packet")
	}
	// The indexes are checked here, so Range need not check them for each row.
	o := &Opened{packet: p}
	o.types = d.indexes(p.Rows, len(p.Types))
	o.sources = d.indexes(p.Rows, len(p.Sources))
	if d.Err != nil {
		return nil, d.end("packet")
	}
	o.records = d.Rest
	return o, nil
}

// Rows returns the number of events.
func (o *Opened) Rows() int { return o.packet.Rows }

// Each calls fn with each row's event, in order, until fn returns an error. The
// event is valid during the call; its strings and payload remain valid.
func (o *Opened) Each(fn func(row int, e *event.Event) error) error {
	return o.Range(0, o.packet.Rows, fn)
}

// Range is Each for the rows [from, to). It decodes the rows before them too, since only
// that shows where a row begins.
func (o *Opened) Range(from, to int, fn func(row int, e *event.Event) error) error {
	// The strings share the memory of records, which is never written to again.
	view := unsafe.String(unsafe.SliceData(o.records), len(o.records))
	d := &decoder{Reader: fields.Reader{Rest: o.records}, view: view}
	traces := newTraceReader(o.packet.Traces)
	var e event.Event
	for i := range to {
		e = event.Event{Type: event.Type(o.packet.Types[o.types[i]]), Source: o.packet.Sources[o.sources[i]]}
		if len(o.packet.Traces) > 0 {
			e.Trace = traces.next()
		}
		e.NoDedup = i/8 < len(o.packet.NoDedup) && o.packet.NoDedup[i/8]&(1<<(i%8)) != 0
		d.record(&e)
		if d.Err != nil {
			break
		}
		// A row before the range is decoded to get past it.
		if i < from {
			continue
		}
		if err := fn(i, &e); err != nil {
			return err
		}
	}
	if to < o.packet.Rows && d.Err == nil {
		return nil // records follow
	}
	return d.end("packet")
}

// Batch returns a batch of the packet's body. The caller adds each row, in order, with Keep
// and Join; rows is how many it will add.
func (o *Opened) Batch(rows int) *Batch {
	return &Batch{
		rows:    make([]Row, 0, rows),
		records: o.records,
		body:    o.packet.Body,
		types:   o.packet.Types,
		sources: o.packet.Sources,
	}
}
