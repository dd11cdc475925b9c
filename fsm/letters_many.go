package fsm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// Bounds of what one entry does to many letters.
const (
	maxRedriveBytes = 4 << 20          // of events appended again
	maxAgedOut      = frame.MaxLetters // letters purged by their age
)

// redriveRequest is a redrive whose answer is filled in at the end of the entry, because its
// copies follow the clients' events.
type redriveRequest struct {
	frame.Redrive
	answer int // its place among the entry's answers
}

// requestRedrive notes a redrive for the end of the entry. It refuses only if the cursor is missing.
func (a *letterApplier) requestRedrive(c frame.Redrive) Result {
	if c.To != "" && a.s.cursors[c.To] == nil {
		return noCursor(c.To)
	}
	a.redrives = append(a.redrives, redriveRequest{c, len(a.answers)})
	return Result{}
}

// redriveAll does the redrives of this entry and fills their answers in. The clients' block is stored.
func (a *letterApplier) redriveAll() error {
	// In the order of the commands: a letter that one redrive has taken is under way for the next.
	for _, r := range a.redrives {
		result, err := a.redriveLetters(r.Redrive)
		if err != nil {
			return err
		}
		a.answers[r.answer].Letters = result
	}
	return nil
}

// redrivenBlock is the block that a redrive appends for one cursor.
type redrivenBlock struct {
	cursor  string      // the only one that it is delivered to
	batch   frame.Batch // of the copies of their events
	letters []*Letter   // of each event of batch
}

// redriveLetters appends the events of dead letters again, one block for each cursor. They are not
// deduplicated. An error is one of reading, or says that the state is damaged.
func (a *letterApplier) redriveLetters(c frame.Redrive) (*LettersResult, error) {
	result := &LettersResult{}
	blocks, err := a.groupByCursor(c, result)
	if err != nil || len(blocks) == 0 {
		return result, err
	}

	// Append the blocks, then the event that says where they are.
	cursors := map[string]int{}
	result.First = a.s.meta.Last + 1
	for _, b := range blocks {
		a.appendRedriven(b)
		cursors[b.cursor] = len(b.letters)
		result.Done += len(b.letters)
	}
	result.Last = a.s.meta.Last
	a.reportLetters(event.DLQEventsReplayed, map[string]any{"count": result.Done, "cursors": cursors,
		"first_offset": result.First, "last_offset": result.Last})
	return result, nil
}

// groupByCursor returns the letters that can be redriven, by cursor, in the order of the first letter
// of each. It notes in result what becomes of the others. result.Left has the letters that this entry has no room for.
func (a *letterApplier) groupByCursor(c frame.Redrive, result *LettersResult) (blocks []*redrivenBlock, err error) {
	byCursor, taken, bytes := map[string]*redrivenBlock{}, map[uint64]bool{}, 0
	for i, id := range c.Letters {
		l, err := a.readLetter(id)
		if err != nil {
			return nil, err
		}

		// Letters that are gone, under way or without a cursor are left out. Without a target each goes to the cursor
		// that it came from.
		to := c.To
		if l != nil {
			to = cmp.Or(c.To, l.Cursor)
		}
		switch {
		case l == nil:
			result.Missing = append(result.Missing, id)
			continue
		case taken[id] || a.isUnderWay(l):
			result.Skipped++
			continue
		case a.s.cursors[to] == nil:
			result.NoCursor = append(result.NoCursor, id)
			continue
		}

		// The first letter always fits; the caller asks again for what is left.
		copied, err := a.readCopy(id)
		if err != nil {
			return nil, err
		}
		bytes += len(copied)
		if bytes > maxRedriveBytes && len(taken) > 0 {
			result.Left = c.Letters[i:]
			break
		}

		// Its copy is appended to the block of its cursor.
		b := byCursor[to]
		if b == nil {
			b = &redrivenBlock{cursor: to}
			byCursor[to] = b
			blocks = append(blocks, b)
		}
		if err := b.batch.AddCopy(copied); err != nil {
			return nil, fmt.Errorf("letter %d: %w: %w", id, ErrDamaged, err)
		}
		taken[id], b.letters = true, append(b.letters, l)
	}
	return blocks, nil
}

// appendRedriven appends a block for one cursor and marks its letters as under way.
func (a *letterApplier) appendRedriven(b *redrivenBlock) {
	offset := a.s.meta.Last + 1
	ids := make([]uint64, len(b.letters))
	for i, l := range b.letters {
		ids[i] = l.ID
	}

	// The block, then for each letter: it is no longer dead, and its copy is under way.
	a.appendTargeted(frame.EncodeBlock(&b.batch), b.cursor, ids)
	for i, old := range b.letters {
		// A copy: readers may have the old one.
		l := *old
		a.tx.Delete(ageKey(l.bornAt(), l.ID))
		if l.Cursor != b.cursor {
			a.moveLetter(&l, b.cursor)
		}
		// The lineage leads from each copy to the event before.
		l.Redrives++
		l.appendLineage(offset + uint64(i))
		a.saveLetter(&l)
		u := l.copyAt(offset + uint64(i))
		a.tx.Set(copyKey(b.cursor, u.offset), u.encode())
		a.s.letters.addUnderWay(b.cursor, u)
	}
}

// moveLetter gives a letter to another cursor, for which its event was not dead-lettered anywhere. The caller saves it.
func (a *letterApplier) moveLetter(l *Letter, cursor string) {
	// The cursor before does not find it any more, and the name counts for its size.
	if l.Offset != 0 {
		a.setIndex(atKey(l.Cursor, l.Offset), 0)
	}
	a.resize(l, l.Bytes+uint64(len(cursor))-uint64(len(l.Cursor)))
	l.Cursor, l.Offset = cursor, 0
}

// appendTargeted stores a block that only one cursor is delivered, with the letter of each event. Its
// events have no dedup keys.
func (a *applying) appendTargeted(events frame.Block, cursor string, ids []uint64) {
	m := &a.s.meta
	b := &log.Block{
		Block:      events,
		First:      m.Last + 1,
		Index:      a.index,
		Term:       a.term,
		AppendedAt: time.Unix(0, a.now),
		Live:       len(ids),
		Target:     cursor,
		Letters:    ids,
	}
	m.Bytes += log.Append(a.tx, b, m.Bytes)
	// The window has blocks of all kinds, in the order of their times.
	m.Last = b.Last()
	a.s.window = append(a.s.window, windowBlock{m.Last, 0, a.now})
}

// purgeLetters removes dead letters. A letter that is under way is skipped: it is removed once its
// cursor has committed its copy.
func (a *letterApplier) purgeLetters(c frame.Purge) (Result, error) {
	result := &LettersResult{}
	cursors := map[string]int{}
	for _, id := range c.Letters {
		l, err := a.readLetter(id)
		if err != nil {
			return Result{}, err
		}
		switch {
		// It was purged, resolved, or never was.
		case l == nil:
			result.Missing = append(result.Missing, id)
		// Its event may still be handled, or it is younger than was asked for.
		case a.isUnderWay(l) || (c.OlderThan > 0 && a.time().Sub(l.Dead) < c.OlderThan):
			result.Skipped++
		// It is dead, and old enough.
		default:
			a.purgeLetter(l)
			cursors[l.Cursor]++
			result.Done++
		}
	}
	a.reportPurged(result.Done, "request", cursors)
	return Result{Letters: result}, nil
}

// purgeLetter removes a letter that is dead. The caller reports it.
func (a *letterApplier) purgeLetter(l *Letter) {
	a.tx.Delete(ageKey(l.bornAt(), l.ID))
	a.dropLetter(l.Cursor, l.copyAt(0))
}

// reportPurged emits one event for all letters that were purged for a reason. Without any it emits nothing.
func (a *letterApplier) reportPurged(count int, reason string, cursors map[string]int) {
	if count > 0 {
		a.reportLetters(event.DLQEventsPurged, map[string]any{"count": count, "reason": reason, "cursors": cursors})
	}
}

// reportLetters appends an event about letters, with how many are left.
func (a *letterApplier) reportLetters(t event.Type, payload map[string]any) {
	// The numbers are those after the decision: the event is appended at the end of the entry.
	payload["dead"] = a.s.meta.Letters.Count - a.s.letters.countUnderWay()
	payload["under_way"] = a.s.letters.countUnderWay()
	text, err := json.Marshal(payload)
	// Long names of many cursors may be too much for an event, which would stop every node.
	if _, tooLong := event.Canonicalize(text, event.DefaultLimits()); err == nil && tooLong != nil {
		delete(payload, "cursors")
		text, err = json.Marshal(payload)
	}
	a.tx.keepError(err)
	a.late = append(a.late, event.Event{Type: t, Payload: text})
}

// countUnderWay counts the letters that are not dead.
func (s *letters) countUnderWay() uint64 { return uint64(s.copies.Len()) }

// importLetters keeps letters of another system, all that are new or none. They have no cursor.
func (a *letterApplier) importLetters(c frame.LetterImport) (Result, error) {
	result := &LettersResult{}
	// Check everything before anything is stored. Their sizes are those that they will have.
	size := uint64(0)
	for _, in := range c.Letters {
		if _, err := frame.DecodeCopy(in.Event); err != nil {
			return refuse(Invalid, "event", err.Error(), "send a copy of an event"), nil
		}
		size += importedLetter(in).size(in.Event)
	}
	// Letters that are known already count here as well: their number is bounded.
	if full := a.refuseSize(size, 0); full != nil {
		return *full, nil
	}
	for _, in := range c.Letters {
		// A letter that was imported before is skipped, even if it was purged since.
		known, err := a.readIndex(originKey(in.Origin))
		if err != nil {
			return Result{}, err
		}
		if known != 0 {
			result.Skipped++
			continue
		}
		e, err := frame.DecodeCopy(in.Event)
		if err != nil {
			return Result{}, err
		}

		// Store it, and that it was imported.
		l := importedLetter(in)
		a.newLetter(l, &e, in.Event)
		a.setIndex(originKey(in.Origin), l.ID)
		result.First, result.Last = cmp.Or(result.First, l.ID), l.ID
		result.Done++
	}
	return Result{Letters: result}, nil
}

// keepLetter keeps the event of a handler without a cursor, unless its letter is there already.
func (a *letterApplier) keepLetter(c frame.LetterKeep) (Result, error) {
	e, err := frame.DecodeCopy(c.Letter.Event)
	if err != nil {
		return refuse(Invalid, "event", err.Error(), "send a copy of the event"), nil
	}
	// Several nodes may propose the same letter: the first one counts.
	known, err := a.readIndex(originKey(c.Origin))
	if err != nil || known != 0 {
		return Result{Letters: &LettersResult{Skipped: 1}, Replayed: true}, err
	}

	// Its offset is no place of the cursor, which was never given the event: only the lineage has it.
	l := &Letter{Cursor: c.Letter.Cursor, Handler: c.Letter.Handler, Error: c.Letter.Error, Origin: c.From,
		KeptAs: c.Origin[:]}
	// A full store refuses it, so its event is not lost: whoever proposes it tries again.
	if full := a.refuseSize(l.size(c.Letter.Event), 0); full != nil {
		return *full, nil
	}
	l.failed(c.Letter, a.time())
	if c.Letter.Offset != 0 {
		l.appendLineage(c.Letter.Offset)
	}
	a.newLetter(l, &e, c.Letter.Event)
	a.setIndex(originKey(c.Origin), l.ID)
	return Result{Letters: &LettersResult{Done: 1, First: l.ID, Last: l.ID}}, nil
}

// importedLetter returns a letter of another system, which has no cursor and no offset.
func importedLetter(in frame.ImportedLetter) *Letter {
	return &Letter{
		Origin:      in.From,
		Error:       in.Error,
		Attempts:    in.Attempts,
		FirstFailed: in.Failed.UTC(),
		LastFailed:  in.Failed.UTC(),
	}
}

// ageLetters purges letters that are too old and reports those that have been dead for long. It is called before the
// commands of an entry.
func (a *letterApplier) ageLetters() error {
	// Most entries end here, or after a look at ages that are known.
	t, set := &a.s.meta.Letters, &a.s.settings
	if t.Count == 0 || (set.LettersAge == 0 && set.LettersStale == 0) {
		return nil
	}
	ages, err := a.s.letters.agesIn(a.db, t.Reported)
	if err != nil {
		return err
	}

	// Purge before reporting, so nothing purged is reported.
	a.s.letters.ages = ages
	if set.LettersAge > 0 && ages.oldest != 0 && ages.oldest+int64(set.LettersAge) <= a.unstepped() {
		if err := a.purgeAged(); err != nil {
			return err
		}
	}
	if set.LettersStale > 0 && ages.unreported != 0 && ages.unreported+int64(set.LettersStale) <= a.unstepped() {
		return a.reportStale()
	}
	return nil
}

// agesIn returns the ages that are known, or reads them. It does not keep what it reads: readers call it
// as well.
func (s *letters) agesIn(db kv.Reader, reported int64) (letterAges, error) {
	if s.ages.known {
		return s.ages, nil
	}
	return readAges(db, reported)
}

// purgeAged purges what is older than dlq.max_age, a bounded number an entry. The next entry continues with the others.
func (a *letterApplier) purgeAged() error {
	// The index by age has the oldest first.
	var ids []uint64
	until := a.unstepped() - int64(a.s.settings.LettersAge)
	err := scanKeys(a.db, ageKey(0, 0), ageKey(until+1, 0), func(key, _ []byte) error {
		_, id := ageOf(key)
		ids = append(ids, id)
		if len(ids) == maxAgedOut {
			return errScanned
		}
		return nil
	})
	if err != nil {
		return err
	}

	// Remove them, and report how many of which cursor.
	cursors := map[string]int{}
	for _, id := range ids {
		l, err := a.readLetter(id)
		if err != nil {
			return err
		}
		if l == nil {
			return fmt.Errorf("letter %d: %w: it is missing", id, ErrDamaged)
		}
		a.purgeLetter(l)
		cursors[l.Cursor]++
	}
	a.reportPurged(len(ids), "max_age", cursors)
	return nil
}

// reportStale reports the letters that have been dead for dlq.stale_after, each once. One event is for all of them.
func (a *letterApplier) reportStale() error {
	t := &a.s.meta.Letters
	// Count those that became stale since the last report, and remember the oldest.
	until, count, first := a.unstepped()-int64(a.s.settings.LettersStale), 0, uint64(0)
	err := scanKeys(a.db, ageKey(t.Reported+1, 0), ageKey(until+1, 0), func(key, _ []byte) error {
		_, id := ageOf(key)
		// This entry has purged it: the database still has its key.
		if l, changed := a.changed.letters[id]; changed && l == nil {
			return nil
		}
		first = cmp.Or(first, id)
		count++
		return nil
	})
	if err != nil {
		return err
	}

	// None of them is reported again, even where this entry has purged them all.
	t.Reported, a.s.letters.ages.known = until, false
	if count == 0 {
		return nil
	}

	// The event names how long the oldest has been dead.
	oldest, err := a.readLetter(first)
	if err == nil && oldest == nil {
		err = fmt.Errorf("letter %d: %w: it is missing", first, ErrDamaged)
	}
	if err != nil {
		return err
	}
	a.reportLetters(event.DLQStaleEvents, map[string]any{"count": count,
		"stale_after_s": int64(a.s.settings.LettersStale.Seconds()),
		"oldest_at":     oldest.Dead.Format(time.RFC3339Nano)})
	return nil
}
