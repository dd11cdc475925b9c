package fsm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/frame"
	"github.com/ringrift/ringlog/log"
)

// Cursor is a durable subscriber: everything up to Committed is handled.
//
// Committed never passes the tail and never falls but by a seek. Generation rises
// with each open, that of a group with each seek; a commit of an older one is refused.
type Cursor struct {
	Name       string             `json:"name"`
	Filter     event.Filter       `json:"filter"`
	Policy     frame.CursorPolicy `json:"policy"`
	Committed  uint64             `json:"committed"`
	Generation uint64             `json:"generation"`
	Created    time.Time          `json:"created"`
	Touched    time.Time          `json:"touched"` // the last open, commit or seek
	Seeks      uint64             `json:"seeks,omitempty"`
	LastSeek   *Seek              `json:"last_seek,omitempty"`
	// Moved is when Committed changed last, Stalled is set from CURSOR_STALLED to
	// CURSOR_RECOVERED.
	Moved   time.Time `json:"moved,omitzero"`
	Stalled *Stall    `json:"stalled,omitempty"`
	// Gap is what was trimmed before the cursor had committed it; a commit behind
	// it, or a seek, takes it away.
	Gap *log.Gap `json:"gap,omitempty"`
	// Group is set where members share the cursor; Committed is then the offset up to
	// which all is settled.
	Group *Group `json:"group,omitempty"`
}

// Seek records that a cursor was moved on purpose.
type Seek struct {
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	At   time.Time `json:"at"`
}

// clone leaves the lists of a group out: they may be long.
func (c *Cursor) clone() *Cursor {
	out := *c
	if c.Gap != nil {
		gap := *c.Gap
		gap.Types = maps.Clone(gap.Types)
		out.Gap = &gap
	}
	if c.Group != nil {
		out.Group = &Group{Policy: c.Group.Policy, Reserved: c.Group.Reserved, Open: c.Group.Open}
	}
	return &out
}

func (a *applier) time() time.Time { return time.Unix(0, a.now).UTC() }

// saveCursor stores a cursor and answers with a copy.
func (a *applier) saveCursor(c *Cursor) Result {
	a.tx.setJSON(key(prefixCursor, c.Name), c)
	return Result{Cursor: c.clone()}
}

func noCursor(name string) Result {
	return refuse(NotFound, "cursor", fmt.Sprintf("there is no cursor %q", name), "create it: ringlog cursor create "+name)
}

// tail is the last offset given out, by this entry too.
func (a *applier) tail() uint64 { return a.s.meta.Last + uint64(len(a.accepted)) }

// before returns the offset in front of a position, which is what a cursor at that
// position has committed.
func (a *applier) before(p frame.Position) uint64 {
	switch p.Kind {
	case frame.AtEnd:
		return a.tail()
	case frame.AtOffset:
		return min(max(p.Offset, 1)-1, a.tail())
	default:
		return a.s.meta.First - 1
	}
}

func (a *applier) createCursor(c frame.CursorCreate) Result { return a.makeCursor(c, nil) }

// makeCursor makes a cursor of one reader, or with a group one that members share.
func (a *applier) makeCursor(c frame.CursorCreate, group *Group) Result {
	if old := a.s.cursors[c.Name]; old != nil {
		return sameAgain(old, c, group)
	}
	if uint64(len(a.s.cursors)) >= a.s.settings.CursorMax {
		return refuse(Overloaded, "cursor", fmt.Sprintf("there are %d cursors, the limit is %d", len(a.s.cursors), a.s.settings.CursorMax),
			"remove cursors that are not used, or raise cursor.max")
	}
	made := &Cursor{Name: c.Name, Filter: c.Filter, Policy: c.Policy, Committed: a.before(c.Start), Created: a.time(), Touched: a.time(), Group: group}
	if group != nil {
		group.Reserved, made.Generation = made.Committed, a.nextGroupGeneration()
	}
	a.s.cursors[c.Name] = made
	a.cursorMoved(made)
	return a.saveCursor(made)
}

// sameAgain answers the creation of a cursor that is there: as the first time, where it
// is the same.
func sameAgain(old *Cursor, c frame.CursorCreate, group *Group) Result {
	is := ""
	switch {
	case old.Group != nil && group == nil:
		is = fmt.Sprintf("there is a group %q", c.Name)
	case old.Group == nil && group != nil:
		is = fmt.Sprintf("there is a cursor %q of one reader", c.Name)
	case !sameFilter(old.Filter, c.Filter) || old.Policy != c.Policy || group != nil && old.Group.Policy != group.Policy:
		is = fmt.Sprintf("the cursor %q exists with another filter or policy", c.Name)
	default:
		return Result{Cursor: old.clone()}
	}
	remedy := "use another name, or remove it first: ringlog cursor rm " + c.Name
	if old.Group == nil && group == nil {
		remedy = fmt.Sprintf("use another name, or change the one there is, which stays at %d: ringlog cursor filter %s", old.Committed, c.Name)
	}
	return refuse(Exists, "cursor", is, remedy)
}

func sameFilter(a, b event.Filter) bool {
	return slices.Equal(a.Types, b.Types) && slices.Equal(a.Categories, b.Categories) && slices.Equal(a.Sources, b.Sources) &&
		slices.Equal(a.Keys, b.Keys) && slices.Equal(a.CorrelationIDs, b.CorrelationIDs)
}

func (a *applier) openCursor(c frame.CursorOpen) Result {
	cur := a.s.cursors[c.Name]
	if cur == nil {
		return noCursor(c.Name)
	}
	if refused := notForGroups(cur); refused != nil {
		return *refused
	}
	cur.Generation++
	cur.Touched = a.time()
	return a.saveCursor(cur)
}

func (a *applier) commitCursor(c frame.CursorCommit) Result {
	cur := a.s.cursors[c.Name]
	switch {
	case cur == nil:
		return noCursor(c.Name)
	case cur.Group != nil:
		return *notForGroups(cur)
	case c.Generation != cur.Generation:
		r := refuse(Fenced, "generation", fmt.Sprintf("generation %d of cursor %q is over, %d holds it", c.Generation, c.Name, cur.Generation),
			"another reader opened the cursor; open it again to take it back")
		r.Refusal.Expected = cur.Generation
		return r
	case c.Offset > a.tail():
		r := refuse(PastTail, "offset", fmt.Sprintf("a commit of %d is past the tail, which is %d", c.Offset, a.tail()),
			"commit the offset of an event that was read")
		r.Refusal.Offset = a.tail()
		return r
	case c.Offset <= cur.Committed:
		return a.touchCursor(cur)
	}
	a.advance(cur, c.Offset)
	a.resolveLetters(cur)
	return a.saveCursor(cur)
}

// advance moves a cursor forward.
func (a *applier) advance(cur *Cursor, to uint64) {
	if to > cur.Committed {
		a.cursorMoved(cur)
	}
	cur.Committed, cur.Touched = to, a.time()
	if cur.Gap != nil && cur.Committed >= cur.Gap.To {
		cur.Gap = nil
	}
}

// touchCursor answers a commit that moves nothing. Where idle cursors expire it
// counts as use, and is written down now and then.
func (a *applier) touchCursor(c *Cursor) Result {
	if idle := a.s.settings.CursorIdle; idle > 0 && a.now-c.Touched.UnixNano() >= int64(idle/10) {
		c.Touched = a.time()
		return a.saveCursor(c)
	}
	return Result{Cursor: c.clone()}
}

func (a *applier) seekCursor(c frame.CursorSeek) Result {
	cur := a.s.cursors[c.Name]
	if cur == nil {
		return noCursor(c.Name)
	}
	to := a.before(c.To)
	if c.To.Kind == frame.AtOffset && c.To.Offset > a.tail()+1 {
		r := refuse(PastTail, "offset", fmt.Sprintf("a seek to %d is past the tail, which is %d", c.To.Offset, a.tail()), "seek to end instead")
		r.Refusal.Offset = a.tail()
		return r
	}
	cur.Seeks++
	cur.LastSeek = &Seek{From: cur.Committed, To: to, At: a.time()}
	cur.Committed, cur.Touched, cur.Gap = to, a.time(), nil
	a.cursorMoved(cur)
	a.reviveLetters(cur.Name, to)
	if cur.Group != nil {
		a.moveGroup(cur, to)
	}
	return a.saveCursor(cur)
}

// deleteCursor leaves the cursor's letters where they are: they wait for a cursor of
// that name, or to be redriven to another one.
func (a *applier) deleteCursor(c frame.CursorDelete) Result {
	cur := a.s.cursors[c.Name]
	if cur == nil {
		return noCursor(c.Name)
	}
	a.reviveLetters(c.Name, math.MaxUint64)
	if cur.Group != nil {
		a.forgetGroup(cur)
	}
	delete(a.s.cursors, c.Name)
	a.tx.Delete(key(prefixCursor, c.Name))
	return Result{Cursor: cur}
}

// expireCursors removes the cursors that nobody has used for long.
func (a *applier) expireCursors() {
	if a.s.settings.CursorIdle == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(a.s.cursors)) {
		if a.s.cursors[name].Touched.UnixNano()+int64(a.s.settings.CursorIdle) <= a.now {
			a.deleteCursor(frame.CursorDelete{Name: name})
		}
	}
}
