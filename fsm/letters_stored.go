package fsm

import (
	"strings"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of one DLQ_EVENTS_STORED, in bytes, whatever one entry stores.
const (
	maxStoredNames   = 16 << 10 // of the cursors that are listed
	maxStoredHandler = 256
	maxStoredError   = 1 << 10
)

// storedLetters counts the letters that became dead in this entry because their events failed, or were imported.
type storedLetters struct {
	count   int
	cursors map[string]int // how many of each, while the names fit
	names   int            // bytes of these names
	last    *Letter        // nil: none was stored
}

// note counts a letter, which must not be changed afterwards.
func (s *storedLetters) note(l *Letter) {
	// A handler that fails on every event fails on what is reported of it, too: without this its letters would never
	// end.
	if strings.HasPrefix(string(l.Type), "DLQ_") || strings.HasPrefix(string(l.Type), "HANDLER_") {
		return
	}
	s.count, s.last = s.count+1, l
	// Cursors that do not fit are in count alone. Imported letters have none.
	if _, listed := s.cursors[l.Cursor]; !listed {
		if s.names+len(l.Cursor) > maxStoredNames {
			return
		}
		s.names += len(l.Cursor)
	}
	if s.cursors == nil {
		s.cursors = map[string]int{}
	}
	s.cursors[l.Cursor]++
}

// lastOffset returns where the log has the event that has failed, 0 if it does not have it.
func (l *Letter) lastOffset() uint64 {
	if l.Offset == 0 && len(l.Lineage) > 0 { // of a handler without a cursor
		return l.Lineage[len(l.Lineage)-1]
	}
	return l.Offset
}

// reportStored emits one event for all letters that this entry has stored, with what is known of the last of them.
func (a *letterApplier) reportStored() {
	s := &a.stored
	if s.last == nil || a.s.meta.FeatureLevel < frame.LevelReports {
		return
	}
	a.reportLetters(event.DLQEventsStored, map[string]any{
		"count":     s.count,
		"cursors":   s.cursors,
		"letter_id": s.last.ID,
		"event":     s.last.Type,
		"offset":    s.last.lastOffset(),
		"handler":   truncate(s.last.Handler, maxStoredHandler),
		"error":     truncate(s.last.Error, maxStoredError),
	})
	// One letter is of one run, which the event then belongs to as well.
	if s.count == 1 {
		a.late[len(a.late)-1].CorrelationID = s.last.CorrelationID
	}
}
