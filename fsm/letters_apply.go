package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// changedLetters are what this entry has done to letters so far: the database has
// it only behind the entry. A nil letter and an id of 0 are gone.
type changedLetters struct {
	letters map[uint64]*Letter
	copies  map[uint64][]byte
	index   map[string]uint64
}

// letter returns a letter, nil where there is none.
func (a *applier) letter(id uint64) (*Letter, error) {
	if l, changed := a.changed.letters[id]; changed {
		return l, nil
	}
	value, err := a.get(indexKey(prefixLetter, id))
	if err != nil || value == nil {
		return nil, err
	}
	l, err := readLetter(value)
	if err != nil {
		return nil, fmt.Errorf("fsm: read letter %d: %w", id, err)
	}
	return l, nil
}

// get returns a copy of one value of the database before this entry, nil where
// there is none.
func (a *applier) get(key []byte) ([]byte, error) {
	value, closer, err := a.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fsm: read %q: %w", key, err)
	}
	defer closer.Close()
	return slices.Clone(value), nil
}

func (a *applier) copyOf(id uint64) ([]byte, error) {
	if copied, changed := a.changed.copies[id]; changed {
		return copied, nil
	}
	copied, err := a.get(indexKey(prefixCopy, id))
	if err == nil && copied == nil {
		err = fmt.Errorf("fsm: letter %d: %w: its event is missing", id, ErrDamaged)
	}
	return copied, err
}

// indexed returns the id under an index key, 0 where there is none.
func (a *applier) indexed(key []byte) (uint64, error) {
	if id, changed := a.changed.index[string(key)]; changed {
		return id, nil
	}
	value, err := a.get(key)
	if err != nil || value == nil {
		return 0, err
	}
	if len(value) != 8 {
		return 0, fmt.Errorf("fsm: read %q: %w", key, ErrDamaged)
	}
	return binary.BigEndian.Uint64(value), nil
}

func (a *applier) setIndex(key []byte, id uint64) {
	if a.changed.index == nil {
		a.changed.index = map[string]uint64{}
	}
	a.changed.index[string(key)] = id
	if id == 0 {
		a.tx.Delete(key)
	} else {
		a.tx.Set(key, binary.BigEndian.AppendUint64(nil, id))
	}
}

func (a *applier) changeLetter(id uint64, l *Letter) {
	if a.changed.letters == nil {
		a.changed.letters, a.changed.copies = map[uint64]*Letter{}, map[uint64][]byte{}
	}
	a.changed.letters[id] = l
	a.s.letters.ages.known = false
}

func (a *applier) saveLetter(l *Letter) {
	a.changeLetter(l.ID, l)
	a.tx.setJSON(indexKey(prefixLetter, l.ID), l)
}

// resize counts what a letter takes now.
func (a *applier) resize(l *Letter, size uint64) {
	a.s.meta.Letters.Bytes += size - l.Bytes
	l.Bytes = size
}

// newLetter gives a letter its id, keeps its copy and stores it as dead.
func (a *applier) newLetter(l *Letter, e *event.Event, copied []byte) {
	t := &a.s.meta.Letters
	t.Next = max(t.Next, 1)
	l.ID = t.Next
	t.Next++
	t.Count++
	l.Type, l.Key, l.Source, l.CorrelationID = e.Type, e.Key, e.Source, e.CorrelationID
	a.resize(l, l.size(copied))
	a.lie(l)
	a.changed.copies[l.ID] = copied
	a.tx.Set(indexKey(prefixCopy, l.ID), copied)
}

// lie stores a letter as dead from now on.
func (a *applier) lie(l *Letter) {
	l.Dead, l.Stepped = a.time(), time.Duration(a.s.meta.Stepped)
	a.saveLetter(l)
	a.tx.Set(ageKey(l.bornAt(), l.ID), nil)
	if l.Offset != 0 {
		a.setIndex(atKey(l.Cursor, l.Offset), l.ID)
	}
}

// dropLetter removes what is stored under a letter's id.
func (a *applier) dropLetter(id uint64, cursor string, at, bytes uint64) {
	a.changeLetter(id, nil)
	a.tx.Delete(indexKey(prefixLetter, id))
	a.tx.Delete(indexKey(prefixCopy, id))
	if at != 0 {
		a.setIndex(atKey(cursor, at), 0)
	}
	a.s.meta.Letters.Count--
	a.s.meta.Letters.Bytes -= bytes
}

// deadLetter moves a cursor past an event that its handler could not handle, and
// keeps the event: one entry does both.
func (a *applier) deadLetter(c frame.DeadLetter) (Result, error) {
	commit := frame.CursorCommit{Name: c.Cursor, Offset: c.Offset, Generation: c.Generation}
	cur := a.s.cursors[c.Cursor]
	if cur == nil || cur.Group != nil || c.Generation != cur.Generation || c.Offset > a.tail() {
		return a.commitCursor(commit), nil // which says why not
	}
	if c.Offset <= cur.Committed {
		return a.deadAlready(cur, c.Offset)
	}
	return a.layOut(cur, c, func() Result { return a.commitCursor(commit) })
}

// layOut keeps an event as a letter of the cursor. What passes moves the cursor past it.
func (a *applier) layOut(cur *Cursor, c frame.DeadLetter, passes func() Result) (Result, error) {
	e, err := frame.DecodeCopy(c.Event)
	if err != nil {
		return refuse(Invalid, "event", err.Error(), "send a copy of the event as the log has it"), nil
	}
	old, err := a.letterAt(cur.Name, c.Offset)
	if err != nil {
		return Result{}, err
	}
	l := *old
	l.Cursor, l.Handler, l.Error = cur.Name, c.Handler, c.Error
	if full := a.noRoom(l.size(c.Event), old.Bytes); full != nil {
		return *full, nil
	}
	l.failed(c, a.time())
	a.keep(&l, &e, c)
	r := passes()
	r.Letter = a.viewOf(&l)
	return r, nil
}

// failed takes in what the handler says.
func (l *Letter) failed(c frame.DeadLetter, now time.Time) {
	l.Attempts += max(c.Attempts, 1)
	l.LastFailed = now
	if l.FirstFailed.IsZero() {
		l.FirstFailed = c.FirstFailed.UTC()
		if c.FirstFailed.IsZero() || c.FirstFailed.After(now) {
			l.FirstFailed = now
		}
	}
}

// keep stores a letter that has failed at the command's offset: a new one, one whose
// copy stands there, or one that the cursor has met again behind a seek.
func (a *applier) keep(l *Letter, e *event.Event, c frame.DeadLetter) {
	switch {
	case l.ID == 0:
		l.Offset = c.Offset
		l.descend(c.Offset)
		a.newLetter(l, e, c.Event)
		return
	case a.takeCopy(l.Cursor, c.Offset):
		if l.Offset != 0 {
			a.setIndex(atKey(l.Cursor, l.Offset), 0)
		}
		l.Offset = c.Offset
	case a.isUnderWay(l):
		return // its copy is still to come
	default:
		a.tx.Delete(ageKey(l.bornAt(), l.ID))
	}
	a.resize(l, l.size(c.Event))
	a.lie(l)
}

// deadAlready answers a dead letter for what is committed: as the first time, where
// it is the same again.
func (a *applier) deadAlready(cur *Cursor, offset uint64) (Result, error) {
	id, err := a.indexed(atKey(cur.Name, offset))
	if err != nil {
		return Result{}, err
	}
	if id == 0 {
		is := fmt.Sprintf("cursor %q has committed %d, which is not before %d", cur.Name, cur.Committed, offset)
		if cur.Group != nil {
			is = fmt.Sprintf("group %q has settled %d", cur.Name, offset)
		}
		return refuse(Conflict, "offset", is, "it was handled, or its letter is gone; go on behind it"), nil
	}
	l, err := a.letter(id)
	if err != nil || l == nil {
		return Result{}, err
	}
	return Result{Cursor: a.s.view(cur), Letter: a.viewOf(l), Replayed: true}, nil
}

func (a *applier) viewOf(l *Letter) *LetterView {
	v := LetterView{Letter: *l, State: LetterDead}
	if a.isUnderWay(l) {
		v.State, v.Copy = LetterRedriven, l.Lineage[len(l.Lineage)-1]
	}
	v.Lineage = slices.Clone(l.Lineage)
	return &v
}

// letterAt returns the letter that an event at offset is for the cursor: of the copy
// that stands there, or the one made there before, or a new one without an id.
func (a *applier) letterAt(cursor string, offset uint64) (l *Letter, err error) {
	id := uint64(0)
	list := a.s.letters.underWay[cursor]
	if i, found := find(list, offset); found {
		id = list[i].letter
	} else if id, err = a.indexed(atKey(cursor, offset)); err != nil {
		return nil, err
	}
	if id != 0 {
		l, err = a.letter(id)
	}
	if l == nil {
		l = &Letter{}
	}
	return l, err
}

// noRoom refuses what would take the letters past their bound in bytes; nil is room.
func (a *applier) noRoom(size, before uint64) *Result {
	limit := a.s.settings.LettersBytes
	if size <= before || a.s.meta.Letters.Bytes+size-before <= limit {
		return nil
	}
	r := refuse(Overloaded, "event", fmt.Sprintf("the dead letters take %d bytes, the limit is %d", a.s.meta.Letters.Bytes, limit),
		"redrive or purge some, or raise dlq.max_bytes; until then the cursor stays where it is")
	return &r
}

// isUnderWay reports whether a letter's newest copy is still to be committed.
func (a *applier) isUnderWay(l *Letter) bool { return a.s.letters.isUnderWay(l) }

func (s *letters) isUnderWay(l *Letter) bool {
	if l.Redrives == 0 || len(l.Lineage) == 0 {
		return false
	}
	list := s.underWay[l.Cursor]
	i, found := find(list, l.Lineage[len(l.Lineage)-1])
	return found && list[i].letter == l.ID
}

func (a *applier) setUnderWay(cursor string, list []underWay) {
	if len(list) == 0 {
		delete(a.s.letters.underWay, cursor)
	} else {
		a.s.letters.underWay[cursor] = list
	}
}

// deleteCopy removes what is stored of a copy, and its rank.
func (a *applier) deleteCopy(cursor string, offset uint64) {
	a.tx.Delete(copyKey(cursor, offset))
	a.s.letters.copies.Delete(ranked[uint64]{offset, cursor})
}

// takeCopy takes the copy at an offset from those under way, if there is one.
func (a *applier) takeCopy(cursor string, offset uint64) bool {
	list := a.s.letters.underWay[cursor]
	i, found := find(list, offset)
	if found {
		a.deleteCopy(cursor, offset)
		a.setUnderWay(cursor, slices.Delete(list, i, i+1))
	}
	return found
}

// resolveLetters removes the letters whose copies the cursor has committed.
func (a *applier) resolveLetters(cur *Cursor) {
	a.resolveSettled(cur.Name, ranges{{From: 1, To: cur.Committed}})
}

// resolveSettled removes the letters whose copies stand in what was settled. Those that
// were settled before are not under way any more.
func (a *applier) resolveSettled(cursor string, settled ranges) {
	list := a.s.letters.underWay[cursor]
	if len(list) == 0 || len(settled) == 0 {
		return
	}
	low, _ := find(list, settled[0].From)
	high, _ := find(list, settled.last()+1)
	var kept []underWay
	for _, u := range list[low:high] {
		if !settled.has(u.offset) {
			kept = append(kept, u)
			continue
		}
		a.deleteCopy(cursor, u.offset)
		a.dropLetter(u.letter, cursor, u.at, u.bytes)
	}
	if resolved := high - low - len(kept); resolved > 0 {
		copy(list[high-len(kept):high], kept)
		copy(list[resolved:], list[:low])
		a.setUnderWay(cursor, list[resolved:])
	}
}

// reviveLetters makes the letters dead again whose copies up to an offset will not come
// to the cursor any more. They died when they did.
func (a *applier) reviveLetters(cursor string, upTo uint64) {
	list := a.s.letters.underWay[cursor]
	n := 0
	for n < len(list) && list[n].offset <= upTo {
		a.deleteCopy(cursor, list[n].offset)
		a.tx.Set(ageKey(list[n].born, list[n].letter), nil)
		n++
	}
	if n > 0 {
		a.s.letters.ages.known = false
		a.setUnderWay(cursor, list[n:])
	}
}

// reviveTrimmed makes the letters dead again whose copies were trimmed: nobody gets those
// any more.
func (a *applier) reviveTrimmed() {
	for {
		first, _, some := a.s.letters.copies.Min()
		if !some || first.rank >= a.s.meta.First {
			return
		}
		a.reviveLetters(first.name, a.s.meta.First-1)
	}
}
