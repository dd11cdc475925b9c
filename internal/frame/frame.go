package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

const (
	magic0, magic1 = 'R', 'L' // the first two bytes of every frame

	// Version is the newest frame layout this build reads and writes.
	Version = 1

	crcAt      = 3  // where the checksum is
	headerSize = 15 // up to the proposer
)

// DigestSize is the length of a state digest, in bytes.
const DigestSize = 32

// Frame is one decoded Raft entry. Its byte slices point into the input.
type Frame struct {
	Time        time.Time // replicated time, set by the leader that proposed it
	Proposer    string    // the id of the node that did
	DigestIndex uint64    // the entry up to which Digest is the state's; 0 if there is none
	Digest      [DigestSize]byte
	Commands    []Command // in the order in which they are decided
	NotUTF8     []int     // indexes of commands with a string that is not UTF-8, which JSON cannot hold
	CRC         uint32    // of all that follows it in the frame

	// Block holds the events as they travel; Header and Columns are decoded from it. All are
	// zero when the frame has no event.
	Block   Block
	Header  *Header
	Columns *Columns
}

// Builder gathers requests until they make a frame. It is not safe for
// concurrent use. The zero Builder is ready.
type Builder struct {
	commands []byte // encoded, one after the other
	count    int
	only     *Batch       // the first batch, while it is the only one: it is not copied
	batch    Batch        // the rows of all batches, once there are several
	raw      []byte       // a block's body before it is compressed
	dict     dictionaries // of the types and sources of the block that is encoded
}

// Add appends a command; batch holds its events and is nil for any command but
// Publish. A batch must not change until the frame is encoded.
func (b *Builder) Add(c Command, batch *Batch) {
	b.commands = appendCommand(b.commands, c)
	b.count++
	b.addBatch(batch)
}

// AddRequest is Add for a request, which is not encoded again if it is prepared.
func (b *Builder) AddRequest(r Request) {
	if r.encoded == nil {
		b.Add(r.Command, r.Batch)
		return
	}
	b.commands = append(b.commands, r.encoded...)
	b.count++
	b.addBatch(r.Batch)
}

// addBatch adds a command's events. The first batch is copied only when a second one follows.
func (b *Builder) addBatch(batch *Batch) {
	if batch == nil {
		return
	}
	if b.only == nil && b.batch.Len() == 0 {
		b.only = batch
		return
	}
	// A second batch: the rows of both become the builder's own.
	if b.only != nil {
		b.batch.join(b.only)
		b.only = nil
	}
	b.batch.join(batch)
}

// join appends another batch's rows. The other batch stays as it is.
func (b *Batch) join(other *Batch) {
	b.traces.join(len(b.rows), other)
	b.rows = append(b.rows, other.rows...)
	b.policyKeys = append(b.policyKeys, other.policyKeys...)
	b.records = append(b.records, other.records...)
	b.keys = append(b.keys, other.keys...)
	b.chains = append(b.chains, other.chains...)
}

// events is the batch to encode.
func (b *Builder) events() *Batch {
	if b.only != nil {
		return b.only
	}
	return &b.batch
}

// appendCommand appends a command as a frame holds it: its kind, the length of its body, its body.
func appendCommand(b []byte, c Command) []byte {
	var scratch [64]byte
	return fields.Append(append(b, byte(c.Kind())), c.appendTo(scratch[:0]))
}

// Bytes returns about how large the frame is before compression.
func (b *Builder) Bytes() int { return len(b.commands) + b.events().Bytes() }

// Rows returns the number of events so far.
func (b *Builder) Rows() int { return b.events().Len() }

// Count returns the number of commands so far.
func (b *Builder) Count() int { return b.count }

// Seal says what a frame carries beside its commands.
type Seal struct {
	Time        time.Time
	Proposer    string // the id of the node
	DigestIndex uint64 // 0 when no digest is carried
	Digest      [DigestSize]byte
	Compress    bool // whether the block's body is compressed, where that helps
}

// Encode returns the frame and empties the builder. The frame has memory of its own.
func (b *Builder) Encode(s Seal) []byte {
	// Events compress to about a third; what does not fit grows the slice once.
	e := b.events()
	size := headerSize + len(b.commands) + max(len(e.body), len(e.records)/3) + e.Len()*(minRowBytes+1) + 256
	// The fixed header; seal fills the checksum in.
	out := make([]byte, headerSize, size)
	out[0], out[1], out[2] = magic0, magic1, Version
	binary.LittleEndian.PutUint64(out[7:], uint64(s.Time.UnixNano()))
	// What follows the fixed header has a length or is a varint.
	out = fields.Append(out, s.Proposer)
	out = binary.AppendUvarint(out, s.DigestIndex)
	if s.DigestIndex > 0 {
		out = append(out, s.Digest[:]...)
	}
	out = binary.AppendUvarint(out, uint64(b.count))
	out = append(out, b.commands...)
	out = b.appendBlock(out, s.Compress)
	seal(out)
	b.reset()
	return out
}

// seal puts the checksum into a frame that is otherwise complete.
func seal(data []byte) {
	binary.LittleEndian.PutUint32(data[crcAt:], crc32.Checksum(data[crcAt+4:], castagnoli))
}

// reset empties the builder and keeps its memory.
func (b *Builder) reset() {
	// The memory that is kept must not keep the strings of the rows.
	clear(b.batch.rows)
	kept := &b.batch
	*b = Builder{
		commands: b.commands[:0],
		raw:      b.raw[:0],
		dict:     b.dict,
		batch: Batch{
			rows:       kept.rows[:0],
			policyKeys: kept.policyKeys[:0],
			records:    kept.records[:0],
			traces:     kept.traces[:0],
			keys:       kept.keys[:0],
			chains:     kept.chains[:0],
		},
	}
	b.dict.reset()
}

// appendBlock appends the parts of the block, which are empty where no command has events.
func (b *Builder) appendBlock(out []byte, compress bool) []byte {
	e := b.events()
	if e.Len() == 0 {
		return append(out, 0, 0, 0)
	}
	block := b.block(e, compress)
	out = fields.Append(out, block.Header)
	out = fields.Append(out, block.Columns)
	return fields.Append(out, block.Body)
}

// EncodeBlock returns a batch as a block of its own, uncompressed: the form of
// what the cluster itself appends, equal on every node.
func EncodeBlock(batch *Batch) Block {
	var b Builder
	return b.block(batch, false)
}

// block encodes a batch. It numbers types and sources in the order of the rows.
func (b *Builder) block(e *Batch, compress bool) Block {
	// Header, columns and body all use these numbers.
	for i := range e.rows {
		b.dict.add(e.rows[i].Type, e.rows[i].Source)
	}
	return Block{
		Shape:   Shape{e.Len(), len(b.dict.types.list), len(b.dict.sources.list)},
		Header:  b.header(e),
		Columns: b.columns(e),
		Body:    b.body(e, compress),
	}
}

// body encodes the records. A packet's body is used unchanged where its indexes mean the same
// as the header's and compressing it would not help.
func (b *Builder) body(e *Batch, compress bool) []byte {
	final := !compress || len(e.body) < worthCompressing || e.body[0] != codecNone
	sameLists := slices.Equal(e.types, b.dict.types.list) && slices.Equal(e.sources, b.dict.sources.list)
	if len(e.body) > 0 && final && sameLists {
		return e.body
	}
	// Else it is made again from the records, with the header's numbers.
	b.raw = append(b.dict.appendIndexes(b.raw), e.records...)
	return appendBody(nil, b.raw, compress)
}

// header encodes what the block may contain: types, sources, and Bloom filters of keys and correlation ids. The trace
// contexts come last.
func (b *Builder) header(e *Batch) []byte {
	h := binary.AppendUvarint(nil, uint64(e.Len()))
	h = appendStrings(h, b.dict.types.list)
	h = appendStrings(h, b.dict.sources.list)
	h = fields.Append(h, newBloom(e.keys))
	h = fields.Append(h, newBloom(e.chains))
	return e.traces.appendTo(h, e.Len())
}

// columns encodes the rows column by column, as block.go draws them.
func (b *Builder) columns(e *Batch) []byte {
	// By column, as a column compresses and is read by itself.
	c := make([]byte, 0, e.Len()*(minRowBytes+contentSize))
	for i := range e.rows {
		c = append(c, byte(e.rows[i].Kind))
	}
	c = b.dict.appendIndexes(c)
	for i := range e.rows {
		c = append(c, e.rows[i].Key[:]...)
	}
	for i := range e.rows {
		// The key of any other row begins with its content prefix.
		if e.rows[i].Kind == DedupID {
			c = append(c, e.rows[i].Content[:]...)
		}
	}
	for i := range e.policyKeys {
		c = append(c, e.policyKeys[i][:]...)
	}
	return c
}

// dictionaries number the types and the sources of a block, and note each row's number.
type dictionaries struct{ types, sources dictionary }

// add notes the numbers of the next row's type and source.
func (d *dictionaries) add(typ, source string) {
	d.types.add(typ)
	d.sources.add(source)
}

// appendIndexes appends the rows' type indexes, then their source indexes.
func (d *dictionaries) appendIndexes(b []byte) []byte {
	return d.sources.appendIndexes(d.types.appendIndexes(b))
}

// reset forgets all strings and numbers, and keeps memory.
func (d *dictionaries) reset() {
	d.types.reset()
	d.sources.reset()
}

// dictionary numbers strings in the order of their first use.
type dictionary struct {
	list    []string       // by number
	number  map[string]int // of each string in list
	indexes []int          // the number of each string that was added
}

// add notes the number of the next row's string.
func (d *dictionary) add(s string) {
	// Most often it is the string of the row before.
	if n := len(d.indexes); n > 0 && d.list[d.indexes[n-1]] == s {
		d.indexes = append(d.indexes, d.indexes[n-1])
		return
	}
	n, known := d.number[s]
	if !known {
		if d.number == nil {
			d.number = make(map[string]int)
		}
		n = len(d.list)
		d.number[s] = n
		d.list = append(d.list, s)
	}
	d.indexes = append(d.indexes, n)
}

// appendIndexes appends the number of each string that was added.
func (d *dictionary) appendIndexes(b []byte) []byte {
	for _, n := range d.indexes {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// reset forgets the strings and the numbers. The list is dropped, so that it keeps no string.
func (d *dictionary) reset() {
	clear(d.number)
	d.list, d.indexes = nil, d.indexes[:0]
}

// Decode reads a frame; the result points into data. An error is ErrUnsupported for a version that this build does not
// know, else ErrCorrupt.
func Decode(data []byte) (*Frame, error) {
	if len(data) < headerSize || data[0] != magic0 || data[1] != magic1 {
		return nil, fmt.Errorf("%w: no frame header in %d bytes", ErrCorrupt, len(data))
	}

	// The checksum first, so that damage is not taken for another version. It does not cover the version itself.
	f := &Frame{CRC: binary.LittleEndian.Uint32(data[crcAt:])}
	if got := crc32.Checksum(data[crcAt+4:], castagnoli); got != f.CRC {
		return nil, fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, got, f.CRC)
	}
	if data[2] != Version {
		return nil, fmt.Errorf("version %d: %w", data[2], ErrUnsupported)
	}
	f.Time = time.Unix(0, int64(binary.LittleEndian.Uint64(data[7:]))).UTC()
	return f, f.decode(&decoder{Reader: fields.Reader{Rest: data[headerSize:]}})
}

// decode reads what follows the fixed header.
func (f *Frame) decode(d *decoder) error {
	f.Proposer = d.string()
	f.DigestIndex = d.Uvarint()
	if f.DigestIndex > 0 {
		copy(f.Digest[:], d.Take(DigestSize))
	}
	// Commands come first: they say how many events the block has to have.
	rows, err := f.decodeCommands(d)
	if err != nil {
		return err
	}
	f.Block.Header, f.Block.Columns, f.Block.Body = d.Bytes(), d.Bytes(), d.Bytes()
	if err := d.end("frame"); err != nil {
		return err
	}
	return f.decodeBlock(rows)
}

// decodeCommands decodes the commands and counts the events that they publish.
func (f *Frame) decodeCommands(d *decoder) (rows int, err error) {
	n := d.Count(2)
	f.Commands = make([]Command, 0, n)
	for range n {
		kind, body := Kind(d.Byte()), d.Bytes()
		// decode returns the error, which stays in d.
		if d.Err != nil {
			break
		}
		c, utf8, err := decodeCommand(kind, body)
		if err != nil {
			return 0, err
		}
		// The state machine refuses it; another command of the same entry is decided nevertheless.
		if !utf8 {
			f.NotUTF8 = append(f.NotUTF8, len(f.Commands))
		}
		// The block has the rows of all of them, in this order.
		if p, ok := c.(Publish); ok {
			rows += p.Count
		}
		f.Commands = append(f.Commands, c)
	}
	return rows, nil
}

// decodeBlock decodes header and columns, and compares the body's checksum. rows is how many
// events the commands publish.
func (f *Frame) decodeBlock(rows int) (err error) {
	b := &f.Block
	// Without a header there is no block, so nothing may need one.
	if len(b.Header) == 0 {
		if rows > 0 || len(b.Columns) > 0 || len(b.Body) > 0 {
			return fmt.Errorf("%w: %d events without a block", ErrCorrupt, rows)
		}
		*b = Block{}
		return nil
	}
	f.Header, err = DecodeHeader(b.Header)
	if err != nil {
		return err
	}
	if f.Header.Rows != rows {
		return fmt.Errorf("%w: a block of %d rows for commands of %d", ErrCorrupt, f.Header.Rows, rows)
	}
	b.Shape = f.Header.Shape()
	f.Columns, err = DecodeColumns(b.Columns, b.Shape)
	if err != nil {
		return err
	}
	// The body stays compressed until somebody reads the events.
	return Verify(b.Body)
}
