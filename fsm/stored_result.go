package fsm

import (
	"encoding/binary"
	"fmt"

	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/frame"
)

// A producer's result is stored after the fingerprint of its request, 4 bytes big-endian, as
//
//	1        resultAccepted
//	uvarint  the first new event's offset, 0 when all are duplicates
//	rest     the duplicates as runs in which rows and offsets increase by one, each of them:
//	         uvarint rows since the end of the run before, uvarint length - 1,
//	         varint  offset since the end of the run before
//
// or, of a request that was refused because a dedup_id was used for other content, as
//
//	1        resultConflict
//	uvarint  row
//	uvarint  offset of the event that used it first
//
// No text is stored: nodes of two builds may word a refusal differently. A value that was stored
// before this form is JSON, see DecodeResult.
const (
	resultAccepted = 1
	resultConflict = 2
	resultJSON     = '{'
)

// appendStored appends a result that keepResult stores: an accepted one, or a conflict.
func appendStored(b []byte, r *Result) []byte {
	if r.Refusal != nil {
		b = binary.AppendUvarint(append(b, resultConflict), uint64(r.Refusal.Row))
		return binary.AppendUvarint(b, r.Refusal.Offset)
	}
	b = binary.AppendUvarint(append(b, resultAccepted), r.First)
	var row int
	var offset uint64 // where the run before ended

	// Each step writes the longest run at the start of list.
	for list := r.Duplicates; len(list) > 0; {
		n := 1
		for n < len(list) && list[n].Row == list[0].Row+n && list[n].Offset == list[0].Offset+uint64(n) {
			n++
		}
		b = binary.AppendUvarint(b, uint64(list[0].Row-row))
		b = binary.AppendUvarint(b, uint64(n-1))
		b = binary.AppendVarint(b, int64(list[0].Offset-offset))
		row, offset = list[0].Row+n, list[0].Offset+uint64(n)
		list = list[n:]
	}
	return b
}

// decodeStored reads what appendStored appended. Bytes that it did not append are an error, and take no more
// memory than a request's results can.
func decodeStored(b []byte) (r Result, err error) {
	if len(b) == 0 {
		return r, fmt.Errorf("fsm: a producer's result: %w", frame.ErrCorrupt)
	}
	// It was stored before this form.
	if b[0] == resultJSON {
		return DecodeResult(b)
	}
	in := fields.Reader{Rest: b}
	switch form := in.Byte(); form {
	// The refusal's text is not stored: this build words it.
	case resultConflict:
		row := in.Uvarint()
		r.Refusal = conflict(in.Uvarint())
		r.Refusal.Row = int(row)
	case resultAccepted:
		r.First = in.Uvarint()

		// The duplicates are runs; row and offset are where the run before ended.
		var row, offset uint64
		for len(in.Rest) > 0 {
			row += in.Uvarint()
			n := in.Uvarint() + 1
			offset += uint64(in.Varint())
			// A damaged length must not make a list of it.
			if n == 0 || n > frame.MaxRows || row > frame.MaxRows {
				in.Fail("a run of %d rows from row %d on", n, row)
			}
			if in.Err != nil {
				break
			}
			for range n {
				r.Duplicates = append(r.Duplicates, Duplicate{Row: int(row), Offset: offset})
				row, offset = row+1, offset+1
			}
		}
	default:
		in.Fail("form %d, which this build does not know", form)
	}
	if err := in.End(); err != nil {
		return Result{}, fmt.Errorf("fsm: a producer's result: %w: %w", frame.ErrCorrupt, err)
	}
	return r, nil
}
