package frame

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
	"unsafe"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// A block is the events of one frame in three parts: the state machine decides by
// the columns alone, and a reader needs only the header and the body.
//
//	header   uvarint  rows, all of the frame's events
//	         strings  types, each once, in order of first use
//	         strings  sources, each once
//	         bytes    bloom filter of the keys
//	         bytes    bloom filter of the correlation ids
//	         rest     the rows' trace contexts, see trace.go; nothing where no row has one
//
//	columns  rows     one byte each: how the row deduplicates (DedupKind)
//	         rows     uvarint each: index into types
//	         rows     uvarint each: index into sources
//	         rows*16  dedup keys
//	         n*8      content prefix, for the rows of kind DedupID only
//	         n*16     keys of the type's policy, for the rows of kind DedupTypeFields only
//
//	body     1        codec: 0 none, 1 zstd, 2 s2
//	         4        CRC-32C of everything after it, little endian
//	         uvarint  length once decompressed
//	         rest     compressed: rows type indexes, rows source indexes, then
//	                  the records one after the other
//
//	record   1        which optional fields follow (the has… bits below)
//	         varint   time, Unix nanoseconds
//	         strings  key, correlation id, causation id, dedup id, original type, value
//	         bytes    payload

const (
	// MaxRows bounds the events of one frame.
	MaxRows = 1 << 16
	// MaxBlockBytes bounds a block once decompressed.
	MaxBlockBytes = 32 << 20

	keySize     = 16                  // of a dedup key
	contentSize = 8                   // of a content prefix
	minRowBytes = 1 + 1 + 1 + keySize // the least that a row takes of the columns
	// minRecordBytes is the least that a row takes of a body: two indexes, its flags
	// and the payload's length.
	minRecordBytes = 4
)

// The bits of a record's first byte, in the order in which their fields follow it.
const (
	hasTime = 1 << iota
	hasKey
	hasCorrelation
	hasCausation
	hasDedupID
	hasOriginal
	hasValue
	isForeign
)

// DedupKind says what a row's key is derived from.
type DedupKind byte

// The kinds of dedup key.
const (
	DedupOff     DedupKind = 0 // never suppressed; the key is that of DedupContent
	DedupContent DedupKind = 1 // the first 16 bytes of the content hash
	DedupID      DedupKind = 2 // from a hash of the dedup id that the producer set

	// By the policy of the event's type. The row's key is that of DedupContent, so a retry that is sent under another
	// policy has the same one. A block has these from LevelDedup on.
	DedupTypeOff     DedupKind = 3 // never suppressed
	DedupTypeContent DedupKind = 4 // compared by its key, with what the policy has accepted
	DedupTypeFields  DedupKind = 5 // the same, by a key of its own: a hash of some payload fields
)

// Key identifies an event for deduplication.
type Key [keySize]byte

// Row is what the state machine sees of an event.
type Row struct {
	Kind    DedupKind
	Key     Key
	Content [contentSize]byte // prefix of the content hash, for DedupID rows
	Type    string
	Source  string
}

// Batch is the events of one request, encoded once, by the node that receives the request.
type Batch struct {
	// Policies decide how a row deduplicates whose event does not say so; nil is by content. Set before the first row.
	Policies *event.DedupPolicies

	// The type of the row before, and what its policy asks for: most events of a batch have the type of the one before.
	last event.Type
	rule *event.DedupRule

	rows       []Row
	policyKeys []Key  // of the rows of kind DedupTypeFields
	records    []byte // one after the other; in a packet's batch those of its body
	traces     traceRuns
	keys       []uint64 // Bloom hashes of keys
	chains     []uint64 // Bloom hashes of correlation ids

	// In a batch that was sent as a packet: the packet's body, and the lists into which the
	// body's indexes point.
	body           []byte
	types, sources []string
}

// Len returns the number of events.
func (b *Batch) Len() int { return len(b.rows) }

// Bytes returns about how much the batch takes in memory and in a frame before
// compression.
func (b *Batch) Bytes() int {
	return len(b.records) + len(b.body) + len(b.rows)*minRowBytes + len(b.policyKeys)*keySize +
		len(b.traces)*(traceSize+2)
}

// aloneFrom is the size from which on a packet's records are worth a frame of their own.
const aloneFrom = 16 << 10

// Alone reports whether the batch should travel in a frame of its own, where its body is used
// unchanged.
func (b *Batch) Alone() bool { return len(b.body) > 0 && len(b.records) >= aloneFrom }

// Add appends an event that a Policy has normalised, with its content hash.
func (b *Batch) Add(e *event.Event, hash event.Hash) {
	b.addRow(e, hash)
	b.records = appendRecord(b.records, e)
}

// Keep is Add for an event that the packet's body has in the same form.
func (b *Batch) Keep(e *event.Event, hash event.Hash) { b.addRow(e, hash) }

// Join adds the rows of another batch of the same packet's body.
func (b *Batch) Join(other *Batch) {
	b.traces.join(len(b.rows), other)
	b.rows = append(b.rows, other.rows...)
	b.policyKeys = append(b.policyKeys, other.policyKeys...)
	b.keys = append(b.keys, other.keys...)
	b.chains = append(b.chains, other.chains...)
}

// addRow appends an event's row and hashes, not its record.
func (b *Batch) addRow(e *event.Event, hash event.Hash) {
	// Without a dedup id, the content itself is the key.
	row := Row{Kind: DedupContent, Key: Key(hash[:keySize]), Type: string(e.Type), Source: e.Source}
	switch {
	case e.NoDedup:
		row.Kind = DedupOff
	case e.DedupID != "":
		row.Kind = DedupID
		row.Key = KeyOfID(e.DedupID)
		row.Content = [contentSize]byte(hash[:contentSize])
	case b.Policies != nil:
		b.byPolicy(&row, e)
	}
	b.traces.add(len(b.rows), &e.Trace)
	b.rows = append(b.rows, row)
	b.addHashes(e)
}

// byPolicy has a row deduplicate as the policy of its type says.
func (b *Batch) byPolicy(row *Row, e *event.Event) {
	if e.Type != b.last {
		b.last, b.rule = e.Type, b.Policies.Of(e.Type)
	}
	switch r := b.rule; {
	case r == nil: // by content, within the setting dedup.window
	case r.Mode == event.DedupOff:
		row.Kind = DedupTypeOff
	case r.Mode == event.DedupFields:
		// An event without any of the fields is compared by its content: it has nothing else to be compared by.
		row.Kind = DedupTypeContent
		if key, some := r.Key(e.Payload); some {
			row.Kind = DedupTypeFields
			b.policyKeys = append(b.policyKeys, Key(key[:keySize]))
		}
	default:
		row.Kind = DedupTypeContent
	}
}

// addHashes notes the event's key and correlation id for the Bloom filters.
func (b *Batch) addHashes(e *event.Event) {
	if e.Key != "" {
		b.keys = append(b.keys, bloomHash(e.Key))
	}
	if e.CorrelationID != "" {
		b.chains = append(b.chains, bloomHash(e.CorrelationID))
	}
}

// KeyOfID returns the dedup key of a producer's dedup id. Its prefix keeps it
// apart from every content key.
func KeyOfID(id string) Key {
	sum := sha256.Sum256(append([]byte("dedup_id\x00"), id...))
	return Key(sum[:keySize])
}

// valueOf returns the event's value where it is not the one that the type implies.
func valueOf(e *event.Event) string {
	plain := event.Event{Type: e.Type}
	if e.Value == "" || e.Value == plain.EffectiveValue() {
		return ""
	}
	return e.Value
}

// appendRecord appends an event as a record.
func appendRecord(b []byte, e *event.Event) []byte {
	at := len(b)
	b = append(b, 0)
	var has byte
	if !e.Time.IsZero() {
		has |= hasTime
		b = binary.AppendVarint(b, e.Time.UnixNano())
	}
	optional := [...]string{e.Key, e.CorrelationID, e.CausationID, e.DedupID, string(e.Original), valueOf(e)}
	for i, s := range optional {
		if s != "" {
			has |= hasKey << i
			b = fields.Append(b, s)
		}
	}
	if e.Foreign {
		has |= isForeign
	}
	b[at] = has // which fields follow is known only now
	return fields.Append(b, e.Payload)
}

// record reads what appendRecord wrote. It sets no field that the record does not have.
func (d *decoder) record(e *event.Event) {
	has := d.Byte()
	if has&hasTime != 0 {
		e.Time = time.Unix(0, d.Varint()).UTC()
	}
	// In the order of their bits.
	optional := [...]*string{&e.Key, &e.CorrelationID, &e.CausationID, &e.DedupID, &e.Original, &e.Value}
	for i, s := range optional {
		if has&(hasKey<<i) != 0 {
			*s = d.string()
		}
	}
	e.Foreign = has&isForeign != 0
	e.Payload = d.Bytes()
}

// Header is the part of a block that says what the block may contain.
type Header struct {
	Rows         int      // suppressed ones too
	Types        []string // each once
	Sources      []string // each once
	keys         bloom    // of the keys of all events
	correlations bloom    // of their correlation ids
	traces       []byte   // of the rows, as trace.go draws them; empty where no row has one
}

// Traces returns the rows' trace contexts, as a Packet has them.
func (h *Header) Traces() []byte { return h.traces }

// MayContain reports whether a block may have an event that the matcher accepts;
// false is certain.
func (h *Header) MayContain(m *event.Matcher) bool {
	return anyOf(h.Types, m.MatchType) && anyOf(h.Sources, m.MatchSource) &&
		h.keys.mayHaveAny(m.Keys()) && h.correlations.mayHaveAny(m.CorrelationIDs())
}

// anyOf reports whether match accepts one of the strings, or there are none.
func anyOf(list []string, match func(string) bool) bool {
	for _, s := range list {
		if match(s) {
			return true
		}
	}
	return len(list) == 0
}

// DecodeHeader reads a block's header.
func DecodeHeader(b []byte) (*Header, error) {
	d := &decoder{Reader: fields.Reader{Rest: b}}
	h := &Header{}
	// The number of rows bounds what the columns and the body may take.
	rows := d.Uvarint()
	if rows == 0 || rows > MaxRows {
		d.Fail("%d rows in a block", rows)
	}
	h.Rows = int(rows)
	h.Types, h.Sources = d.strings(), d.strings()
	h.keys, h.correlations = bloom(d.Bytes()), bloom(d.Bytes())
	if d.Err != nil {
		return h, d.failure("block header")
	}
	h.traces = d.Rest
	return h, checkTraces(h.traces, h.Rows)
}

// Columns are what the state machine decides by.
type Columns struct {
	kinds      []byte   // a DedupKind each
	types      []uint32 // indexes into the header's types
	sources    []uint32 // indexes into the header's sources
	keys       []byte   // keySize each
	contents   []byte   // contentSize for each DedupID row
	policyKeys []byte   // keySize for each DedupTypeFields row
	nth        []uint32 // the index of such a row into contents or policyKeys; nil if there are none
}

// Len returns the number of rows.
func (c *Columns) Len() int { return len(c.kinds) }

// KindAt returns how row i deduplicates.
func (c *Columns) KindAt(i int) DedupKind { return DedupKind(c.kinds[i]) }

// Keyed reports whether row i's key counts within the setting dedup.window, whatever the type of its event.
func (c *Columns) Keyed(i int) bool { return c.KindAt(i) == DedupContent || c.KindAt(i) == DedupID }

// ByPolicy reports whether row i is compared with what the policy of its type has accepted, by PolicyKeyAt.
func (c *Columns) ByPolicy(i int) bool {
	return c.KindAt(i) == DedupTypeContent || c.KindAt(i) == DedupTypeFields
}

// PolicyKeyAt returns the key by which row i is compared if ByPolicy.
func (c *Columns) PolicyKeyAt(i int) Key {
	if c.KindAt(i) != DedupTypeFields {
		return c.KeyAt(i)
	}
	return Key(c.policyKeys[int(c.nth[i])*keySize:][:keySize])
}

// KeyAt returns row i's dedup key.
func (c *Columns) KeyAt(i int) Key { return Key(c.keys[i*keySize:][:keySize]) }

// TypeAt returns row i's index into the header's types.
func (c *Columns) TypeAt(i int) int { return int(c.types[i]) }

// SourceAt returns row i's index into the header's sources.
func (c *Columns) SourceAt(i int) int { return int(c.sources[i]) }

// ContentAt returns the content prefix of row i: that of the key, or, for a DedupID
// row, the one that is stored beside the key.
func (c *Columns) ContentAt(i int) [contentSize]byte {
	if c.KindAt(i) != DedupID {
		return [contentSize]byte(c.keys[i*keySize:][:contentSize])
	}
	return [contentSize]byte(c.contents[int(c.nth[i])*contentSize:][:contentSize])
}

// Block is the encoded form of a block, as it travels and is stored: Shape is what the header
// says, and the three parts are as drawn above.
type Block struct {
	Shape                 Shape
	Header, Columns, Body []byte
}

// Shape is how many rows, types and sources a block has, which is what decoding its
// columns needs of the header.
type Shape struct{ Rows, Types, Sources int }

// Shape returns the header's counts.
func (h *Header) Shape() Shape { return Shape{h.Rows, len(h.Types), len(h.Sources)} }

// DecodeColumns reads the columns of a block of the given shape.
func DecodeColumns(b []byte, s Shape) (*Columns, error) {
	d := &decoder{Reader: fields.Reader{Rest: b}}
	if s.Rows > len(b)/minRowBytes {
		d.Fail("columns of %d bytes for %d rows", len(b), s.Rows)
		return nil, d.end("columns")
	}

	// The kinds say how many content prefixes and keys of policies there are, and which row has which.
	c := &Columns{kinds: d.Take(s.Rows)}
	var ids, ofPolicies int
	for i, k := range c.kinds {
		count := &ids
		switch DedupKind(k) {
		case DedupOff, DedupContent, DedupTypeOff, DedupTypeContent:
			continue
		case DedupID:
		case DedupTypeFields:
			count = &ofPolicies
		default:
			return nil, fmt.Errorf("columns: dedup kind %d: %w", k, ErrUnsupported)
		}
		if c.nth == nil {
			c.nth = make([]uint32, s.Rows)
		}
		c.nth[i] = uint32(*count)
		*count++
	}

	// The other columns have one entry a row.
	c.types = d.indexes(s.Rows, s.Types)
	c.sources = d.indexes(s.Rows, s.Sources)
	c.keys = d.Take(s.Rows * keySize)
	c.contents = d.Take(ids * contentSize)
	c.policyKeys = d.Take(ofPolicies * keySize)
	return c, d.end("columns")
}

// indexes reads n indexes, each less than below.
func (d *decoder) indexes(n, below int) []uint32 {
	list := make([]uint32, n)
	// A list of this length cannot be larger than the input: the callers have compared n with its
	// size.
	for i := range list {
		v := d.Uvarint()
		if v >= uint64(below) {
			d.Fail("index %d into a list of %d", v, below)
			return list
		}
		list[i] = uint32(v)
	}
	return list
}

// DecodeEvents decompresses a block's body and calls yield with each row's event,
// in order, until yield returns false. The caller sets offsets, term and append time.
// Strings and payloads share one fresh buffer for the whole block.
func DecodeEvents(h *Header, body []byte, yield func(row int, e event.Event) bool) error {
	raw, err := decompress(body)
	if err != nil {
		return err
	}
	d := &decoder{Reader: fields.Reader{Rest: raw}}
	if h.Rows > len(raw)/minRecordBytes {
		d.Fail("a body of %d bytes for %d rows", len(raw), h.Rows)
		return d.end("block")
	}
	types := d.indexes(h.Rows, len(h.Types))
	sources := d.indexes(h.Rows, len(h.Sources))

	// The strings share the memory of raw, which is never written to again.
	d.view = unsafe.String(unsafe.SliceData(d.Rest), len(d.Rest))
	traces := newTraceReader(h.traces)
	for i := range h.Rows {
		if d.Err != nil {
			break
		}
		e := event.Event{Type: event.Type(h.Types[types[i]]), Source: h.Sources[sources[i]]}
		if len(h.traces) > 0 {
			e.Trace = traces.next()
		}
		d.record(&e)
		if d.Err == nil && !yield(i, e) {
			return nil
		}
	}
	return d.end("block")
}

// Verify checks a body's checksum without decompressing it.
func Verify(body []byte) error {
	if len(body) < 6 {
		return fmt.Errorf("block: %w: a body of %d bytes", ErrCorrupt, len(body))
	}
	want := binary.LittleEndian.Uint32(body[1:5])
	if got := crc32.Checksum(body[5:], castagnoli); got != want {
		return fmt.Errorf("block: %w: checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return nil
}

// RawSize returns how many bytes a body claims to take once decompressed, at most
// MaxBlockBytes.
func RawSize(body []byte) int {
	if len(body) < 6 {
		return 0
	}
	size, _ := binary.Uvarint(body[5:])
	return int(min(size, MaxBlockBytes))
}

// decompress returns the content of a body. What the body claims is checked before anything
// is allocated for it.
func decompress(body []byte) ([]byte, error) {
	if err := Verify(body); err != nil {
		return nil, err
	}
	d := &decoder{Reader: fields.Reader{Rest: body[5:]}}
	size := d.Uvarint()
	if size > MaxBlockBytes {
		d.Fail("a block of %d bytes", size)
	}
	if d.Err != nil {
		return nil, d.failure("block")
	}
	// A body that is not compressed is returned as it is: it shares the input's memory.
	switch body[0] {
	case codecNone:
		if uint64(len(d.Rest)) != size {
			return nil, fmt.Errorf("block: %w: %d bytes, want %d", ErrCorrupt, len(d.Rest), size)
		}
		return d.Rest, nil
	case codecZstd:
		return unzstd(d.Rest, int(size))
	case codecS2:
		return uns2(d.Rest, int(size))
	default:
		return nil, fmt.Errorf("block: codec %d: %w", body[0], ErrUnsupported)
	}
}
