package frame

import (
	"crypto/sha256"
	"fmt"
	"time"
	"unsafe"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// Request is what the state machine decides as a unit for one caller: a command
// and, for a Publish, its events.
type Request struct {
	Command Command
	Batch   *Batch

	encoded []byte // the command as it travels in a frame; nil before Prepare
}

// Prepare returns the request with its command encoded, so that no later step encodes it again:
// not its size, nor the frame that it goes into, nor its way to the leader. A command that cannot be
// decoded is an error: its entry would stop every node, now and after each restart. A request
// that is prepared already is returned as it is.
func (r Request) Prepare() (Request, error) {
	if r.encoded != nil {
		return r, nil
	}
	r.encoded = appendCommand(nil, r.Command)
	// Decode the command as every node will.
	kind, body := Kind(r.encoded[0]), fields.Reader{Rest: r.encoded[1:]}
	if _, _, err := decodeCommand(kind, body.Bytes()); err != nil {
		return r, err
	}
	if r.Batch != nil && !kind.Publishes() {
		return r, fmt.Errorf("request: %w: %d events of a command that publishes none", ErrCorrupt, r.Batch.Len())
	}
	return r, nil
}

// ID identifies a request to those that see its retries: equal requests have equal ids. own is false if equal
// requests may be different ones, as those of a caller that has neither a producer nor deduplication.
func (r Request) ID() (id Key, own bool) {
	p, publishes := r.Command.(Publish)
	own = !publishes || p.Producer != "" || r.Batch != nil
	h := sha256.New()
	encoded := r.encoded
	if encoded == nil {
		encoded = appendCommand(nil, r.Command)
	}
	h.Write(encoded)
	if r.Batch != nil {
		// A producer uses the number of a refused request again, so the events count, too.
		for i := range r.Batch.rows {
			row := &r.Batch.rows[i]
			h.Write(row.Key[:])
			suppressible := row.Kind != DedupOff && row.Kind != DedupTypeOff
			own = own && (suppressible || p.Producer != "")
		}
	}
	return Key(h.Sum(nil)[:keySize]), own
}

// Bytes returns about how many bytes a prepared request takes in memory and in a frame.
func (r Request) Bytes() int {
	const overhead = 64
	bytes := overhead + len(r.encoded)
	if r.Batch != nil {
		bytes += r.Batch.Bytes()
	}
	return bytes
}

// Encode returns the request as a frame of its own, which is how a follower
// forwards it to the leader.
func (r Request) Encode() []byte {
	var b Builder
	b.AddRequest(r)
	return b.Encode(Seal{Time: time.Unix(0, 0), Compress: true})
}

// DecodeRequest reads what Encode wrote.
func DecodeRequest(data []byte) (Request, error) { return OpenRequest(data, nil, nil) }

// OpenRequest is DecodeRequest for bytes from an untrusted sender: admit sees each event, may
// refuse it, and returns its content hash. The columns and Bloom filters of the batch are made
// from the events themselves and by policies; those that were sent are ignored.
func OpenRequest(
	data []byte, policies *event.DedupPolicies, admit func(e *event.Event) (event.Hash, error),
) (Request, error) {
	f, err := Decode(data)
	if err != nil {
		return Request{}, err
	}
	if len(f.Commands) != 1 {
		return Request{}, fmt.Errorf("request: %w: %d commands", ErrCorrupt, len(f.Commands))
	}
	r := Request{Command: f.Commands[0]}
	// A command without events has no block.
	if f.Header != nil {
		r.Batch, err = f.batch(policies, admit)
	}
	return r, err
}

// UnfoldedSize returns about how many bytes an encoded request claims to take once it is
// decoded, and 0 for bytes that are not a request. It allocates nothing.
func UnfoldedSize(data []byte) int {
	if len(data) < headerSize {
		return 0
	}
	d := &decoder{Reader: fields.Reader{Rest: data[headerSize:]}}

	// Skip what comes before the block: proposer, digest and commands.
	d.Bytes()
	if d.Uvarint() > 0 {
		d.Take(DigestSize)
	}
	for range d.Count(2) {
		d.Byte()
		d.Bytes()
	}

	// What is decoded takes the body, the lists of the header, and a Row for each event.
	header, columns, body := d.Bytes(), d.Bytes(), d.Bytes()
	if d.Err != nil {
		return 0
	}
	const perRow = int(unsafe.Sizeof(Row{})) + 32
	return RawSize(body) + 2*len(header) + len(columns)/minRowBytes*perRow
}

// batch makes a batch from a frame's block, and checks every record. Without an admit the rows
// are those of the columns.
func (f *Frame) batch(
	policies *event.DedupPolicies, admit func(e *event.Event) (event.Hash, error),
) (*Batch, error) {
	p := &Packet{Rows: f.Header.Rows, Types: f.Header.Types, Sources: f.Header.Sources, Body: f.Block.Body,
		Traces: f.Header.traces}
	o, err := p.Open(MaxBlockBytes)
	if err != nil {
		return nil, err
	}
	b := o.Batch(p.Rows)
	b.Policies = policies
	err = o.Each(func(i int, e *event.Event) error {
		// The sender's rows are trusted. What the Bloom filters are made of is not in the columns.
		if admit == nil {
			b.traces.add(len(b.rows), &e.Trace)
			b.rows = append(b.rows, f.row(i))
			if f.Columns.KindAt(i) == DedupTypeFields {
				b.policyKeys = append(b.policyKeys, f.Columns.PolicyKeyAt(i))
			}
			b.addHashes(e)
			return nil
		}
		// A record does not say whether its event is deduplicated.
		e.NoDedup = f.Columns.KindAt(i) == DedupOff
		hash, err := admit(e)
		if err == nil {
			b.Keep(e, hash)
		}
		return err
	})
	return b, err
}

// row returns row i of the frame's columns.
func (f *Frame) row(i int) Row {
	c := f.Columns
	// The header has each type and source once; the columns have their numbers.
	r := Row{
		Kind:   c.KindAt(i),
		Key:    c.KeyAt(i),
		Type:   f.Header.Types[c.TypeAt(i)],
		Source: f.Header.Sources[c.SourceAt(i)],
	}
	if r.Kind == DedupID {
		r.Content = c.ContentAt(i)
	}
	return r
}
