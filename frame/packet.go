package frame

import (
	"fmt"
	"sync"
	"unsafe"

	"github.com/ringrift/ringlog/event"
)

// Packet is the events of one request as a client sends them: a block's body with
// what is needed to read it. A node that finds every event in the form in which it
// is stored puts the body into the log as it is.
type Packet struct {
	Rows    int
	Types   []string // each once, in order of first use
	Sources []string
	NoDedup []byte // bit i%8 of byte i/8 is row i: appended whatever its content; may be shorter
	Body    []byte // as block.go draws it
}

// scratch lends the memory in which events are laid out before they are compressed.
var scratch = sync.Pool{New: func() any { return new([]byte) }}

// Pack lays events out and compresses them. They are sent as they are.
func Pack(events []event.Event) Packet {
	p := Packet{Rows: len(events)}
	var d dictionaries
	for i := range events {
		d.add(string(events[i].Type), events[i].Source)
		if events[i].NoDedup {
			if p.NoDedup == nil {
				p.NoDedup = make([]byte, (len(events)+7)/8)
			}
			p.NoDedup[i/8] |= 1 << (i % 8)
		}
	}
	p.Types, p.Sources = d.types.list, d.sources.list
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

// Opened is a packet whose body has been decompressed and measured.
type Opened struct {
	packet         *Packet
	types, sources []uint32
	records        []byte
}

// Open decompresses a packet to at most maxBytes.
func (p *Packet) Open(maxBytes int) (*Opened, error) {
	if p.Rows < 1 || p.Rows > MaxRows {
		return nil, fmt.Errorf("frame: packet: %w: %d rows", ErrCorrupt, p.Rows)
	}
	if size := RawSize(p.Body); size > maxBytes {
		return nil, fmt.Errorf("frame: packet: %w: %d bytes, the limit is %d", ErrTooLarge, size, maxBytes)
	}
	raw, err := decompress(p.Body)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: raw}
	if p.Rows > len(raw)/minRecordBytes {
		d.fail("a body of %d bytes for %d rows", len(raw), p.Rows)
		return nil, d.end("packet")
	}
	o := &Opened{packet: p, types: d.indexes(p.Rows, len(p.Types)), sources: d.indexes(p.Rows, len(p.Sources))}
	if d.err != nil {
		return nil, d.end("packet")
	}
	o.records = d.b
	return o, nil
}

// Rows returns the number of events.
func (o *Opened) Rows() int { return o.packet.Rows }

// Each calls fn with each row's event, in order, until it returns an error. The
// event is valid during the call; its strings and payload stay.
func (o *Opened) Each(fn func(row int, e *event.Event) error) error {
	return o.Range(0, o.packet.Rows, fn)
}

// Range is Each for the rows [from, to). Rows before them are read too, to find where
// they begin.
func (o *Opened) Range(from, to int, fn func(row int, e *event.Event) error) error {
	d := &decoder{b: o.records, view: unsafe.String(unsafe.SliceData(o.records), len(o.records))} // never written to again
	var e event.Event
	for i := range to {
		e = event.Event{Type: event.Type(o.packet.Types[o.types[i]]), Source: o.packet.Sources[o.sources[i]]}
		e.NoDedup = i/8 < len(o.packet.NoDedup) && o.packet.NoDedup[i/8]&(1<<(i%8)) != 0
		d.record(&e)
		if d.err != nil {
			break
		}
		if i < from {
			continue
		}
		if err := fn(i, &e); err != nil {
			return err
		}
	}
	if to < o.packet.Rows && d.err == nil {
		return nil
	}
	return d.end("packet")
}

// Batch returns a batch of the packet's body, whose rows come with Keep and Join, each
// and in order. It has room for so many.
func (o *Opened) Batch(rows int) *Batch {
	return &Batch{rows: make([]Row, 0, rows), records: o.records, body: o.packet.Body, types: o.packet.Types, sources: o.packet.Sources}
}
