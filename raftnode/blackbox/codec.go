package blackbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
)

// A journal is lines of text. The first is its header, each other one a record,
// in the order of their seq. Each is sealed with the checksum of its JSON:
//
//	89abcdef {"format":1,"id":"6f1c…","settled":4,"next":7}\n
//	1f0e2d3c {"seq":5,"at":"2026-01-02T03:04:05.6Z","kind":"lost",…}\n
//	5a6b7c8d {"seq":6,"at":"2026-01-02T03:04:09.7Z","kind":"view",…}\n
//	--------  ------------------------------------------------------
//	CRC-32C   of exactly these bytes
//	8 hex
//
// "settled" is the seq up to which everything is stored in the replicated log, "next"
// the one that the next record would have had when the header was written. After
// the lines that the header was written with, seq increases by one a line.
const format = 1

// maxSeq keeps the arithmetic of seq free of overflow.
const maxSeq = 1 << 62

const (
	sumLen    = 8   // hex digits of a checksum
	headerMax = 192 // bytes of a header line, at most
	idMax     = 64  // bytes of a journal's id, at most
)

// header is the first line of a journal; see format for its fields.
type header struct {
	Format  int    `json:"format"`
	ID      string `json:"id"`
	Settled uint64 `json:"settled"`
	Next    uint64 `json:"next"`
}

// entry is a record and its line in the file. Neither is changed once made: states share them.
type entry struct {
	record Record
	line   []byte
}

// newEntry encodes a record. The entry's record is decoded from the line, so
// memory and file never differ.
func newEntry(r Record) (entry, error) {
	line, err := seal(r)
	if err != nil {
		return entry{}, err
	}
	e, ok := decodeEntry(line)
	if !ok {
		return entry{}, fmt.Errorf("record %d does not survive being written: %q", r.Seq, line)
	}
	return e, nil
}

// seal returns v as a line.
func seal(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%s %s\n", checksum(body), body), nil
}

// unseal decodes a line into v and reports whether it is as it was written.
func unseal(line []byte, v any) bool {
	line, ended := bytes.CutSuffix(line, []byte("\n"))
	if !ended || len(line) <= sumLen || line[sumLen] != ' ' {
		return false
	}
	body := line[sumLen+1:]
	return string(line[:sumLen]) == checksum(body) && json.Unmarshal(body, v) == nil
}

// checksum returns the CRC-32C of body, 8 hex digits.
func checksum(body []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// decodeEntry decodes a record's line, and keeps line. ok reports whether it is as it was written.
func decodeEntry(line []byte) (e entry, ok bool) {
	ok = unseal(line, &e.record)
	e.line = line
	return e, ok
}

// decodeHeader decodes a journal's first line. It fails with ErrDamaged or ErrNewerFormat.
func decodeHeader(line []byte) (h header, err error) {
	if !unseal(line, &h) {
		return h, ErrDamaged
	}
	// Before the fields are judged: what a newer format requires of them is not known here.
	if h.Format > format {
		return h, fmt.Errorf("%w: %d, this program knows up to %d: use the newer program", ErrNewerFormat, h.Format, format)
	}
	if h.Format < 1 || h.ID == "" || len(h.ID) > idMax || h.Settled >= h.Next || h.Next > maxSeq {
		return h, ErrDamaged
	}
	return h, nil
}

// decode reads a journal up to the first line that is not as it was written. left
// is the number of bytes from there on, which it ignores.
func decode(raw []byte) (id string, s state, left int, err error) {
	line, rest := cutLine(raw)
	h, err := decodeHeader(line)
	if err != nil {
		return "", state{}, 0, err
	}
	s = state{settled: h.Settled, next: h.Next}
	for last := uint64(0); len(rest) > 0; {
		line, after := cutLine(rest)
		e, ok := decodeEntry(line)
		// Seqs ascend within a journal: a line whose seq does not was not written after the one before it.
		if !ok || e.record.Seq <= last || e.record.Seq >= maxSeq {
			break
		}
		s = s.with(e)
		last, rest = e.record.Seq, after
	}
	// The seqs that the ignored lines had may be known elsewhere: no later record may get them.
	if len(rest) > 0 {
		s.next += lostSeqs(rest)
	}
	return h.ID, s, len(rest), nil
}

// lostSeqs is how many seqs the lines of an unreadable end may have had: one for each
// newline, and one more for a line that was cut before its newline.
func lostSeqs(rest []byte) uint64 { return uint64(bytes.Count(rest, []byte("\n"))) + 1 }

// cutLine returns the first line, with its newline if it has one, and what follows.
func cutLine(raw []byte) (line, rest []byte) {
	if i := bytes.IndexByte(raw, '\n'); i >= 0 {
		return raw[:i+1], raw[i+1:]
	}
	return raw, nil
}

// encode returns the content of a file that holds s.
func encode(id string, s state) ([]byte, error) {
	out, err := seal(header{Format: format, ID: id, Settled: s.settled, Next: s.next})
	if err != nil {
		return nil, err
	}
	out = append(make([]byte, 0, len(out)+s.size), out...)
	for _, e := range s.entries {
		out = append(out, e.line...)
	}
	return out, nil
}
