package fsm

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// changedLetters are what this entry has done to letters so far, which the database has only
// after the entry. A nil letter and an id of 0 are gone.
type changedLetters struct {
	letters map[uint64]*Letter // by id
	copies  map[uint64][]byte  // of the events of new letters, by the letter's id
	index   map[string]uint64  // ids by index key
}

// letterApplier decides what becomes of dead letters.
type letterApplier struct {
	*applying
	cursors *cursorApplier

	changed  changedLetters
	stored   storedLetters
	redrives []redriveRequest // of this entry, in the order of its commands
}

// readLetter returns a letter, nil if there is none.
func (a *letterApplier) readLetter(id uint64) (*Letter, error) {
	// The database does not have yet what this entry changed.
	if l, changed := a.changed.letters[id]; changed {
		return l, nil
	}
	value, err := readValue(a.db, indexKey(prefixLetter, id))
	if err != nil || value == nil {
		return nil, err
	}
	l, err := readLetter(value)
	if err != nil {
		return nil, fmt.Errorf("read letter %d: %w", id, err)
	}
	return l, nil
}

// readCopy returns the copy of a letter's event. Each letter has one, so a missing one is damage.
func (a *letterApplier) readCopy(id uint64) ([]byte, error) {
	if copied, changed := a.changed.copies[id]; changed {
		return copied, nil
	}
	copied, err := readValue(a.db, indexKey(prefixCopy, id))
	if err == nil && copied == nil {
		err = fmt.Errorf("letter %d: %w: its event is missing", id, ErrDamaged)
	}
	return copied, err
}

// readIndex returns the id under an index key, 0 if there is none.
func (a *letterApplier) readIndex(key []byte) (uint64, error) {
	if id, changed := a.changed.index[string(key)]; changed {
		return id, nil
	}
	value, err := readValue(a.db, key)
	if err != nil || value == nil {
		return 0, err
	}
	// Not an id: the stored state is damaged.
	if len(value) != 8 {
		return 0, fmt.Errorf("read %q: %w", key, ErrDamaged)
	}
	return binary.BigEndian.Uint64(value), nil
}

// setIndex stores an id under an index key; 0 deletes the key.
func (a *letterApplier) setIndex(key []byte, id uint64) {
	if a.changed.index == nil {
		a.changed.index = map[string]uint64{}
	}
	// Also a key that is gone is noted: the database still has it.
	a.changed.index[string(key)] = id
	if id == 0 {
		a.tx.Delete(key)
	} else {
		a.tx.Set(key, binary.BigEndian.AppendUint64(nil, id))
	}
}

// changeLetter notes what a letter is from here on in this entry; nil is gone.
func (a *letterApplier) changeLetter(id uint64, l *Letter) {
	if a.changed.letters == nil {
		a.changed.letters, a.changed.copies = map[uint64]*Letter{}, map[uint64][]byte{}
	}
	a.changed.letters[id] = l
	a.s.letters.ages.known = false
}

// saveLetter stores a letter, which must not be changed afterwards.
func (a *letterApplier) saveLetter(l *Letter) {
	a.changeLetter(l.ID, l)
	a.tx.setJSON(indexKey(prefixLetter, l.ID), l)
}

// resize counts what a letter takes now. The difference may be negative, and wraps around as it should.
func (a *letterApplier) resize(l *Letter, size uint64) {
	a.s.meta.Letters.Bytes += size - l.Bytes
	l.Bytes = size
}

// newLetter gives a letter its id, keeps its copy and stores it as dead.
func (a *letterApplier) newLetter(l *Letter, e *event.Event, copied []byte) {
	t := &a.s.meta.Letters
	// Ids begin at 1; 0 is none.
	t.Next = max(t.Next, 1)
	l.ID = t.Next
	t.Next++
	t.Count++
	// What lists and filters of letters show of the event.
	l.Type, l.Key, l.Source, l.CorrelationID = e.Type, e.Key, e.Source, e.CorrelationID
	a.resize(l, l.size(copied))
	a.markDead(l)
	a.changed.copies[l.ID] = copied
	a.tx.Set(indexKey(prefixCopy, l.ID), copied)
}

// markDead stores a letter as dead from now on.
func (a *letterApplier) markDead(l *Letter) {
	l.Dead, l.Stepped = a.time(), time.Duration(a.s.meta.Stepped)
	a.saveLetter(l)
	// Its age begins now, and it is found at its offset.
	a.tx.Set(ageKey(l.bornAt(), l.ID), nil)
	if l.Offset != 0 {
		a.setIndex(atKey(l.Cursor, l.Offset), l.ID)
	}
	a.stored.note(l)
}

// dropLetter removes what is stored of a letter of the cursor but its age and its copy in the log.
func (a *letterApplier) dropLetter(cursor string, u underWay) {
	a.changeLetter(u.letter, nil)
	a.tx.Delete(indexKey(prefixLetter, u.letter))
	a.tx.Delete(indexKey(prefixCopy, u.letter))
	// By neither index it is found again: a letter of the same origin may be kept again.
	if u.at != 0 {
		a.setIndex(atKey(cursor, u.at), 0)
	}
	if len(u.keptAs) == frame.OriginSize {
		a.setIndex(originKey([frame.OriginSize]byte(u.keptAs)), 0)
	}
	a.s.meta.Letters.Count--
	a.s.meta.Letters.Bytes -= u.bytes
}

// deadLetter moves a cursor past an event that its handler could not handle, and
// keeps the event: one entry does both.
func (a *letterApplier) deadLetter(c frame.DeadLetter) (Result, error) {
	commit := frame.CursorCommit{Name: c.Cursor, Offset: c.Offset, Generation: c.Generation, Lease: c.Lease}
	cur := a.s.cursors[c.Cursor]
	if a.fenced(c.Lease) != nil || cur == nil || cur.Group != nil || c.Generation != cur.Generation ||
		c.Offset > a.tail() {
		return a.cursors.commitCursor(commit), nil // which refuses it with the reason
	}
	// A retry: the cursor is past the event already.
	if c.Offset <= cur.Committed {
		return a.answerDead(cur, c.Offset)
	}
	return a.storeLetter(cur, c, func() Result { return a.cursors.commitCursor(commit) })
}

// storeLetter keeps an event as a letter of the cursor. passes moves the cursor past the event.
func (a *letterApplier) storeLetter(cur *Cursor, c frame.DeadLetter, passes func() Result) (Result, error) {
	e, err := frame.DecodeCopy(c.Event)
	if err != nil {
		return refuse(Invalid, "event", err.Error(), "send a copy of the event as the log has it"), nil
	}

	// The event may be the copy of a letter that is there: then that one dies again.
	old, err := a.findLetter(cur.Name, c.Offset)
	if err != nil {
		return Result{}, err
	}
	// A refusal must leave the letter that is there as it is.
	l := *old
	l.Cursor, l.Handler, l.Error = cur.Name, c.Handler, c.Error
	if full := a.refuseSize(l.size(c.Event), old.Bytes); full != nil {
		return *full, nil
	}

	// Store the letter first: the commit must not resolve it.
	l.failed(c, a.time())
	a.storeDead(&l, &e, c)
	r := passes()
	r.Letter = a.viewOf(&l)
	return r, nil
}

// failed records what the handler reports.
func (l *Letter) failed(c frame.DeadLetter, now time.Time) {
	l.Attempts += max(c.Attempts, 1)
	l.LastFailed = now
	// The first failure is the handler's to report, but not in the future.
	if l.FirstFailed.IsZero() {
		l.FirstFailed = c.FirstFailed.UTC()
		if c.FirstFailed.IsZero() || c.FirstFailed.After(now) {
			l.FirstFailed = now
		}
	}
}

// storeDead stores a letter that has failed at the command's offset: a new one, one whose copy is at that
// offset, or one whose event the cursor has met again after a seek.
func (a *letterApplier) storeDead(l *Letter, e *event.Event, c frame.DeadLetter) {
	switch {
	case l.ID == 0:
		l.Offset = c.Offset
		l.appendLineage(c.Offset)
		a.newLetter(l, e, c.Event)
		return
	// The copy has failed: the letter is dead again, at the copy's offset.
	case a.takeCopy(l.Cursor, c.Offset):
		if l.Offset != 0 {
			a.setIndex(atKey(l.Cursor, l.Offset), 0)
		}
		l.Offset = c.Offset
	// Its copy is not committed yet: the letter stays under way.
	case a.isUnderWay(l):
		return
	// It is dead already; its age begins again.
	default:
		a.tx.Delete(ageKey(l.bornAt(), l.ID))
	}
	a.resize(l, l.size(c.Event))
	a.markDead(l)
}

// answerDead answers a dead letter for an event that is committed already: a retry gets the letter
// that was made then.
func (a *letterApplier) answerDead(cur *Cursor, offset uint64) (Result, error) {
	id, err := a.readIndex(atKey(cur.Name, offset))
	if err != nil {
		return Result{}, err
	}

	// No letter was made here, or it is gone.
	if id == 0 {
		is := fmt.Sprintf("cursor %q has committed %d, which is not before %d", cur.Name, cur.Committed, offset)
		if cur.Group != nil {
			is = fmt.Sprintf("group %q has settled %d", cur.Name, offset)
		}
		return refuse(Conflict, "offset", is, "it was handled, or its letter is gone; resume after it"), nil
	}
	l, err := a.readLetter(id)
	if err != nil || l == nil {
		return Result{}, err
	}
	return Result{Cursor: a.s.view(cur), Letter: a.viewOf(l), Replayed: true}, nil
}

// viewOf returns a letter as readers see it after this entry. It shares nothing with l.
func (a *letterApplier) viewOf(l *Letter) *LetterView {
	v := LetterView{Letter: *l, State: LetterDead}
	if a.isUnderWay(l) {
		v.State, v.Copy = LetterRedriven, l.Lineage[len(l.Lineage)-1]
	}
	v.Lineage = slices.Clone(l.Lineage)
	return &v
}

// findLetter returns the letter that an event at offset is for the cursor: the one whose copy is
// there, or the one made there before, or a new one without an id.
func (a *letterApplier) findLetter(cursor string, offset uint64) (l *Letter, err error) {
	id := uint64(0)
	list := a.s.letters.underWay[cursor]
	// A copy that is under way belongs to its letter, wherever that died before.
	if i, found := findCopy(list, offset); found {
		id = list[i].letter
	} else {
		id, err = a.readIndex(atKey(cursor, offset))
	}
	if err != nil {
		return nil, err
	}
	if id != 0 {
		l, err = a.readLetter(id)
	}

	// Nothing is known of the event: its letter is new.
	if l == nil {
		l = &Letter{}
	}
	return l, err
}

// refuseSize refuses what would take the letters past their bound in bytes; nil is room.
func (a *letterApplier) refuseSize(size, before uint64) *Result {
	// What does not grow is accepted, even above a limit that was lowered.
	limit := a.s.settings.LettersBytes
	if size <= before || a.s.meta.Letters.Bytes+size-before <= limit {
		return nil
	}
	r := refuse(Overloaded, "event",
		fmt.Sprintf("the dead letters take %d bytes, the limit is %d", a.s.meta.Letters.Bytes, limit),
		"redrive or purge some, or raise dlq.max_bytes; until then the cursor stays where it is")
	return &r
}

// isUnderWay reports whether a letter's newest copy is still to be committed.
func (a *letterApplier) isUnderWay(l *Letter) bool { return a.s.letters.isUnderWay(l) }

// isUnderWay reports whether a letter's newest copy is among those that its cursor has not committed.
func (s *letters) isUnderWay(l *Letter) bool {
	if l.Redrives == 0 || len(l.Lineage) == 0 {
		return false
	}
	list := s.underWay[l.Cursor]
	i, found := findCopy(list, l.Lineage[len(l.Lineage)-1])
	return found && list[i].letter == l.ID
}

// setUnderWay replaces the copies under way to a cursor. The caller deletes those that are gone.
func (a *letterApplier) setUnderWay(cursor string, list []underWay) {
	// A cursor without copies has no entry: the map must not grow with cursors that come and go.
	if len(list) == 0 {
		delete(a.s.letters.underWay, cursor)
	} else {
		a.s.letters.underWay[cursor] = list
	}
}

// deleteCopy removes what is stored of a copy, and its rank.
func (a *letterApplier) deleteCopy(cursor string, offset uint64) {
	a.tx.Delete(copyKey(cursor, offset))
	a.s.letters.copies.Delete(ranked[uint64]{offset, cursor})
}

// takeCopy takes the copy at an offset from those under way, if there is one.
func (a *letterApplier) takeCopy(cursor string, offset uint64) bool {
	list := a.s.letters.underWay[cursor]
	i, found := findCopy(list, offset)
	if found {
		a.deleteCopy(cursor, offset)
		a.setUnderWay(cursor, slices.Delete(list, i, i+1))
	}
	return found
}

// resolveLetters removes the letters whose copies the cursor has committed.
func (a *letterApplier) resolveLetters(cur *Cursor) {
	a.resolveSettled(cur.Name, ranges{{From: 1, To: cur.Committed}})
}

// resolveSettled removes the letters whose copies are among the offsets that were settled. Those
// that were settled before are not under way any more.
func (a *letterApplier) resolveSettled(cursor string, settled ranges) {
	list := a.s.letters.underWay[cursor]
	if len(list) == 0 || len(settled) == 0 {
		return
	}

	// Only copies between the first and the last settled offset can be among them.
	low, _ := findCopy(list, settled[0].From)
	high, _ := findCopy(list, settled.last()+1)
	var kept []underWay
	for _, u := range list[low:high] {
		if !settled.has(u.offset) {
			kept = append(kept, u)
			continue
		}
		a.deleteCopy(cursor, u.offset)
		a.dropLetter(cursor, u)
	}

	// Close the gap in place: what was kept moves up to the rest.
	if resolved := high - low - len(kept); resolved > 0 {
		copy(list[high-len(kept):high], kept)
		copy(list[resolved:], list[:low])
		a.setUnderWay(cursor, list[resolved:])
	}
}

// reviveLetters makes the letters dead again whose copies up to an offset are no longer delivered
// to the cursor. Their age counts from when they died first.
func (a *letterApplier) reviveLetters(cursor string, upTo uint64) {
	list := a.s.letters.underWay[cursor]
	n := 0
	// The letters are still stored; only the index by age does not have them.
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

// reviveTrimmed makes the letters dead again whose copies were trimmed. Copies are ranked by offset,
// so those of all cursors are found without asking each cursor.
func (a *letterApplier) reviveTrimmed() {
	for {
		first, _, some := a.s.letters.copies.Min()
		if !some || first.rank >= a.s.meta.First {
			return
		}
		a.reviveLetters(first.name, a.s.meta.First-1)
	}
}
