package frame

import (
	"fmt"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Request is what one caller wants decided as a unit: a command and, for a
// Publish, its events.
type Request struct {
	Command Command
	Batch   *Batch
}

// Bytes returns about how large the request is.
func (r Request) Bytes() int {
	const overhead = 64
	if r.Batch == nil {
		return overhead
	}
	return overhead + r.Batch.Bytes()
}

// Encode returns the request as a frame of its own, which is how a follower
// forwards it to the leader.
func (r Request) Encode() []byte {
	var b Builder
	b.Add(r.Command, r.Batch)
	return b.Encode(Seal{Time: time.Unix(0, 0), Compress: true})
}

// DecodeRequest reads what Encode wrote.
func DecodeRequest(data []byte) (Request, error) {
	f, err := Decode(data)
	if err != nil {
		return Request{}, err
	}
	if len(f.Commands) != 1 {
		return Request{}, fmt.Errorf("frame: request: %w: %d commands", ErrCorrupt, len(f.Commands))
	}
	r := Request{Command: f.Commands[0]}
	if f.Header != nil {
		r.Batch, err = f.batch()
	}
	return r, err
}

// batch takes a frame's block apart again, checking every record on the way.
func (f *Frame) batch() (*Batch, error) {
	b := &Batch{rows: make([]Row, 0, f.Header.Rows), body: f.Body, types: f.Header.Types, sources: f.Header.Sources}
	raw, err := decompress(f.Body)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: raw}
	if f.Header.Rows > len(raw)/minRecordBytes {
		d.fail("a body of %d bytes for %d rows", len(raw), f.Header.Rows)
		return nil, d.end("request")
	}
	d.indexes(f.Header.Rows, len(f.Header.Types))
	d.indexes(f.Header.Rows, len(f.Header.Sources))
	b.records = d.b
	for i := range f.Header.Rows {
		b.rows = append(b.rows, f.row(i))
		var e event.Event
		d.record(&e)
		b.addHashes(&e)
	}
	return b, d.end("request")
}

func (f *Frame) row(i int) Row {
	c := f.Columns
	r := Row{Kind: c.KindAt(i), Key: c.KeyAt(i), Type: f.Header.Types[c.TypeAt(i)], Source: f.Header.Sources[c.SourceAt(i)]}
	if r.Kind == DedupID {
		r.Content = c.ContentAt(i)
	}
	return r
}
