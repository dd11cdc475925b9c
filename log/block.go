package log

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/bits"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/frame"
)

const (
	prefixBlock   = 'b'
	prefixColumns = 'k'
	valueVersion  = 1
	targetVersion = 2 // of a 'b' value with a target
	crcEnd        = 5 // after version and checksum
)

// ErrCorrupt is wrapped by errors about stored bytes that fail their checks.
var ErrCorrupt = errors.New("the stored log is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Block is a block to be stored. The slices of the frame's block are shared and only read.
type Block struct {
	frame.Block
	First       uint64 // offset of the first live event
	Index, Term uint64
	AppendedAt  time.Time
	Suppressed  Bitmap
	Live        int // > 0

	// Target, unless empty, is the cursor for which the events are redriven; Letters are
	// then their dead letters, one for each live event.
	Target  string
	Letters []uint64
}

// Last returns the offset of the block's last live event.
func (b *Block) Last() uint64 { return b.First + uint64(b.Live) - 1 }

// Bitmap marks the suppressed rows of a block. The empty Bitmap marks none.
type Bitmap []byte

// NewBitmap returns a bitmap with room for rows.
func NewBitmap(rows int) Bitmap { return make(Bitmap, (rows+7)/8) }

// Set marks row i.
func (m Bitmap) Set(i int) { m[i/8] |= 1 << (i % 8) }

// Clear removes the mark of row i.
func (m Bitmap) Clear(i int) { m[i/8] &^= 1 << (i % 8) }

// Has reports whether row i is marked.
func (m Bitmap) Has(i int) bool { return i/8 < len(m) && m[i/8]&(1<<(i%8)) != 0 }

// Count returns the number of marked rows.
func (m Bitmap) Count() int {
	n := 0
	for _, b := range m {
		n += bits.OnesCount8(b)
	}
	return n
}

func blockKey(first uint64) []byte   { return offsetKey(prefixBlock, first) }
func columnsKey(first uint64) []byte { return offsetKey(prefixColumns, first) }

func offsetKey(prefix byte, offset uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, offset)
}

// common is the start of both values: what was decided, and when.
type common struct {
	live        int
	index, term uint64
	appendedAt  time.Time
}

// appendCommon appends version, room for the checksum, and the fields of common.
func (b *Block) appendCommon(v []byte) []byte {
	v = append(v, valueVersion, 0, 0, 0, 0)
	v = binary.AppendUvarint(v, uint64(b.Live))
	v = binary.AppendUvarint(v, b.Index)
	v = binary.AppendUvarint(v, b.Term)
	return binary.AppendVarint(v, b.AppendedAt.UnixNano())
}

// encode returns the 'b' value and how many of its bytes precede the body.
func (b *Block) encode() (v []byte, head int) {
	v = make([]byte, 0, 64+len(b.Suppressed)+len(b.Header)+len(b.Body))
	v = b.appendCommon(v)
	v = fields.Append(v, b.Suppressed)
	if b.Target != "" {
		v[0] = targetVersion
		v = b.appendTarget(v)
	}
	v = fields.Append(v, b.Header)

	// The checksum covers the head only; the body has its own.
	head = len(v)
	binary.LittleEndian.PutUint32(v[1:], crc32.Checksum(v[crcEnd:], castagnoli))
	return append(v, b.Body...), head
}

// appendTarget appends the cursor that the block is for, and its letters.
func (b *Block) appendTarget(v []byte) []byte {
	v = fields.Append(v, b.Target)
	v = binary.AppendUvarint(v, uint64(len(b.Letters)))
	for _, id := range b.Letters {
		v = binary.AppendUvarint(v, id)
	}
	return v
}

// encodeColumns returns the 'k' value; size is that of the 'b' value.
func (b *Block) encodeColumns(before uint64, size int) []byte {
	v := make([]byte, 0, 64+len(b.Suppressed)+len(b.Columns))
	// The order is that of the drawing in doc.go.
	v = b.appendCommon(v)
	v = binary.AppendUvarint(v, before)
	v = binary.AppendUvarint(v, uint64(size))
	v = binary.AppendUvarint(v, uint64(b.Shape.Rows))
	v = binary.AppendUvarint(v, uint64(b.Shape.Types))
	v = binary.AppendUvarint(v, uint64(b.Shape.Sources))
	v = fields.Append(v, b.Suppressed)
	v = append(v, b.Columns...)

	// The checksum goes into the room that appendCommon has left, and covers all after it.
	binary.LittleEndian.PutUint32(v[1:], crc32.Checksum(v[crcEnd:], castagnoli))
	return v
}

// reader reads a value front to back; the first error sticks.
type reader struct{ fields.Reader }

// common reads what appendCommon wrote after the checksum.
func (r *reader) common() common {
	return common{
		live:       int(r.Uvarint()),
		index:      r.Uvarint(),
		term:       r.Uvarint(),
		appendedAt: time.Unix(0, r.Varint()).UTC(),
	}
}

// target reads what appendTarget wrote.
func (r *reader) target(live int) (name string, letters []uint64) {
	name = string(r.Bytes())
	n := r.Count(1)
	// Readers index the letters by event: there has to be one for each.
	if n != live || name == "" {
		r.Fail("%d letters for %d events of cursor %q", n, live, name)
		return "", nil
	}
	letters = make([]uint64, live)
	for i := range letters {
		letters[i] = r.Uvarint()
	}
	return name, letters
}

// corrupt returns an error that wraps ErrCorrupt and says what to do.
func corrupt(first uint64, what string, err error) error {
	if err == nil {
		err = errors.New("cut or altered")
	}
	return fmt.Errorf("log: %s of the block at offset %d: %w: %w; "+
		"restore this node's folder from the cluster: remove the node, empty the folder, join again",
		what, first, ErrCorrupt, err)
}

// stored is a decoded 'b' value, whose body is neither verified nor decompressed.
type stored struct {
	common
	first      uint64
	suppressed Bitmap
	target     string // "" is every reader
	letters    []uint64
	header     *frame.Header
	body       []byte
}

// EveryCursor reads the events that are for any cursor. No cursor has this name.
const EveryCursor = "\x00"

// isFor reports whether a reader gets the block's events: those of a target are for
// its cursor alone.
func (s *stored) isFor(cursor string) bool {
	return s.target == "" || s.target == cursor || cursor == EveryCursor
}

func (s *stored) last() uint64 { return s.first + uint64(s.live) - 1 }

// decodeBlock reads a 'b' value and verifies its head; v must stay unchanged for as long as
// the result is used.
func decodeBlock(first uint64, v []byte) (*stored, error) {
	if len(v) < crcEnd || (v[0] != valueVersion && v[0] != targetVersion) {
		return nil, corrupt(first, "head", nil)
	}
	r := &reader{fields.Reader{Rest: v[crcEnd:]}}
	s := &stored{first: first, common: r.common(), suppressed: r.Bytes()}
	if v[0] == targetVersion {
		s.target, s.letters = r.target(s.live)
	}
	header := r.Bytes()
	if r.Err != nil {
		return nil, corrupt(first, "head", r.Err)
	}

	// Only now is it known where the head ends, which the checksum covers. Nothing has been
	// allocated by what it claims but letter ids, and not more of these than it has bytes.
	s.body = r.Rest
	head := v[crcEnd : len(v)-len(r.Rest)]
	if crc32.Checksum(head, castagnoli) != binary.LittleEndian.Uint32(v[1:]) {
		return nil, corrupt(first, "head", errors.New("checksum"))
	}
	var err error
	s.header, err = frame.DecodeHeader(header)
	if err != nil {
		return nil, corrupt(first, "head", err)
	}
	if s.live <= 0 || s.live != s.header.Rows-s.suppressed.Count() {
		return nil, corrupt(first, "head", errors.New("live rows do not add up"))
	}
	return s, nil
}

// Columns is a decoded 'k' value: a block's key columns, and what retention needs.
type Columns struct {
	*frame.Columns
	First      uint64
	Live       int
	Index      uint64
	Term       uint64
	AppendedAt time.Time
	Before     uint64 // bytes of all blocks ever stored before this one
	Size       uint64 // bytes of this block
	Suppressed Bitmap
}

// Last returns the offset of the block's last live event.
func (c *Columns) Last() uint64 { return c.First + uint64(c.Live) - 1 }

// RowOf returns the row of the live event at offset, which must be in the block.
func (c *Columns) RowOf(offset uint64) int {
	left := offset - c.First // live rows before it
	for i := range c.Len() {
		if c.Suppressed.Has(i) {
			continue
		}
		if left == 0 {
			return i
		}
		left--
	}
	return -1
}

// decodeColumns reads a 'k' value; v must stay unchanged for as long as the result
// is used.
func decodeColumns(first uint64, v []byte) (*Columns, error) {
	if len(v) < crcEnd || v[0] != valueVersion {
		return nil, corrupt(first, "key columns", nil)
	}
	// The checksum comes first: nothing is allocated by what a damaged value claims.
	if crc32.Checksum(v[crcEnd:], castagnoli) != binary.LittleEndian.Uint32(v[1:]) {
		return nil, corrupt(first, "key columns", nil)
	}
	r := &reader{fields.Reader{Rest: v[crcEnd:]}}
	head := r.common()
	c := &Columns{
		First:      first,
		Live:       head.live,
		Index:      head.index,
		Term:       head.term,
		AppendedAt: head.appendedAt,
		Before:     r.Uvarint(),
		Size:       r.Uvarint(),
	}

	// The shape says how the rest is divided into columns.
	shape := frame.Shape{Rows: int(r.Uvarint()), Types: int(r.Uvarint()), Sources: int(r.Uvarint())}
	c.Suppressed = r.Bytes()
	if r.Err != nil {
		return nil, corrupt(first, "key columns", r.Err)
	}
	var err error
	c.Columns, err = frame.DecodeColumns(r.Rest, shape)
	// Its checksum is right: a newer build has written it.
	if errors.Is(err, frame.ErrUnsupported) {
		return nil, fmt.Errorf("log: key columns of the block at offset %d: %w", first, err)
	}
	if err != nil {
		return nil, corrupt(first, "key columns", err)
	}
	return c, nil
}
