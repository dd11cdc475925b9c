package group

import (
	"sort"

	"github.com/ringrift/ringlog/internal/frame"
)

// state is the state of an event; the package's comment draws the transitions.
type state uint8

const (
	unopened state = iota
	parked
	held
	dying
	acked
	sent
	done
)

// slot is a matching event after the committed offset.
type slot struct {
	offset      uint64
	ackDeadline int64   // while held: when its delivery expires, in nanoseconds since 1970
	notBefore   int64   // while parked: when it may be delivered, in nanoseconds since 1970; 0 is at once
	next        uint64  // number of the next opened slot of its key; 0 is none
	key         *key    // nil is none
	member      *Member // while held
	count       uint32  // its deliveries, including the one under way
	fails       uint32  // count as it was when it failed
	size        uint32  // about what the event takes in an answer, in bytes
	state       state
	failed      bool // a delivery of it failed, and that is to be in the log
	unreported  bool // … and no ack batch has it yet
	reporting   bool // … and the ack batch under way has it
	queued      bool // without a key: it is in the ready queue
	pinned      bool // its key's owner has settled it, and the log does not have that yet
}

// settled reports whether the event is never delivered again.
func (s *slot) settled() bool { return s.state >= acked }

// due reports whether a parked slot may be delivered: its time has come, and the log has
// how its last delivery ended.
func (s *slot) due(now int64) bool { return s.notBefore <= now && !s.unreported && !s.reporting }

// window holds the slots of the matching events after the committed offset, and what the log has
// of these events. It knows neither keys nor members.
//
// Invariants: the slots ascend by offset. Those below number opened are opened, and none of these
// has an offset above reserved.
type window struct {
	slots     ring[slot]
	opened    uint64 // number of the first slot that is not opened
	committed uint64 // the log has every event up to here as settled
	scanned   uint64 // the log was read up to here
	reserved  uint64 // events up to here may be delivered, as the log has it
	unsettled int    // slots that are not settled

	dirtyLow, dirtyHigh uint64 // numbers: the slots between have something for the log; 0 is none
}

// slotAt returns the slot of the event at offset and its number, or nil.
func (w *window) slotAt(offset uint64) (n uint64, s *slot) {
	n = w.slotFrom(offset)
	if !w.slots.has(n) || w.slots.at(n).offset != offset {
		return 0, nil
	}
	return n, w.slots.at(n)
}

// slotFrom returns the number of the first slot at offset or after it.
func (w *window) slotFrom(offset uint64) uint64 {
	n := w.slots.len()
	if n == 0 || offset <= w.slots.at(w.slots.first).offset {
		return w.slots.first
	}
	// Mostly every event matches, and the distance in offsets is the one in slots.
	if distance := offset - w.slots.at(w.slots.first).offset; distance < uint64(n) {
		if guess := w.slots.first + distance; w.slots.at(guess).offset == offset {
			return guess
		}
	}
	return w.slots.first + uint64(sort.Search(n, func(i int) bool {
		return w.slots.at(w.slots.first+uint64(i)).offset >= offset
	}))
}

// eachIn calls visit with the slots in a range of offsets. It appends to missing the offsets
// that have no slot, or for whose slot visit returned false.
func (w *window) eachIn(
	r frame.Range, missing []frame.Range, visit func(n uint64, s *slot) bool,
) []frame.Range {
	from := r.From // the offsets before it are visited, or missing already
	for n := w.slotFrom(r.From); n < w.slots.next; n++ {
		s := w.slots.at(n)
		if s.offset > r.To {
			break
		}
		if !visit(n, s) {
			continue
		}
		if from < s.offset {
			missing = frame.AppendRange(missing, frame.Range{From: from, To: s.offset - 1})
		}
		from = s.offset + 1
	}
	if from <= r.To && from != 0 { // 0 is after the largest offset
		missing = frame.AppendRange(missing, frame.Range{From: from, To: r.To})
	}
	return missing
}

// settlesFrom is the first offset that settling slot n settles: the events before it that
// do not match the filter are settled with it.
func (w *window) settlesFrom(n uint64) uint64 {
	if n == w.slots.first {
		return w.committed + 1
	}
	return w.slots.at(n-1).offset + 1
}

// markDirty notes that slot n has something for the log.
func (w *window) markDirty(n uint64) {
	if w.dirtyLow == 0 || n < w.dirtyLow {
		w.dirtyLow = n
	}
	w.dirtyHigh = max(w.dirtyHigh, n)
}

// eachHeld calls end with the slots that a member holds, the last one first. end takes the slot
// from the member; in that order it revokes no later one of the key that it is called with.
func (w *window) eachHeld(m *Member, end func(n uint64, s *slot)) {
	for n := w.slots.next; n > w.slots.first && m.held > 0; n-- {
		if s := w.slots.at(n - 1); s.state == held && s.member == m {
			end(n-1, s)
		}
	}
}

// unsettledFrom counts the unsettled events from slot n on, which is not opened. Only a
// trim settles such slots, and it settles a prefix of them.
func (w *window) unsettledFrom(n uint64) int {
	for n < w.slots.next && w.slots.at(n).settled() {
		n++
	}
	return int(w.slots.next - n)
}

// settledUpTo is the offset up to which there is no unsettled event.
func (w *window) settledUpTo() uint64 {
	if w.unsettled == 0 {
		return w.scanned
	}
	if first := w.slots.at(w.slots.first); !first.settled() {
		return first.offset - 1
	}
	return w.committed
}
