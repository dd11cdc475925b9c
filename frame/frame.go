package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"
)

const (
	magic0, magic1 = 'R', 'L'

	// Version is the newest frame layout this build reads and writes.
	Version = 1

	crcAt      = 3
	headerSize = 15
)

// DigestSize is the length of a state digest, in bytes.
const DigestSize = 32

// Frame is one decoded Raft entry. Its byte slices point into the input.
type Frame struct {
	Time        time.Time
	Proposer    string
	DigestIndex uint64
	Digest      [DigestSize]byte
	Commands    []Command
	CRC         uint32

	// The block's parts as they travel; all nil when the frame has no event.
	HeaderBytes, ColumnBytes, Body []byte
	Header                         *Header
	Columns                        *Columns
}

// Builder gathers requests until they make a frame. It is not safe for
// concurrent use. The zero Builder is ready.
type Builder struct {
	commands []byte
	count    int
	rows     []Row
	records  []byte
	keys     []uint64
	chains   []uint64
	raw      []byte
	dict     dictionaries
}

// Add appends a command; batch holds its events and is nil for any command but
// Publish.
func (b *Builder) Add(c Command, batch *Batch) {
	b.commands = append(b.commands, byte(c.Kind()))
	b.commands = appendSized(b.commands, c.appendTo)
	b.count++
	if batch != nil {
		b.rows = append(b.rows, batch.rows...)
		b.records = append(b.records, batch.records...)
		b.keys = append(b.keys, batch.keys...)
		b.chains = append(b.chains, batch.chains...)
	}
}

// appendSized appends what write appends, behind its length.
func appendSized(b []byte, write func([]byte) []byte) []byte {
	var scratch [64]byte
	body := write(scratch[:0])
	return appendBytes(b, body)
}

// Bytes returns about how large the frame is before compression.
func (b *Builder) Bytes() int { return len(b.commands) + len(b.records) + len(b.rows)*minRowBytes }

// Rows returns the number of events so far.
func (b *Builder) Rows() int { return len(b.rows) }

// Count returns the number of commands so far.
func (b *Builder) Count() int { return b.count }

// Seal says what a frame carries beside its commands.
type Seal struct {
	Time        time.Time
	Proposer    string
	DigestIndex uint64 // 0 when no digest is carried
	Digest      [DigestSize]byte
	Compress    bool
}

// Encode returns the frame and empties the builder.
func (b *Builder) Encode(s Seal) []byte {
	out := make([]byte, headerSize, headerSize+len(b.commands)+len(b.records)/3+len(b.rows)*minRowBytes+256)
	out[0], out[1], out[2] = magic0, magic1, Version
	binary.LittleEndian.PutUint64(out[7:], uint64(s.Time.UnixNano()))
	out = appendString(out, s.Proposer)
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

func (b *Builder) reset() {
	clear(b.rows)
	*b = Builder{commands: b.commands[:0], rows: b.rows[:0], records: b.records[:0],
		keys: b.keys[:0], chains: b.chains[:0], raw: b.raw[:0], dict: b.dict}
	b.dict.reset()
}

func (b *Builder) appendBlock(out []byte, compress bool) []byte {
	if len(b.rows) == 0 {
		return append(out, 0, 0, 0)
	}
	p := b.parts(compress)
	out = appendBytes(out, p.Header)
	out = appendBytes(out, p.Columns)
	return appendBytes(out, p.Body)
}

// Parts are the encoded parts of a block, as block.go draws them.
type Parts struct {
	Shape                 Shape
	Header, Columns, Body []byte
}

// EncodeBlock returns a batch as a block of its own, uncompressed: the form of
// what the cluster itself appends, equal on every node.
func EncodeBlock(batch *Batch) Parts {
	b := Builder{rows: batch.rows, records: batch.records, keys: batch.keys, chains: batch.chains}
	return b.parts(false)
}

func (b *Builder) parts(compress bool) Parts {
	for i := range b.rows {
		b.dict.add(&b.rows[i])
	}
	b.raw = b.dict.appendIndexes(b.raw)
	b.raw = append(b.raw, b.records...)
	return Parts{
		Shape:   Shape{len(b.rows), len(b.dict.types.list), len(b.dict.sources.list)},
		Header:  b.header(),
		Columns: b.columns(),
		Body:    appendBody(nil, b.raw, compress),
	}
}

func (b *Builder) header() []byte {
	h := binary.AppendUvarint(nil, uint64(len(b.rows)))
	h = appendStrings(h, b.dict.types.list)
	h = appendStrings(h, b.dict.sources.list)
	h = appendBytes(h, newBloom(b.keys))
	return appendBytes(h, newBloom(b.chains))
}

func (b *Builder) columns() []byte {
	c := make([]byte, 0, len(b.rows)*(minRowBytes+contentSize))
	for i := range b.rows {
		c = append(c, byte(b.rows[i].Kind))
	}
	c = b.dict.appendIndexes(c)
	for i := range b.rows {
		c = append(c, b.rows[i].Key[:]...)
	}
	for i := range b.rows {
		if b.rows[i].Kind == DedupID {
			c = append(c, b.rows[i].Content[:]...)
		}
	}
	return c
}

// dictionaries number the types and sources of a block.
type dictionaries struct{ types, sources dictionary }

func (d *dictionaries) add(r *Row) {
	d.types.add(r.Type)
	d.sources.add(r.Source)
}

func (d *dictionaries) appendIndexes(b []byte) []byte {
	return d.sources.appendIndexes(d.types.appendIndexes(b))
}

func (d *dictionaries) reset() {
	d.types.reset()
	d.sources.reset()
}

type dictionary struct {
	list    []string
	number  map[string]int
	indexes []int
}

func (d *dictionary) add(s string) {
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

func (d *dictionary) appendIndexes(b []byte) []byte {
	for _, n := range d.indexes {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func (d *dictionary) reset() {
	clear(d.number)
	d.list, d.indexes = d.list[:0], d.indexes[:0]
}

// Decode reads a frame; the result points into data.
func Decode(data []byte) (*Frame, error) {
	if len(data) < headerSize || data[0] != magic0 || data[1] != magic1 {
		return nil, fmt.Errorf("frame: %w: no frame header in %d bytes", ErrCorrupt, len(data))
	}
	f := &Frame{CRC: binary.LittleEndian.Uint32(data[crcAt:])}
	if got := crc32.Checksum(data[crcAt+4:], castagnoli); got != f.CRC {
		return nil, fmt.Errorf("frame: %w: checksum %08x, want %08x", ErrCorrupt, got, f.CRC)
	}
	if data[2] != Version {
		return nil, fmt.Errorf("frame: version %d: %w", data[2], ErrUnsupported)
	}
	f.Time = time.Unix(0, int64(binary.LittleEndian.Uint64(data[7:]))).UTC()
	return f, f.decode(&decoder{b: data[headerSize:]})
}

func (f *Frame) decode(d *decoder) error {
	f.Proposer = d.string()
	if f.DigestIndex = d.uvarint(); f.DigestIndex > 0 {
		copy(f.Digest[:], d.take(DigestSize))
	}
	rows, err := f.decodeCommands(d)
	if err != nil {
		return err
	}
	f.HeaderBytes, f.ColumnBytes, f.Body = d.bytes(), d.bytes(), d.bytes()
	if err := d.end("frame"); err != nil {
		return err
	}
	return f.decodeBlock(rows)
}

func (f *Frame) decodeCommands(d *decoder) (rows int, err error) {
	n := d.count(2)
	f.Commands = make([]Command, 0, n)
	for range n {
		kind, body := Kind(d.u8()), d.bytes()
		if d.err != nil {
			break
		}
		c, err := decodeCommand(kind, body)
		if err != nil {
			return 0, err
		}
		if p, ok := c.(Publish); ok {
			rows += p.Count
		}
		f.Commands = append(f.Commands, c)
	}
	return rows, nil
}

func (f *Frame) decodeBlock(rows int) (err error) {
	if len(f.HeaderBytes) == 0 {
		if rows > 0 || len(f.ColumnBytes) > 0 || len(f.Body) > 0 {
			return fmt.Errorf("frame: %w: %d events without a block", ErrCorrupt, rows)
		}
		f.HeaderBytes, f.ColumnBytes, f.Body = nil, nil, nil
		return nil
	}
	if f.Header, err = DecodeHeader(f.HeaderBytes); err != nil {
		return err
	}
	if f.Header.Rows != rows {
		return fmt.Errorf("frame: %w: a block of %d rows for commands of %d", ErrCorrupt, f.Header.Rows, rows)
	}
	if f.Columns, err = DecodeColumns(f.ColumnBytes, f.Header.Shape()); err != nil {
		return err
	}
	return Verify(f.Body)
}
