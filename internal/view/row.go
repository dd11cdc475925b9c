package view

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// The keys of rows: a letter for what the row is, and the key of a row of the view. No key of the view is empty.
const (
	rowPrefix  = "k" // before the key of a row
	keysKey    = "n" // how many there are of the view, as a uvarint
	skippedKey = "s" // how many events were skipped; see skippedForm
)

// rowForm is the form of a row:
//
//	byte      form
//	varint    the time of its last event, in Unix nanoseconds
//	uvarint   the offset of that
//	bytes     for each field, in the order of their names: its state
//	bool      for each rule: its condition holds; if so:
//	varint      the time of the event with which it began, in Unix nanoseconds
//	uvarint     the offset of that
//	uvarint   how many values no field could take
const rowForm = 1

// row is a row in parts. Its states share the memory of what was read.
type row struct {
	at      int64     // the time of its last event in Unix nanoseconds; it never falls
	offset  uint64    // of its last event
	states  [][]byte  // of each field, by slot; empty if it has folded nothing
	rules   []holding // of each rule, in the order of the view
	skipped uint64    // how many values no field could take
}

// holding is the state of a rule.
type holding struct {
	holds  bool
	at     int64 // since when, and which event
	offset uint64
}

// read reads a stored row of a view; r has a place for each of its states and rules. An error says that the row is
// damaged, or was written for another declaration.
func (r *row) read(v *View, stored []byte) error {
	in := fields.Reader{Rest: stored}
	in.Form(rowForm)
	r.at, r.offset = in.Varint(), in.Uvarint()
	for i := range v.fields {
		r.states[i] = in.Bytes()
		// The kinds index into their states, so a state of the wrong size must not reach them.
		if in.Err == nil && !v.fields[i].kind.valid(r.states[i]) {
			in.Fail("the state of field %s is cut or of another kind", v.fields[i].name)
		}
	}
	for i := range r.rules {
		r.rules[i] = holding{holds: in.Bool()}
		// Only a rule that holds has a begin.
		if r.rules[i].holds {
			r.rules[i].at, r.rules[i].offset = in.Varint(), in.Uvarint()
		}
	}
	r.skipped = in.Uvarint()
	return in.End()
}

// reset makes it the row of a key that has none yet.
func (r *row) reset() {
	clear(r.states)
	clear(r.rules)
	r.at, r.offset, r.skipped = 0, 0, 0
}

// appendRules appends what follows the states.
func (r *row) appendRules(b []byte) []byte {
	for _, h := range r.rules {
		b = fields.AppendBool(b, h.holds)
		if h.holds {
			b = binary.AppendUvarint(binary.AppendVarint(b, h.at), h.offset)
		}
	}
	return binary.AppendUvarint(b, r.skipped)
}

// timeOf returns the time of an event as rows have it. The zero time is 0, since UnixNano is not defined for it.
func timeOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// countKey counts a key of the view that has no row yet, and returns false if there are as many as there may be. The
// count is a row, so that the bound is the same on every node and after a restart. It never falls: rows are not
// removed.
func countKey(rows Rows, most uint64) (bool, error) {
	stored, found, err := rows.Get(keysKey)
	if err != nil {
		return false, err
	}
	// A view without rows has not stored a count.
	n := uint64(0)
	if found {
		in := fields.Reader{Rest: stored}
		n = in.Uvarint()
		if in.End() != nil {
			return false, errors.New("the count of keys is cut")
		}
	}
	if n >= most {
		return false, nil
	}
	return true, rows.Set(keysKey, binary.AppendUvarint(nil, n+1))
}

// skippedForm is the form of the row that counts skipped events: a byte, their number and the offset of the last as
// uvarints, a byte for the place of that in skippedPlaces, and the number of those beyond max_keys as a uvarint.
const skippedForm = 1

// skippedPlaces are why events are skipped. Their indexes are stored, so their order must stay.
var skippedPlaces = [...]string{"where", "key", "max_keys"}

// errSkipped is returned for a count that cannot be read.
var errSkipped = errors.New("the count of skipped events is cut")

// readSkipped reads the count of skipped events. It is zero if none was skipped.
func readSkipped(rows Rows) (Skipped, error) {
	stored, found, err := rows.Get(skippedKey)
	if err != nil || !found {
		return Skipped{}, err
	}
	in := fields.Reader{Rest: stored}
	in.Form(skippedForm)
	s := Skipped{Events: in.Uvarint(), Last: in.Uvarint()}
	place := in.Byte()
	s.BeyondKeys = in.Uvarint()
	if in.End() != nil || int(place) >= len(skippedPlaces) {
		return Skipped{}, errSkipped
	}
	s.Place = skippedPlaces[place]
	return s, nil
}

// skip counts an event that has no value for where or for its key, or whose key is beyond max_keys. place is one of
// skippedPlaces. An error is one of the rows.
func skip(rows Rows, offset uint64, place string) error {
	s, err := readSkipped(rows)
	// An event that was counted already is not counted again, as a row folds no event twice.
	if err != nil || offset <= s.Last {
		return err
	}
	if place == "max_keys" {
		s.BeyondKeys++
	}
	b := binary.AppendUvarint(binary.AppendUvarint([]byte{skippedForm}, s.Events+1), offset)
	b = append(b, byte(slices.Index(skippedPlaces[:], place)))
	return rows.Set(skippedKey, binary.AppendUvarint(b, s.BeyondKeys))
}
