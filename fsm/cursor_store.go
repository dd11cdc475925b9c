package fsm

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// A cursor is stored under two keys, because most entries change its place alone. What it
// is (JSON) is stored under 'c' and its name, where it is under 'a' and its name:
//
//	byte     1, the form
//	uvarint  committed
//	uvarint  generation
//	varint   touched, Unix nanoseconds
//	uvarint  clock steps until then, nanoseconds
//	varint   moved, Unix nanoseconds; 0 is never
//	varint   stalled since, Unix nanoseconds; 0 is not
//	uvarint  scanned
//	byte     1 where the next event after that was found open, else 0
//	         and of a group:
//	uvarint  reserved
//	uvarint  open
//
// Before form 1 all of this was stored under 'c', which is still read.
const placeForm = 1

// cursorFacts is the stored part of a cursor that a commit does not change. Its fields are those of
// Cursor.
type cursorFacts struct {
	Filter   event.Filter       `json:"filter"`
	Policy   frame.CursorPolicy `json:"policy"`
	Start    uint64             `json:"start,omitempty"`
	Created  time.Time          `json:"created"`
	Seeks    uint64             `json:"seeks,omitempty"`
	LastSeek *Seek              `json:"last_seek,omitempty"`
	Group    *groupFacts        `json:"group,omitempty"`
	Openers  []string           `json:"openers,omitempty"`
	Seekers  []string           `json:"seekers,omitempty"`
	// A cursor is rarely throttled or released, so this is stored here and not with its place.
	Throttled *Throttle `json:"throttled,omitempty"`
}

// groupFacts is the same of a group, whose place is stored with that of its cursor.
type groupFacts struct {
	Policy frame.GroupPolicy `json:"policy"`
}

// facts returns what is stored under prefixCursor.
func (c *Cursor) facts() cursorFacts {
	f := cursorFacts{
		Filter:   c.Filter,
		Policy:   c.Policy,
		Start:    c.Start,
		Created:  c.Created,
		Seeks:    c.Seeks,
		LastSeek: c.LastSeek,
		Openers:  c.Openers,
		Seekers:  c.Seekers,

		Throttled: c.Throttled,
	}
	// What a group has settled and what it redelivers have keys of their own: see group_store.go.
	if c.Group != nil {
		f.Group = &groupFacts{c.Group.Policy}
	}
	return f
}

// encodePlace returns what is stored under prefixPlace, in the form drawn at placeForm.
func (c *Cursor) encodePlace() []byte {
	// The zero time says that it is not stalled.
	stalled := time.Time{}
	if c.Stalled != nil {
		stalled = c.Stalled.Since
	}
	b := append(make([]byte, 0, 64), placeForm)
	b = binary.AppendUvarint(b, c.Committed)
	b = binary.AppendUvarint(b, c.Generation)
	b = binary.AppendVarint(b, c.Touched.UnixNano())
	b = binary.AppendUvarint(b, uint64(c.stepped))
	b = fields.AppendTime(b, c.Moved)
	b = fields.AppendTime(b, stalled)
	b = binary.AppendUvarint(b, c.Scanned)
	b = fields.AppendBool(b, c.Found)
	if c.Group != nil {
		b = binary.AppendUvarint(b, c.Group.Reserved)
		b = binary.AppendUvarint(b, c.Group.Open)
	}
	return b
}

// decodePlace reads what encodePlace wrote of a cursor whose facts are known.
func (c *Cursor) decodePlace(b []byte) error {
	r := fields.Reader{Rest: b}
	r.Form(placeForm)
	c.Committed, c.Generation = r.Uvarint(), r.Uvarint()
	c.Touched = time.Unix(0, r.Varint()).UTC()
	c.stepped = int64(r.Uvarint())
	c.Moved, c.Stalled = r.Time(), nil
	if since := r.Time(); !since.IsZero() {
		c.Stalled = &Stall{Since: since}
	}
	c.Scanned, c.Found = r.Uvarint(), r.Bool()

	// The facts say whether the value has the part of a group.
	if c.Group != nil {
		c.Group.Reserved, c.Group.Open = r.Uvarint(), r.Uvarint()
	}
	return r.End()
}

// ranked is a name at its rank; where ranks are equal, names decide.
type ranked[T cmp.Ordered] struct {
	rank T
	name string // empty is before all names
}

// compare is the order of a ranking.
func (a ranked[T]) compare(b ranked[T]) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.name, b.name))
}

// ranking is an order in which entries look things up, so none goes through all of them. It has
// what the state has, and nothing depends on its shape.
type ranking[T cmp.Ordered, V any] = orderedMap[ranked[T], V]

// newRanking returns an empty ranking.
func newRanking[T cmp.Ordered, V any]() ranking[T, V] {
	return btreemap.New[ranked[T], V](32, ranked[T].compare)
}

// atLeast bounds what is looked up from below: this rank and those after it, whatever their names.
func atLeast[T cmp.Ordered](rank T) btreemap.LowerBound[ranked[T]] {
	return btreemap.GE(ranked[T]{rank: rank})
}

// below bounds what is looked up from above: ranks before this one.
func below[T cmp.Ordered](rank T) btreemap.UpperBound[ranked[T]] {
	return btreemap.LT(ranked[T]{rank: rank})
}

// cursorRanks are the orders that cursors are looked up in.
type cursorRanks struct {
	byPassed ranking[uint64, *Cursor] // by what they have passed
	byUse    ranking[int64, *Cursor]  // by when their last use was, without clock steps
	bytes    uint64                   // of all of them, as cursor.max_bytes counts
	// throttled has those that are throttled, by name.
	throttled map[string]*Cursor
}

// newCursorRanks returns the orders of no cursors.
func newCursorRanks() cursorRanks {
	return cursorRanks{byPassed: newRanking[uint64, *Cursor](), byUse: newRanking[int64, *Cursor](),
		throttled: map[string]*Cursor{}}
}

// passedRank is the place of a cursor in byPassed.
func (c *Cursor) passedRank() ranked[uint64] { return ranked[uint64]{c.Passed(), c.Name} }

// usedAt is when a cursor was used last, without clock steps: nobody could use it in time that was
// skipped.
func (c *Cursor) usedAt() int64 { return c.Touched.UnixNano() - c.stepped }

// useRank is the place of a cursor in byUse.
func (c *Cursor) useRank() ranked[int64] { return ranked[int64]{c.usedAt(), c.Name} }

// cursorOverhead is what a cursor counts beside its name and filter, in bytes.
const cursorOverhead = 256

// cursorBytes is what a cursor counts for cursor.max_bytes.
func cursorBytes(name string, f event.Filter) uint64 {
	return uint64(cursorOverhead + len(name) + f.Bytes())
}

// addCursor adds a cursor whose place and last use are known: they rank it.
func (s *state) addCursor(c *Cursor) {
	s.cursors[c.Name] = c
	s.ranks.byPassed.ReplaceOrInsert(c.passedRank(), c)
	s.ranks.byUse.ReplaceOrInsert(c.useRank(), c)
	if c.Throttled != nil {
		s.ranks.throttled[c.Name] = c
	}
	s.ranks.bytes += cursorBytes(c.Name, c.Filter)
}

// dropCursor removes a cursor. Its place and last use must be those that it is ranked by.
func (s *state) dropCursor(c *Cursor) {
	delete(s.cursors, c.Name)
	s.ranks.byPassed.Delete(c.passedRank())
	s.ranks.byUse.Delete(c.useRank())
	delete(s.ranks.throttled, c.Name)
	s.ranks.bytes -= cursorBytes(c.Name, c.Filter)
}

// place is how far a cursor is; see the fields of Cursor.
type place struct {
	committed, scanned uint64 // offsets
	found              bool
}

// placeCursor moves a cursor to a place and keeps its rank. The caller stores it.
func (a *cursorApplier) placeCursor(c *Cursor, at place) {
	// The rank has to be known before the place changes.
	before := c.passedRank()
	// Whoever watches the cursor is woken at the end of the entry.
	if c.Committed != at.committed {
		a.moved = append(a.moved, c.Name)
	}
	c.Committed, c.Scanned, c.Found = at.committed, at.scanned, at.found
	if c.passedRank() != before {
		a.s.ranks.byPassed.Delete(before)
		a.s.ranks.byPassed.ReplaceOrInsert(c.passedRank(), c)
	}
}

// useCursor notes that a cursor is used now and keeps its rank. The caller stores it.
func (a *cursorApplier) useCursor(c *Cursor) {
	before := c.useRank()
	c.Touched, c.stepped = a.time(), a.s.meta.Stepped
	if c.useRank() != before {
		a.s.ranks.byUse.Delete(before)
		a.s.ranks.byUse.ReplaceOrInsert(c.useRank(), c)
	}
}

// savePlace stores where a cursor is, and answers with a copy.
func (a *cursorApplier) savePlace(c *Cursor) Result {
	a.tx.Set(key(prefixPlace, c.Name), c.encodePlace())
	return Result{Cursor: a.s.view(c)}
}

// saveCursor stores a cursor, and answers with a copy.
func (a *cursorApplier) saveCursor(c *Cursor) Result {
	a.tx.setJSON(key(prefixCursor, c.Name), c.facts())
	return a.savePlace(c)
}

// loadCursors reads cursors and where they are.
func (s *state) loadCursors(db kv.DB) error {
	read := map[string]*Cursor{}
	err := scan(db, prefixCursor, func(name string, value []byte) error {
		c := &Cursor{}
		err := json.Unmarshal(value, c)
		// JSON cannot hold every name, and a gap is worked out where it is asked for.
		c.Name, c.Gap = name, nil
		read[name] = c
		return err
	})

	// Where it is has a key of its own, unless it was stored before form 1.
	if err == nil {
		err = scan(db, prefixPlace, func(name string, value []byte) error {
			c := read[name]
			if c == nil {
				return fmt.Errorf("there is no cursor %q", name)
			}
			return c.decodePlace(value)
		})
	}
	if err != nil {
		return err
	}

	// Now all that ranks them is known.
	for _, c := range read {
		s.addCursor(c)
	}
	return nil
}
