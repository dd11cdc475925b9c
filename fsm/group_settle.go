package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/ringrift/ringlog/internal/frame"
)

// maxRetryError bounds the text that is kept of why a delivery failed, in bytes.
const maxRetryError = 1 << 10

// groupCommit is what a group becomes by one commit of its leader.
type groupCommit struct {
	// What the group is afterwards; see the fields of Cursor and Group.
	committed, reserved uint64
	open                uint64
	done                ranges
	retries             []frame.GroupRetry

	// Only the differences are written.
	settled ranges             // what the leader says is done
	kept    []frame.GroupRetry // retries that are new or changed
	over    []uint64           // offsets of those that are gone
}

// groupApplier decides what a group's members have settled, and what is redelivered.
type groupApplier struct {
	*applying
	cursors *cursorApplier
	letters *letterApplier
}

// settleGroup commits what the members of a group have settled, all of it or nothing.
func (a *groupApplier) settleGroup(c frame.GroupSettle) Result {
	cur, refused := a.groupFor(c.Name, c.Term, c.Generation, c.Lease)
	if refused != nil {
		return *refused
	}
	next, refused := a.planCommit(cur, c)
	if refused != nil {
		return *refused
	}
	return a.commitGroup(cur, next)
}

// planCommit works out what becomes of a group. It changes nothing.
func (a *groupApplier) planCommit(cur *Cursor, c frame.GroupSettle) (s groupCommit, refused *Result) {
	s.settled = c.Done
	if refused := a.checkCommit(c); refused != nil {
		return s, refused
	}

	// What is settled without a hole after the commit moves it; the rest stays as ranges. Open is bounded
	// by what there can be, whatever the leader has counted.
	s.done, s.committed = ranges(cur.Group.Done).union(s.settled).above(cur.Committed)
	s.reserved = max(cur.Group.Reserved, c.Reserved, s.done.last(), s.committed)
	s.open = c.Open
	if c.Reserved < cur.Group.Reserved {
		s.open = cur.Group.Open // a leader that has reserved less has not counted all
	}
	s.open = min(s.open, s.reserved-s.committed-s.done.within(s.committed+1, s.reserved))

	// Retries of events that were trimmed are dropped, the others joined with the new ones.
	kept := a.s.retries(cur.Group)
	for _, r := range cur.Group.Retries[:len(cur.Group.Retries)-len(kept)] {
		s.over = append(s.over, r.Offset)
	}
	a.mergeRetries(&s, kept, c.Retries)
	if n, m := len(s.done), len(s.retries); n > frame.MaxRanges || m > frame.MaxRetries {
		first := s.committed + 1
		r := refuse(Overloaded, "group",
			fmt.Sprintf("%d ranges and %d retries after offset %d, which is not settled; the limits are %d and %d",
				n, m, first, frame.MaxRanges, frame.MaxRetries),
			fmt.Sprintf("settle offset %d, or lower the max_pending of group %q", first, cur.Name))
		return s, &r
	}
	return s, nil
}

// checkCommit returns why a settlement is refused whatever its group knows, and nil if it is not.
func (a *groupApplier) checkCommit(c frame.GroupSettle) *Result {
	var r Result
	done, last := ranges(c.Done), uint64(0)
	// Two retries of one offset count as not sorted.
	byOffset := func(a, b frame.GroupRetry) int { return cmp.Or(cmp.Compare(a.Offset, b.Offset), -1) }
	if len(c.Retries) > 0 {
		last = c.Retries[len(c.Retries)-1].Offset
	}
	switch {
	case len(c.Done) > frame.MaxRanges:
		r = refuse(Invalid, "done", fmt.Sprintf("%d ranges in one settlement", len(c.Done)),
			fmt.Sprintf("send at most %d", frame.MaxRanges))
	case len(c.Retries) > frame.MaxRetries:
		r = refuse(Invalid, "retries", fmt.Sprintf("%d retries in one settlement", len(c.Retries)),
			fmt.Sprintf("send at most %d", frame.MaxRetries))
	case !done.ascending():
		r = refuse(Invalid, "done", "the ranges do not ascend, or overlap",
			"send ranges from a lower to a higher offset, each after the one before")
	case !slices.IsSortedFunc(c.Retries, byOffset):
		r = refuse(Invalid, "retries", "the retries do not ascend", "send each offset once, in their order")
	case max(c.Reserved, done.last(), last) > a.tail():
		r = refuse(PastTail, "offset",
			fmt.Sprintf("a settlement up to %d is past the tail, which is %d",
				max(c.Reserved, done.last(), last), a.tail()),
			"settle events that were read")
		r.Refusal.Offset = a.tail()
	default:
		return nil
	}
	return &r
}

// mergeRetries joins two ascending lists and leaves out what is not open. The count of an event's
// deliveries never falls. The old ones are all still open but those that this commit settles, which
// most often are none.
func (a *groupApplier) mergeRetries(s *groupCommit, old, fresh []frame.GroupRetry) {
	if len(fresh) == 0 && !s.settled.meet(old) {
		s.retries = old
		return
	}
	// Merge them by offset.
	s.retries = make([]frame.GroupRetry, 0, len(old)+len(fresh))
	for len(old) > 0 || len(fresh) > 0 {
		// An old retry that nothing new is known of stays, unless its event was settled.
		if len(fresh) == 0 || (len(old) > 0 && old[0].Offset < fresh[0].Offset) {
			if s.settled.has(old[0].Offset) {
				s.over = append(s.over, old[0].Offset)
			} else {
				s.retries = append(s.retries, old[0])
			}
			old = old[1:]
			continue
		}

		// A new one takes the place of the old one of the same event.
		r, known := fresh[0], len(old) > 0 && old[0].Offset == fresh[0].Offset
		fresh, r.Error = fresh[1:], truncate(r.Error, maxRetryError)
		before := frame.GroupRetry{}
		if known {
			before, old = old[0], old[1:]
			r.Deliveries = max(r.Deliveries, before.Deliveries)
		}

		// Only what differs from what is stored is written.
		switch open := a.isOpen(s, r.Offset); {
		case open && r == before:
			s.retries = append(s.retries, r)
		case open:
			s.retries, s.kept = append(s.retries, r), append(s.kept, r)
		case known:
			s.over = append(s.over, r.Offset)
		}
	}
}

// isOpen reports whether an event is not settled yet, and can be delivered.
func (a *groupApplier) isOpen(s *groupCommit, offset uint64) bool {
	return offset > s.committed && offset <= s.reserved && offset >= a.s.meta.First && !s.done.has(offset)
}

// truncate shortens a text to at most limit bytes, at the end of a character.
func truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	// A character that begins before the limit and ends after it is left out.
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// commitGroup applies a plan to the group and stores what it changes.
func (a *groupApplier) commitGroup(cur *Cursor, s groupCommit) Result {
	g := cur.Group
	moved := s.committed != cur.Committed || s.reserved != g.Reserved || s.open != g.Open
	// Ranges, retries and the place have keys of their own: only what differs is written.
	if !slices.Equal(s.done, g.Done) {
		a.saveDone(cur.Name, s.done)
	}
	a.saveRetries(cur.Name, s.kept, s.over)
	g.Reserved, g.Open, g.Done, g.Retries = s.reserved, s.open, s.done, s.retries
	a.letters.resolveSettled(cur.Name, s.settled)
	// A commit that moves nothing counts as use of the group.
	if !moved {
		return a.cursors.touchCursor(cur)
	}
	a.cursors.advanceCursor(cur, s.committed)
	return a.cursors.savePlace(cur)
}

// deadInGroup makes an event of a group a dead letter and settles it, both in one entry. It
// settles no other event.
func (a *groupApplier) deadInGroup(c frame.GroupDead) (Result, error) {
	l := c.Letter
	cur, refused := a.groupFor(l.Cursor, c.Term, l.Generation, l.Lease)
	if refused != nil {
		return *refused, nil
	}

	// A retry gets the letter that was made the first time.
	if cur.Settled(l.Offset) {
		return a.letters.answerDead(cur, l.Offset)
	}

	// The event is settled, and one less is open.
	next, refused := a.planCommit(cur, frame.GroupSettle{
		Reserved: cur.Group.Reserved,
		Open:     max(cur.Group.Open, 1) - 1,
		Done:     []frame.Range{{From: l.Offset, To: l.Offset}},
	})
	if refused != nil {
		return *refused, nil
	}
	return a.letters.storeLetter(cur, l, func() Result { return a.commitGroup(cur, next) })
}

// moveGroup moves a group to an offset and forgets what it knew of events.
func (a *groupApplier) moveGroup(cur *Cursor, to uint64) {
	// Under another generation nothing counts that a leader still reports of the events before.
	a.forgetGroup(cur)
	cur.Group.Reserved, cur.Group.Open, cur.Generation = to, 0, a.cursors.nextGroupGeneration()
}

// forgetGroup removes what is stored beside a group's cursor.
func (a *groupApplier) forgetGroup(cur *Cursor) {
	// Its place is in that of the cursor, which the caller stores or deletes.
	if len(cur.Group.Done) > 0 {
		a.saveDone(cur.Name, nil)
	}
	for _, r := range cur.Group.Retries {
		a.tx.Delete(retryKey(cur.Name, r.Offset))
	}
	cur.Group.Done, cur.Group.Retries = nil, nil
}

// retries returns those of events that the log still has. The next commit forgets the others,
// since a trim does not go through groups.
func (s *state) retries(g *Group) []frame.GroupRetry {
	n, _ := findRetry(g.Retries, s.meta.First)
	return g.Retries[n:]
}
