package fsm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// The states of a letter.
const (
	LetterDead     = "dead"
	LetterRedriven = "redriven" // its event was appended again, and its cursor has not committed that
)

// LetterView is a letter as readers see it.
type LetterView struct {
	Letter
	State string `json:"state"`          // LetterDead or LetterRedriven
	Copy  uint64 `json:"copy,omitempty"` // of one redriven: where its event is now
}

// LetterStats are figures about the dead letters.
type LetterStats struct {
	Count    uint64    `json:"count"`
	Redriven uint64    `json:"redriven"` // of those, under way to their cursors
	Bytes    uint64    `json:"bytes"`
	MaxBytes uint64    `json:"max_bytes"`
	Oldest   time.Time `json:"oldest,omitzero"` // of those that are dead
	Stale    bool      `json:"stale,omitempty"` // DLQ_STALE_EVENTS has reported the oldest
	Ever     uint64    `json:"ever"`            // that there have been
}

// letterStats counts the letters of s. The caller holds mu.
func (v *views) letterStats(s *state) LetterStats {
	t := s.meta.Letters
	stats := LetterStats{
		Count:    t.Count,
		Redriven: s.letters.countUnderWay(),
		Bytes:    t.Bytes,
		MaxBytes: s.settings.LettersBytes,
	}
	if t.Next > 0 {
		stats.Ever = t.Next - 1
	}

	// A machine that is closed, or a failed read, leaves Oldest out.
	if t.Count > stats.Redriven && v.stored != nil {
		if ages, err := s.letters.agesIn(v.stored, t.Reported); err == nil && ages.oldest != 0 {
			var oldest Letter
			if readJSON(v.stored, indexKey(prefixLetter, ages.oldestID), &oldest) == nil {
				stats.Oldest, stats.Stale = oldest.Dead, ages.oldest <= t.Reported
			}
		}
	}
	return stats
}

// lettersDue calls earlier with when letters are to be purged or reported as stale. Where more are
// due than one entry purges, the next one is due at once.
func (v *views) lettersDue(s *state, earlier func(at int64, after time.Duration)) {
	set := &s.settings
	if s.meta.Letters.Count == 0 || v.stored == nil || (set.LettersAge == 0 && set.LettersStale == 0) {
		return
	}
	ages, err := s.letters.agesIn(v.stored, s.meta.Letters.Reported)
	if err != nil {
		return
	}

	// Ages leave clock steps out; deadlines are in replicated time, which has them. Where more are due than
	// one entry purges, the deadline is now.
	if ages.oldest != 0 {
		earlier(max(ages.oldest+s.meta.Stepped, s.meta.Time-int64(set.LettersAge)), set.LettersAge)
	}
	if ages.unreported != 0 {
		earlier(ages.unreported+s.meta.Stepped, set.LettersStale)
	}
}

// ErrNoLetter says that there is no letter of that id; one that was resolved or purged
// has had it.
var ErrNoLetter = errors.New("there is no such dead letter")

// letterReader is the part of a Machine that reads letters from the database, beside the entries
// that are applied.
type letterReader struct{ log *log.Log }

// Letter returns a letter and its event. The error wraps ErrNoLetter where there is
// none.
func (r letterReader) Letter(id uint64) (l LetterView, e event.Event, err error) {
	err = r.log.View(func(db kv.DB) error {
		// One snapshot, so the letter, its state and its event are of the same entry.
		now := db.NewSnapshot()
		defer now.Close()
		value, err := readValue(now, indexKey(prefixLetter, id))
		if err != nil {
			return err
		}
		if value == nil {
			return ErrNoLetter
		}
		// The letter, whether it is under way, and its event.
		read, err := readLetter(value)
		if err != nil {
			return err
		}
		l, err = viewLetter(now, read)
		if err != nil {
			return err
		}
		copied, err := readValue(now, indexKey(prefixCopy, id))
		if err != nil {
			return err
		}
		e, err = frame.DecodeCopy(copied)
		return err
	})
	if err != nil {
		return l, e, fmt.Errorf("letter %d: %w", id, err)
	}

	// The copy does not have its offset.
	e.Offset = l.Offset
	return l, e, nil
}

// LetterAt returns the letter that a cursor has made at an offset.
func (r letterReader) LetterAt(cursor string, offset uint64) (l LetterView, err error) {
	id := uint64(0)
	err = r.log.View(func(db kv.DB) error {
		value, err := readValue(db, atKey(cursor, offset))
		if err != nil {
			return err
		}
		if value == nil {
			return ErrNoLetter
		}
		// The index has the id alone.
		id = binary.BigEndian.Uint64(value)
		return nil
	})
	if err != nil {
		return l, fmt.Errorf("letter of cursor %s at %d: %w", cursor, offset, err)
	}

	// Letter reports where it was removed in between.
	l, _, err = r.Letter(id)
	return l, err
}

// letterPage is how many letters are read at a time: a state that is replaced waits for its readers.
const letterPage = 64

// EachLetter calls yield with the letters whose ids are above after, by id, until it
// returns false. Nothing waits for yield; a letter that changes meanwhile is shown as it
// was or as it is.
func (r letterReader) EachLetter(ctx context.Context, after uint64, yield func(LetterView) bool) error {
	// Each page is of one moment; between pages letters may change.
	for {
		page, err := r.letterPage(after)
		if err != nil {
			return fmt.Errorf("letters: %w", err)
		}
		for _, l := range page {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("letters: %w", err)
			}
			if !yield(l) {
				return nil
			}
			after = l.ID
		}

		// A page that is not full is the last one.
		if len(page) < letterPage {
			return nil
		}
	}
}

// letterPage returns up to letterPage letters whose ids are above after, by id.
func (r letterReader) letterPage(after uint64) (page []LetterView, err error) {
	err = r.log.View(func(db kv.DB) error {
		// One snapshot, so a letter and its copy are of the same entry.
		now := db.NewSnapshot()
		defer now.Close()
		return scanKeys(now, indexKey(prefixLetter, after+1), []byte{prefixLetter + 1}, func(_, value []byte) error {
			l, err := readLetter(value)
			if err != nil {
				return err
			}
			v, err := viewLetter(now, l)
			page = append(page, v)
			if err == nil && len(page) == letterPage {
				err = errScanned
			}
			return err
		})
	})
	return page, err
}

// viewLetter returns a letter as readers see it, from the database alone. It looks for the copy of one that is
// under way: it is the newest of its lineage.
func viewLetter(r kv.Reader, l *Letter) (LetterView, error) {
	v := LetterView{Letter: *l, State: LetterDead}
	if l.Redrives == 0 || len(l.Lineage) == 0 {
		return v, nil
	}

	// A copy without a key is not delivered any more: its letter is dead again.
	newest := l.Lineage[len(l.Lineage)-1]
	value, err := readValue(r, copyKey(l.Cursor, newest))
	if value != nil {
		v.Copy, v.State = newest, LetterRedriven
	}
	return v, err
}
