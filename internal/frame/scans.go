package frame

import (
	"encoding/binary"

	"github.com/ringrift/ringlog/internal/fields"
)

// MaxScans is how many cursors one command may be about.
const MaxScans = 256

// CursorsScanned reports what the leader found after the committed offsets of cursors and
// groups, which only the events themselves show. With it, lag, stalls and what cursors hold
// back count only events that a subscriber would get.
type CursorsScanned struct {
	Scans []CursorScan
}

// CursorScan is about the cursor of that Name, Created time and Generation. Its filter passes
// no event after From up to To, except events that its group has settled. Match says that it
// passes the one after To.
type CursorScan struct {
	Name       string
	Created    int64 // Unix nanoseconds; distinguishes a cursor from a removed one of its name
	Generation uint64
	From       uint64
	To         uint64
	Match      bool
}

// Kind implements Command.
func (CursorsScanned) Kind() Kind { return KindCursorsScanned }

// appendTo writes the number of scans, then of each: name, created, generation, from, to, match.
func (c CursorsScanned) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Scans)))
	for _, s := range c.Scans {
		b = binary.AppendVarint(fields.Append(b, s.Name), s.Created)
		b = binary.AppendUvarint(binary.AppendUvarint(b, s.Generation), s.From)
		b = fields.AppendBool(binary.AppendUvarint(b, s.To), s.Match)
	}
	return b
}

// cursorsScanned refuses more scans than one command may have.
func (d *decoder) cursorsScanned() (c CursorsScanned) {
	// A scan takes a byte for each field at least.
	n := d.Count(6)
	if n > MaxScans {
		d.Fail("%d scans in one command", n)
		return c
	}
	for range n {
		c.Scans = append(c.Scans, CursorScan{
			Name:       d.string(),
			Created:    d.Varint(),
			Generation: d.Uvarint(),
			From:       d.Uvarint(),
			To:         d.Uvarint(),
			Match:      d.Bool(),
		})
	}
	return c
}
