package fsm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// Letter is an event that a cursor's handler could not handle, or one that came from
// another system. Its copy of the event stays with it when the log is trimmed.
//
// A letter is dead, or under way: appended again, and not committed yet. It is
// removed once it is committed, or purged.
//
// Its age begins when it died last. A redrive does not end it: a letter that is made dead again, because its
// copy is not delivered any more, is as old as before.
type Letter struct {
	ID            uint64     `json:"id"` // dense, from 1
	Cursor        string     `json:"cursor,omitempty"`
	Offset        uint64     `json:"offset,omitempty"` // where the event was dead-lettered last; 0: nowhere
	Type          event.Type `json:"type"`
	Key           string     `json:"key,omitempty"`
	Source        string     `json:"source,omitempty"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	// What the handler has reported: its name, the last error, and the deliveries that failed.
	Handler     string    `json:"handler,omitempty"`
	Error       string    `json:"error,omitempty"`
	Attempts    uint64    `json:"attempts"` // of all its deliveries
	FirstFailed time.Time `json:"first_failed,omitzero"`
	LastFailed  time.Time `json:"last_failed,omitzero"`
	Dead        time.Time `json:"dead_lettered_at"`
	// Stepped is how far clock steps had moved replicated time by then. A letter's age
	// does not count what they left out.
	Stepped  time.Duration `json:"stepped_ns,omitzero"`
	Redrives uint64        `json:"redrives"`
	Lineage  []uint64      `json:"lineage,omitempty"` // offsets of the event and its copies, the newest last
	Origin   string        `json:"origin,omitempty"`  // of one that came from another system
	Bytes    uint64        `json:"bytes"`             // that count for dlq.max_bytes
	// KeptAs is frame.LetterKeep's Origin. A letter of anything else has none.
	KeptAs []byte `json:"kept_as,omitempty"`
}

// maxLineage bounds a letter's lineage; older offsets are forgotten.
const maxLineage = 100

// letterOverhead is what a letter counts beside its event and texts, in bytes.
const letterOverhead = 256

// bornAt is when the letter's age begins, in replicated time without clock steps.
func (l *Letter) bornAt() int64 { return l.Dead.UnixNano() - int64(l.Stepped) }

// size is what a letter counts for dlq.max_bytes.
func (l *Letter) size(copied []byte) uint64 {
	return uint64(letterOverhead + len(copied) + len(l.Cursor) + len(l.Handler) + len(l.Error) + len(l.Origin))
}

// appendLineage records that the event, or a copy of it, is at an offset.
func (l *Letter) appendLineage(offset uint64) {
	l.Lineage = append(l.Lineage, offset)
	l.Lineage = l.Lineage[max(0, len(l.Lineage)-maxLineage):]
}

// LettersResult answers a command about many letters. Lists are in the order of the request.
type LettersResult struct {
	Done     int      `json:"done"`                // redriven, purged or imported
	Skipped  int      `json:"skipped,omitempty"`   // under way already, too young, or known already
	Missing  []uint64 `json:"missing,omitempty"`   // that are not there: resolved, purged, or never were
	NoCursor []uint64 `json:"no_cursor,omitempty"` // redrive: whose cursor is not there
	Left     []uint64 `json:"left,omitempty"`      // redrive: that did not fit into one entry
	First    uint64   `json:"first,omitempty"`     // redrive: the first copy's offset; import: the first letter
	Last     uint64   `json:"last,omitempty"`
}

// letterTotals are the dead letters in the meta record.
type letterTotals struct {
	Next  uint64 `json:"next"`  // the next one's id; 0 before the first
	Count uint64 `json:"count"` // dead ones and those under way
	Bytes uint64 `json:"bytes"` // as dlq.max_bytes counts them
	// Reported is the time up to which letters were reported as stale: those whose age began then or before.
	Reported int64 `json:"told_ns"`
}

// underWay is a letter's copy in the log that its cursor has not committed.
type underWay struct {
	offset uint64 // of the copy
	letter uint64 // Letter.ID
	at     uint64 // Letter.Offset
	bytes  uint64 // Letter.Bytes
	born   int64  // Letter.bornAt
	keptAs []byte // Letter.KeptAs
}

// copyAt returns what is known of a letter while its copy at an offset is under way. It shares KeptAs, which
// never changes.
func (l *Letter) copyAt(offset uint64) underWay {
	return underWay{offset: offset, letter: l.ID, at: l.Offset, bytes: l.Bytes, born: l.bornAt(), keptAs: l.KeptAs}
}

// letters are what decisions need of the dead letters: all but those under way stay
// in the database.
type letters struct {
	underWay map[string][]underWay     // by cursor, ascending offsets
	copies   ranking[uint64, struct{}] // the same, by offset and cursor
	ages     letterAges                // not known once a letter has changed
}

// letterAges are when the age of the oldest of the dead letters began, and of the oldest
// that was not reported as stale; 0 is none. Where known is false they have to be read from the
// database.
type letterAges struct {
	known              bool
	oldest, unreported int64
	oldestID           uint64
}

// The keys of letters, beside 'l' + id and 'e' + id:
//
//	'i' 'c' + cursor + 0 + offset   id of the letter that the cursor made there
//	'i' 'r' + cursor + 0 + offset   the letter under way whose copy is there
//	'i' 't' + time + id             dead letters by when their age began
//	'i' 'f' + origin                id of a letter that was imported or kept. That of an imported letter
//	                                stays for ever, 26 bytes each: letters that are imported again after a
//	                                purge stay out. That of a kept one is removed with its letter: there is
//	                                one for each event that a handler fails on, and it only has to find
//	                                repetitions of the request. A request that is repeated after the letter
//	                                is gone keeps the event again, which loses nothing.
func placeKey(kind byte, cursor string, offset uint64) []byte {
	k := append([]byte{prefixLetterIndex, kind}, cursor...)
	return binary.BigEndian.AppendUint64(append(k, 0), offset)
}

// atKey is under which the letter is found that the cursor made at an offset, copyKey the letter whose
// copy is there.
func atKey(cursor string, offset uint64) []byte   { return placeKey('c', cursor, offset) }
func copyKey(cursor string, offset uint64) []byte { return placeKey('r', cursor, offset) }

// ageKey orders letters by when their age began.
func ageKey(born int64, id uint64) []byte {
	k := binary.BigEndian.AppendUint64([]byte{prefixLetterIndex, 't'}, uint64(born))
	return binary.BigEndian.AppendUint64(k, id)
}

// originKey finds the letter that was imported or kept with an origin.
func originKey(origin [frame.OriginSize]byte) []byte {
	return append([]byte{prefixLetterIndex, 'f'}, origin[:]...)
}

// encode returns the value under copyKey: four numbers, then keptAs if the letter has it. The offset and the
// cursor are in the key.
func (u underWay) encode() (b []byte) {
	for _, n := range []uint64{u.letter, u.at, u.bytes, uint64(u.born)} {
		b = binary.AppendUvarint(b, n)
	}
	return append(b, u.keptAs...)
}

// loadUnderWay reads what redrives have appended and no cursor has committed.
func (s *state) loadUnderWay(db kv.DB) error {
	return scanKeys(db, []byte{prefixLetterIndex, 'r'}, []byte{prefixLetterIndex, 's'}, func(key, value []byte) error {
		// A key is prefix, kind, cursor, 0 and offset. Keys of one cursor are in the order of their offsets.
		const around = 2 + 1 + 8
		if len(key) < around {
			return errors.New("a cut key")
		}
		name := string(key[2 : len(key)-9])
		u := underWay{offset: binary.BigEndian.Uint64(key[len(key)-8:])}
		r := fields.Reader{Rest: value}
		u.letter, u.at, u.bytes, u.born = r.Uvarint(), r.Uvarint(), r.Uvarint(), int64(r.Uvarint())
		switch {
		case r.Err != nil:
			return r.Err
		case len(r.Rest) == frame.OriginSize:
			u.keptAs = bytes.Clone(r.Rest)
		case len(r.Rest) != 0:
			return fmt.Errorf("%d bytes after the copy of letter %d", len(r.Rest), u.letter)
		}
		s.letters.addUnderWay(name, u)
		return nil
	})
}

// addUnderWay adds a copy whose offset is above all others of its cursor.
func (s *letters) addUnderWay(cursor string, u underWay) {
	s.underWay[cursor] = append(s.underWay[cursor], u)
	s.copies.ReplaceOrInsert(ranked[uint64]{u.offset, cursor}, struct{}{})
}

// readAges finds the oldest letters in the database.
func readAges(db kv.Reader, reported int64) (ages letterAges, err error) {
	ages.known = true
	ages.oldest, ages.oldestID, err = firstBorn(db, 0)
	if err == nil {
		// Ages that began at reported or before were reported already.
		ages.unreported, _, err = firstBorn(db, reported+1)
	}
	return ages, err
}

// firstBorn returns the first of the dead letters whose ages began at from or later; 0 is
// none.
func firstBorn(db kv.Reader, from int64) (at int64, id uint64, err error) {
	err = scanKeys(db, ageKey(from, 0), []byte{prefixLetterIndex, 't' + 1}, func(key, _ []byte) error {
		at, id = ageOf(key)
		return errScanned
	})
	return at, id, err
}

// ageOf reads what ageKey wrote; the key is one of its prefix.
func ageOf(key []byte) (born int64, id uint64) {
	return int64(binary.BigEndian.Uint64(key[2:])), binary.BigEndian.Uint64(key[10:])
}

// readLetter decodes what saveLetter stored.
func readLetter(value []byte) (*Letter, error) {
	l := &Letter{}
	return l, json.Unmarshal(value, l)
}

// findCopy returns the index of the copy at an offset among those under way.
func findCopy(list []underWay, offset uint64) (int, bool) {
	byOffset := func(u underWay, offset uint64) int { return cmp.Compare(u.offset, offset) }
	return slices.BinarySearchFunc(list, offset, byOffset)
}
