package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of what a group's policy and the settings behind it may ask for. With
// maxMaxPending events open, frame.MaxRanges and frame.MaxRetries are not reached.
const (
	minAckWait    = 100 * time.Millisecond
	maxAckWait    = 24 * time.Hour
	maxMaxDeliver = 1_000_000
	maxMaxPending = 50_000
)

// Group is what a cursor that members share knows beside its commit. Policy is as it
// was given. Reserved is the last offset that a leader may have handed out: what is
// open up to there, and has no retry, was perhaps delivered once. Open is how many events
// that are, those with a retry included, as its leader last counted what the filter lets
// through.
//
// Committed <= Reserved <= the tail. Done lies in between and does not touch the
// commit. Open is no more than what is left of them. A retry's offset is open: after the
// commit, not done and not past Reserved; once it is trimmed, the next settlement drops it.
type Group struct {
	Policy   frame.GroupPolicy  `json:"policy"`
	Reserved uint64             `json:"reserved"`
	Open     uint64             `json:"open"`
	Done     []frame.Range      `json:"-"` // settled behind the commit; rising, not touching
	Retries  []frame.GroupRetry `json:"-"` // deliveries that failed, by offset
}

// Settled reports whether a cursor is done with an offset: it stands in front of the
// commit, or a group has settled it out of order.
func (c *Cursor) Settled(offset uint64) bool {
	return offset <= c.Committed || c.Group != nil && ranges(c.Group.Done).has(offset)
}

// OpenBefore counts the offsets before this one that are not settled.
func (c *Cursor) OpenBefore(offset uint64) uint64 {
	if offset <= c.Committed+1 {
		return 0
	}
	return c.open(c.Committed+1, offset-1)
}

// open counts the offsets from from to to, all behind the commit, that are not settled.
func (c *Cursor) open(from, to uint64) uint64 {
	n := to + 1 - from
	if c.Group != nil {
		n -= ranges(c.Group.Done).within(from, to)
	}
	return n
}

// Deliveries returns how often an open event of a group was handed out, as far as the
// state can know: the first time is counted when it may have been.
func (c *Cursor) Deliveries(offset uint64) uint64 {
	if c.Group == nil || c.Settled(offset) || offset > c.Group.Reserved {
		return 0
	}
	if r, failed := c.Group.Retry(offset); failed {
		return r.Deliveries
	}
	return 1
}

// Retry returns what is known of an event whose delivery failed and which comes again.
func (g *Group) Retry(offset uint64) (frame.GroupRetry, bool) {
	i, found := findRetry(g.Retries, offset)
	if !found {
		return frame.GroupRetry{}, false
	}
	return g.Retries[i], true
}

func findRetry(list []frame.GroupRetry, offset uint64) (int, bool) {
	return slices.BinarySearchFunc(list, offset, func(r frame.GroupRetry, offset uint64) int { return cmp.Compare(r.Offset, offset) })
}

func (a *applier) createGroup(c frame.GroupCreate) Result {
	if refused := checkPolicy(c.Group); refused != nil {
		return *refused
	}
	return a.makeCursor(frame.CursorCreate{Name: c.Name, Start: c.Start, Filter: c.Filter, Policy: c.Policy}, &Group{Policy: c.Group})
}

func checkPolicy(p frame.GroupPolicy) *Result {
	var r Result
	switch {
	case p.AckWait != 0 && (p.AckWait < minAckWait || p.AckWait > maxAckWait):
		r = refuse(Invalid, "ack_wait", fmt.Sprintf("an ack_wait of %s", p.AckWait), fmt.Sprintf("use %s to %s, or leave it out for group.ack_wait", minAckWait, maxAckWait))
	case p.MaxDeliver > maxMaxDeliver:
		r = refuse(Invalid, "max_deliver", fmt.Sprintf("a max_deliver of %d", p.MaxDeliver), fmt.Sprintf("use 1 to %d, or leave it out for group.max_deliver", maxMaxDeliver))
	case p.MaxPending > maxMaxPending:
		r = refuse(Invalid, "max_pending", fmt.Sprintf("a max_pending of %d", p.MaxPending), fmt.Sprintf("use 1 to %d, or leave it out for group.max_pending", maxMaxPending))
	default:
		return nil
	}
	return &r
}

// nextGroupGeneration numbers what groups have been: a group that is removed and made
// again, or sought, is not the one that its leader's settlements are about.
func (a *applier) nextGroupGeneration() uint64 {
	a.s.meta.GroupGenerations++
	return a.s.meta.GroupGenerations
}

// group returns the group that a leader's settlement is about, or why it is refused.
func (a *applier) group(name string, term, generation uint64) (*Cursor, *Result) {
	cur := a.s.cursors[name]
	var r Result
	switch {
	case cur == nil:
		r = refuse(NotFound, "group", fmt.Sprintf("there is no group %q", name), "create it: PUT /v1/groups/"+name)
	case cur.Group == nil:
		r = refuse(Invalid, "group", fmt.Sprintf("%q is a cursor of one reader, no group", name), "open it as a cursor, or make a group of another name")
	case term != a.term:
		r = refuse(Fenced, "term", fmt.Sprintf("term %d, whose leader has settled this, is over: this is term %d", term, a.term), "join the group again: another leader hands its events out")
		r.Refusal.Expected = cur.Generation
	case generation != cur.Generation:
		r = refuse(Fenced, "generation", fmt.Sprintf("generation %d of group %q is over, this is %d", generation, name, cur.Generation), "join the group again: it was moved, or made anew")
		r.Refusal.Expected = cur.Generation
	default:
		return cur, nil
	}
	return nil, &r
}

// notForGroups refuses what one reader does with a cursor of its own; nil is none.
func notForGroups(c *Cursor) *Result {
	if c.Group == nil {
		return nil
	}
	r := refuse(Invalid, "cursor", fmt.Sprintf("%q is a group; join it", c.Name), "its members exchange events and acknowledgements: POST /v1/groups/"+c.Name+"/exchange")
	return &r
}
