package fsm

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// Cursor is a durable subscriber: everything up to Committed is handled.
//
// Committed never passes the tail and falls only by a seek. Generation increases
// with each open, that of a group with each seek; a commit of an older one is refused.
type Cursor struct {
	Name   string             `json:"name"`
	Filter event.Filter       `json:"filter"`
	Policy frame.CursorPolicy `json:"policy"`
	// Committed is the last offset that is handled, and all before it are; 0 is none.
	Committed  uint64    `json:"committed"`
	Generation uint64    `json:"generation"`
	Start      uint64    `json:"start,omitempty"` // what it was made to begin after, or a seek to before that
	Created    time.Time `json:"created"`
	Touched    time.Time `json:"touched"` // the last open, commit or seek
	Seeks      uint64    `json:"seeks,omitempty"`
	LastSeek   *Seek     `json:"last_seek,omitempty"`
	// Scanned is the offset up to which a leader found nothing open after Committed: the filter passes
	// nothing there but what a group has settled. Found says that the next offset is open.
	Scanned uint64 `json:"scanned,omitempty"`
	Found   bool   `json:"found,omitempty"`
	// Moved is when Committed changed last, Stalled is set from CURSOR_STALLED to
	// CURSOR_RECOVERED.
	Moved   time.Time `json:"moved,omitzero"`
	Stalled *Stall    `json:"stalled,omitempty"`
	// Throttled is set from BACKPRESSURE_ACTIVATED to BACKPRESSURE_RELEASED.
	Throttled *Throttle `json:"throttled,omitempty"`
	// Gap is what was trimmed before the cursor committed it. Only copies that leave the state have it:
	// see view. They share its types, which must not be changed.
	Gap *log.Gap `json:"gap,omitempty"`
	// Group is set where members share the cursor; Committed is then the offset up to
	// which all is settled.
	Group *Group `json:"group,omitempty"`
	// Openers and Seekers are the ids of the callers that opened and sought it last, the newest
	// at the end: a call of theirs that is late or repeated changes nothing. The last opener has
	// the generation; "" is a caller without an id. Copies lack them.
	Openers []string `json:"openers,omitempty"`
	Seekers []string `json:"seekers,omitempty"`

	stepped int64 // meta.Stepped at Touched
}

// callersKept bounds Openers and Seekers.
const callersKept = 4

// remember returns a copy of callers with id at its end and at most callersKept of them.
func remember(callers []string, id string) []string {
	return append(slices.Clone(callers[max(0, len(callers)-callersKept+1):]), id)
}

// callerKnown reports whether a caller that said who it is did this before.
func callerKnown(callers []string, id string) bool { return id != "" && slices.Contains(callers, id) }

// startGeneration fences the reader that has the cursor open.
func (c *Cursor) startGeneration(opener string) {
	c.Generation++
	c.Openers = remember(c.Openers, opener)
}

// Seek records that a cursor was moved on purpose.
type Seek struct {
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	At   time.Time `json:"at"`
}

// view returns a copy of a cursor with its gap, without the lists of a group, which may be long, and
// without the callers.
func (s *state) view(c *Cursor) *Cursor {
	out := *c
	out.Openers, out.Seekers = nil, nil
	out.Gap = s.gapOf(c)
	if c.Group != nil {
		out.Group = &Group{Policy: c.Group.Policy, Reserved: c.Group.Reserved, Open: c.Group.Open}
	}
	return &out
}

// time returns the replicated time of the entry.
func (a *applying) time() time.Time { return time.Unix(0, a.now).UTC() }

// unstepped is replicated time without what clock steps skipped.
func (a *applying) unstepped() int64 { return a.now - a.s.meta.Stepped }

// noCursor is the refusal of a name that no cursor has.
func noCursor(name string) Result {
	return refuse(NotFound, "cursor", fmt.Sprintf("there is no cursor %q", name),
		"create it: PUT /v1/cursors/NAME, or ringlog cursor create "+name)
}

// cursorApplier decides where cursors are, and who may move them.
type cursorApplier struct {
	*applying
	stalls  *stallApplier
	groups  *groupApplier
	letters *letterApplier

	moved []string // cursors whose commit has moved, or that are gone
}

// tail is the last offset given out, by this entry too.
func (a *applying) tail() uint64 { return a.s.meta.Last + uint64(len(a.accepted)) }

// offsetBefore returns the offset before a position, which is what a cursor at that position has
// committed.
func (a *applying) offsetBefore(p frame.Position) uint64 {
	switch p.Kind {
	case frame.AtEnd:
		return a.tail()
	case frame.AtOffset:
		return min(max(p.Offset, 1)-1, a.tail())
	default:
		return a.s.meta.First - 1
	}
}

// createCursor makes a cursor of one reader. A retry finds the one that it has made.
func (a *cursorApplier) createCursor(c frame.CursorCreate) Result { return a.makeCursor(c, nil) }

// makeCursor makes a cursor of one reader, or with a group one that members share.
func (a *cursorApplier) makeCursor(c frame.CursorCreate, group *Group) Result {
	// A retry is answered before any check: its cursor takes no room again.
	if old := a.s.cursors[c.Name]; old != nil {
		return a.answerExisting(old, c, group)
	}

	// Only a new cursor takes room.
	if refused := a.refuseFilter(c.Name, c.Filter, 0); refused != nil {
		return *refused
	}
	// A zero byte ends the name in keys.
	if strings.ContainsRune(c.Name, 0) {
		return refuse(Invalid, "cursor", "a cursor name with a zero byte", "choose another name")
	}
	if uint64(len(a.s.cursors)) >= a.s.settings.CursorMax {
		return refuse(Overloaded, "cursor",
			fmt.Sprintf("there are %d cursors, the limit is %d", len(a.s.cursors), a.s.settings.CursorMax),
			"remove cursors that are not used, or raise cursor.max")
	}
	made := &Cursor{
		Name:      c.Name,
		Filter:    c.Filter,
		Policy:    c.Policy,
		Committed: a.offsetBefore(c.Start),
		Group:     group,
		Created:   a.time(),
		Touched:   a.time(),
		stepped:   a.s.meta.Stepped,
	}

	// A group has nothing handed out yet. Its generation is one that no group has had.
	if group != nil {
		group.Reserved, made.Generation = made.Committed, a.nextGroupGeneration()
	}

	// Rank it: it may hold events back from a trim.
	made.Start = made.Committed
	a.s.addCursor(made)
	a.mayHold(made)
	a.stalls.noteMove(made)
	return a.saveCursor(made)
}

// refuseFilter returns why there is no room for a cursor with a filter in place of what took that
// many bytes before, and nil if there is room.
func (a *cursorApplier) refuseFilter(name string, f event.Filter, before uint64) *Result {
	var r Result
	switch size, taken, limit := cursorBytes(name, f), a.s.ranks.bytes, a.s.settings.CursorBytes; {
	case f.Bytes() > event.MaxFilterBytes:
		r = refuse(Invalid, "filter",
			fmt.Sprintf("a filter of %d bytes, the limit is %d", f.Bytes(), event.MaxFilterBytes),
			"name fewer types, sources, keys or ids")
	// A filter that takes no more than the one before is accepted, even above the limit.
	case size > before && taken-before+size > limit:
		r = refuse(Overloaded, "cursor", fmt.Sprintf("the cursors take %d bytes, the limit is %d", taken, limit),
			"remove cursors that are not used, or raise cursor.max_bytes")
	default:
		return nil
	}
	return &r
}

// answerExisting answers the creation of a cursor that is there: as the first time, if it is the
// same.
func (a *cursorApplier) answerExisting(old *Cursor, c frame.CursorCreate, group *Group) Result {
	is := ""
	switch {
	case old.Group != nil && group == nil:
		is = fmt.Sprintf("there is a group %q", c.Name)
	case old.Group == nil && group != nil:
		is = fmt.Sprintf("there is a cursor %q of one reader", c.Name)
	case !sameFilter(old.Filter, c.Filter) || old.Policy != c.Policy,
		group != nil && old.Group.Policy != group.Policy:
		is = fmt.Sprintf("the cursor %q exists with another filter or policy", c.Name)
	// A retry finds the cursor that it has created.
	default:
		return Result{Cursor: a.s.view(old)}
	}
	kind := "cursor"
	if old.Group != nil {
		kind = "group"
	}
	remedy := fmt.Sprintf("use another name, or remove it first: DELETE /v1/%ss/NAME, or ringlog %s rm %s",
		kind, kind, c.Name)
	// Only a cursor of one reader can be changed in place.
	if old.Group == nil && group == nil {
		remedy = fmt.Sprintf("use another name, or change the one there is, which stays at %d: "+
			"PUT /v1/cursors/NAME/filter, or ringlog cursor filter %s", old.Committed, c.Name)
	}
	return refuse(Exists, "cursor", is, remedy)
}

// sameFilter reports whether two filters are written the same. Two that pass the same events may
// differ.
func sameFilter(a, b event.Filter) bool {
	return slices.Equal(a.Types, b.Types) &&
		slices.Equal(a.Categories, b.Categories) &&
		slices.Equal(a.Sources, b.Sources) &&
		slices.Equal(a.Keys, b.Keys) &&
		slices.Equal(a.CorrelationIDs, b.CorrelationIDs)
}

// openCursor gives the cursor to a new opener under a new generation, which fences the reader before. A
// caller without an id is a new opener each time.
func (a *cursorApplier) openCursor(c frame.CursorOpen) Result {
	cur := a.s.cursors[c.Name]
	if cur == nil {
		return noCursor(c.Name)
	}
	if refused := notForGroups(cur); refused != nil {
		return *refused
	}
	switch {
	case len(c.Opener) > frame.MaxCallerID:
		return tooLongCaller("opener", c.Opener)
	// A new opener takes the cursor over and fences the reader before.
	case !callerKnown(cur.Openers, c.Opener):
		cur.startGeneration(c.Opener)
		a.useCursor(cur)
		return a.saveCursor(cur)
	// A late or repeated open of one that was replaced since must not fence its successor.
	case cur.Openers[len(cur.Openers)-1] != c.Opener:
		r := refuse(Fenced, "opener",
			fmt.Sprintf("cursor %q was opened again since, generation %d holds it", c.Name, cur.Generation),
			"open it again as another opener to take it back")
		r.Refusal.Expected = cur.Generation
		return r
	}

	// A retry of the present opener gets the generation that it has.
	return Result{Cursor: a.s.view(cur)}
}

// tooLongCaller is the refusal of an opener or a seeker; field says which.
func tooLongCaller(field, id string) Result {
	return refuse(Invalid, field, fmt.Sprintf("%d bytes, the limit is %d", len(id), frame.MaxCallerID), "use a UUID")
}

// commitCursor moves a cursor forward for the reader that holds its generation. A commit of what is
// committed already succeeds and moves nothing.
func (a *cursorApplier) commitCursor(c frame.CursorCommit) Result {
	cur, fenced := a.s.cursors[c.Name], a.fenced(c.Lease)
	switch {
	case fenced != nil:
		return *fenced
	case cur == nil:
		return noCursor(c.Name)
	case cur.Group != nil:
		return *notForGroups(cur)
	// Another reader has opened it since.
	case c.Generation != cur.Generation:
		r := refuse(Fenced, "generation",
			fmt.Sprintf("generation %d of cursor %q is over, %d holds it", c.Generation, c.Name, cur.Generation),
			"another reader opened the cursor; open it again to take it back")
		r.Refusal.Expected = cur.Generation
		return r
	case c.Offset > a.tail():
		r := refuse(PastTail, "offset", fmt.Sprintf("a commit of %d is past the tail, which is %d", c.Offset, a.tail()),
			"commit the offset of an event that was read")
		r.Refusal.Offset = a.tail()
		return r
	// A retry, or a commit that arrives late.
	case c.Offset <= cur.Committed:
		return a.touchCursor(cur)
	}

	// The commit moves the cursor, and resolves the letters whose copies it includes.
	a.advanceCursor(cur, c.Offset)
	a.letters.resolveLetters(cur)
	return a.savePlace(cur)
}

// advanceCursor moves a cursor forward. What a leader found after the new place stays known.
func (a *cursorApplier) advanceCursor(cur *Cursor, to uint64) {
	if to > cur.Committed {
		a.stalls.noteMove(cur)
	}
	// What was scanned up to there is committed; more than that still holds.
	next := place{committed: to}
	if cur.Scanned >= to {
		next.scanned, next.found = cur.Scanned, cur.Found
	}
	a.placeCursor(cur, next)
	a.useCursor(cur)
	a.mayHold(cur)
}

// touchCursor answers a commit that moves nothing. Where idle cursors expire it counts as use, which
// is stored once in a tenth of that time.
func (a *cursorApplier) touchCursor(c *Cursor) Result {
	if idle := a.s.settings.CursorIdle; idle > 0 && a.unstepped()-c.usedAt() >= int64(idle/10) {
		a.useCursor(c)
		return a.savePlace(c)
	}
	return Result{Cursor: a.s.view(c)}
}

// seekCursor moves a cursor, or a group, in either direction.
func (a *cursorApplier) seekCursor(c frame.CursorSeek) Result {
	cur := a.s.cursors[c.Name]
	if cur == nil {
		return noCursor(c.Name)
	}
	switch {
	case len(c.Seeker) > frame.MaxCallerID:
		return tooLongCaller("seeker", c.Seeker)
	// A late or repeated seek must not move the cursor back.
	case callerKnown(cur.Seekers, c.Seeker):
		return Result{Replayed: true, Cursor: a.s.view(cur)}
	}
	to := a.offsetBefore(c.To)
	if c.To.Kind == frame.AtOffset && c.To.Offset > a.tail()+1 {
		r := refuse(PastTail, "offset",
			fmt.Sprintf("a seek to %d is past the tail, which is %d", c.To.Offset, a.tail()), "seek to end instead")
		r.Refusal.Offset = a.tail()
		return r
	}

	// The seek itself: what it was, who asked, and the cursor's new place.
	cur.Seeks++
	cur.LastSeek = &Seek{From: cur.Committed, To: to, At: a.time()}
	if c.Seeker != "" {
		cur.Seekers = remember(cur.Seekers, c.Seeker)
	}
	// Seeking to before its start makes that its start.
	cur.Start = min(cur.Start, to)
	a.placeCursor(cur, place{committed: to})
	a.useCursor(cur)
	a.mayHold(cur)
	a.stalls.noteMove(cur)

	// Copies of letters before that place are not delivered any more.
	a.letters.reviveLetters(cur.Name, to)
	if cur.Group != nil {
		a.groups.moveGroup(cur, to)
	}
	return a.saveCursor(cur)
}

// deleteCursor leaves the cursor's letters: they can be redriven to a new cursor of that name, or to
// another one.
func (a *cursorApplier) deleteCursor(c frame.CursorDelete) Result {
	cur := a.s.cursors[c.Name]
	if cur == nil {
		gone := noCursor(c.Name)
		gone.Refusal.Remedy = "nothing was removed; to list them: GET /v1/cursors, or ringlog cursor ls"
		return gone
	}
	// The answer has the cursor as it was.
	gone := a.s.view(cur)
	a.removeCursor(cur)
	return Result{Cursor: gone}
}

// removeCursor deletes a cursor and what is stored of its group.
func (a *cursorApplier) removeCursor(cur *Cursor) {
	// No copy of a letter is delivered to it any more: its letters are dead again.
	a.letters.reviveLetters(cur.Name, math.MaxUint64)
	if cur.Group != nil {
		a.groups.forgetGroup(cur)
	}
	// Nothing waits for it any more.
	if cur.Throttled != nil {
		a.reportRelease(cur, 0, releasedRemoved)
	}
	a.s.dropCursor(cur)
	a.moved = append(a.moved, cur.Name)
	a.tx.Delete(key(prefixCursor, cur.Name))
	a.tx.Delete(key(prefixPlace, cur.Name))
}

// maxExpiredCursors bounds how many cursors one entry removes; the next ones remove
// what is left.
const maxExpiredCursors = 256

// expireCursors removes cursors that nobody has used for cursor.idle_expiry, those unused longest
// first.
func (a *cursorApplier) expireCursors() {
	idle := int64(a.s.settings.CursorIdle)
	if idle == 0 {
		return
	}
	for range maxExpiredCursors {
		used, cur, some := a.s.ranks.byUse.Min()
		// Where the one unused longest is not due, none is.
		if !some || used.rank+idle > a.unstepped() {
			return
		}
		a.removeCursor(cur)
	}
}
