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
// the lines that the header was written with, seq rises by one a line.
const format = 1

// maxSeq keeps the arithmetic of seq free of overflow.
const maxSeq = 1 << 62

const (
	sumLen    = 8   // hex digits of a checksum
	headerMax = 192 // bytes of a header line, at most
	idMax     = 64
)

type header struct {
	Format  int    `json:"format"`
	ID      string `json:"id"`
	Settled uint64 `json:"settled"`
	Next    uint64 `json:"next"`
}

// entry is a record and its line. Neither is changed once made.
type entry struct {
	record Record
	line   []byte
}

// newEntry makes the line of a record. The entry's record is what the line says,
// so that memory and file never differ.
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

func checksum(body []byte) string {
	return fmt.Sprintf("%08x", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

func decodeEntry(line []byte) (e entry, ok bool) {
	ok = unseal(line, &e.record)
	e.line = line
	return e, ok
}

// decodeHeader fails with ErrDamaged or ErrNewerFormat.
func decodeHeader(line []byte) (h header, err error) {
	if !unseal(line, &h) {
		return h, ErrDamaged
	}
	if h.Format > format {
		return h, fmt.Errorf("%w: %d, this program knows up to %d: use the newer program", ErrNewerFormat, h.Format, format)
	}
	if h.Format < 1 || h.ID == "" || len(h.ID) > idMax || h.Settled >= h.Next || h.Next > maxSeq {
		return h, ErrDamaged
	}
	return h, nil
}

// decode reads a journal up to the first line that is not as it was written.
// What it leaves, it counts in left.
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
		if !ok || e.record.Seq <= last || e.record.Seq >= maxSeq {
			break
		}
		s = s.with(e)
		last, rest = e.record.Seq, after
	}
	if len(rest) > 0 {
		s.next += lostSeqs(rest)
	}
	return h.ID, s, len(rest), nil
}

// lostSeqs is how many seqs the lines of an unreadable end may have had: one a
// line, the cut one and one that lost its newline included.
func lostSeqs(rest []byte) uint64 { return uint64(bytes.Count(rest, []byte("\n"))) + 1 }

// cutLine cuts the first line, its newline included if it has one.
func cutLine(raw []byte) (line, rest []byte) {
	if i := bytes.IndexByte(raw, '\n'); i >= 0 {
		return raw[:i+1], raw[i+1:]
	}
	return raw, nil
}

// encode returns the whole journal of a state.
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
