package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/internal/frame"
)

// Bounds of what a group's policy and the settings of its defaults may ask for. With
// maxMaxPending events open, frame.MaxRanges and frame.MaxRetries are not reached.
const (
	minAckWait    = 100 * time.Millisecond
	maxAckWait    = 24 * time.Hour
	maxMaxDeliver = 1_000_000
	maxMaxPending = 50_000
)

// Group is what a cursor that members share has besides its commit. Policy is as the caller gave it.
// Reserved is the last offset that a leader may have handed out: an open event up to there that has
// no retry may have been delivered once. Open counts the open events up to Reserved, those with a
// retry included, as the leader last counted what the filter passes.
//
// Committed <= Reserved <= the tail. Done lies in between and does not touch the commit. Open is at
// most what Done leaves between them. A retry's offset is open: after the commit, not done and not
// past Reserved; once it is trimmed, the next commit drops it.
type Group struct {
	Policy   frame.GroupPolicy  `json:"policy"`
	Reserved uint64             `json:"reserved"`
	Open     uint64             `json:"open"`
	Done     []frame.Range      `json:"-"` // settled after the commit; ascending, not touching
	Retries  []frame.GroupRetry `json:"-"` // deliveries that failed, by offset
}

// Settled reports whether a cursor is done with an offset: the commit includes it, or a group has
// settled it out of order.
func (c *Cursor) Settled(offset uint64) bool {
	return offset <= c.Committed || (c.Group != nil && ranges(c.Group.Done).has(offset))
}

// OpenBefore counts the offsets before this one that are not settled.
func (c *Cursor) OpenBefore(offset uint64) uint64 {
	if offset <= c.Committed+1 {
		return 0
	}
	return c.open(c.Committed+1, offset-1)
}

// open counts the offsets from from to to, all after the commit, that are not settled.
func (c *Cursor) open(from, to uint64) uint64 {
	// A cursor of one reader has settled nothing after its commit.
	n := to + 1 - from
	if c.Group != nil {
		n -= ranges(c.Group.Done).within(from, to)
	}
	return n
}

// Deliveries returns how often an open event of a group was handed out, as far as the
// state can know: the first time is counted when it may have been. It is 0 for an event that is
// settled, or that no leader has reserved.
func (c *Cursor) Deliveries(offset uint64) uint64 {
	if c.Group == nil || c.Settled(offset) || offset > c.Group.Reserved {
		return 0
	}
	if r, failed := c.Group.Retry(offset); failed {
		return r.Deliveries
	}
	return 1
}

// Retry returns what is known of an event whose delivery failed and which is redelivered.
func (g *Group) Retry(offset uint64) (frame.GroupRetry, bool) {
	i, found := findRetry(g.Retries, offset)
	if !found {
		return frame.GroupRetry{}, false
	}
	return g.Retries[i], true
}

// findRetry returns the index of the retry of an offset, or of the first one after it.
func findRetry(list []frame.GroupRetry, offset uint64) (int, bool) {
	return slices.BinarySearchFunc(list, offset,
		func(r frame.GroupRetry, offset uint64) int { return cmp.Compare(r.Offset, offset) })
}

// createGroup makes a cursor that members share.
func (a *groupApplier) createGroup(c frame.GroupCreate) Result {
	if refused := checkPolicy(c.Group); refused != nil {
		return *refused
	}
	return a.cursors.makeCursor(frame.CursorCreate{Name: c.Name, Start: c.Start, Filter: c.Filter, Policy: c.Policy},
		&Group{Policy: c.Group})
}

// checkPolicy returns why a group cannot have a policy, and nil if it can.
func checkPolicy(p frame.GroupPolicy) *Result {
	var r Result
	// A value of 0 takes the setting's, which is within its bounds.
	switch {
	case p.AckWait != 0 && (p.AckWait < minAckWait || p.AckWait > maxAckWait):
		r = refuse(Invalid, "ack_wait", fmt.Sprintf("an ack_wait of %s", p.AckWait),
			fmt.Sprintf("use %s to %s, or leave it out for group.ack_wait", minAckWait, maxAckWait))
	case p.MaxDeliver > maxMaxDeliver:
		r = refuse(Invalid, "max_deliver", fmt.Sprintf("a max_deliver of %d", p.MaxDeliver),
			fmt.Sprintf("use 1 to %d, or leave it out for group.max_deliver", maxMaxDeliver))
	case p.MaxPending > maxMaxPending:
		r = refuse(Invalid, "max_pending", fmt.Sprintf("a max_pending of %d", p.MaxPending),
			fmt.Sprintf("use 1 to %d, or leave it out for group.max_pending", maxMaxPending))
	default:
		return nil
	}
	return &r
}

// nextGroupGeneration numbers what groups have been: a group that is removed and made
// again, or sought, is not the one that its leader's settlements are about.
func (a *cursorApplier) nextGroupGeneration() uint64 {
	a.s.meta.GroupGenerations++
	return a.s.meta.GroupGenerations
}

// groupFor returns the group that a leader commits for, or why it is refused.
func (a *groupApplier) groupFor(
	name string, term, generation uint64, lease frame.RoleLease,
) (*Cursor, *Result) {
	cur, fenced := a.s.cursors[name], a.fenced(lease)
	var r Result
	switch {
	// The member that has settled this holds its role no longer.
	case fenced != nil:
		return nil, fenced
	case cur == nil:
		r = refuse(NotFound, "group", fmt.Sprintf("there is no group %q", name), "create it: PUT /v1/groups/"+name)
	case cur.Group == nil:
		r = refuse(Invalid, "group", fmt.Sprintf("%q is a cursor of one reader, no group", name),
			"open it as a cursor, or make a group of another name")
	// The leader that handed the events out was replaced.
	case term != a.term:
		r = refuse(Fenced, "term", fmt.Sprintf("term %d, whose leader has settled this, is over: this is term %d",
			term, a.term), "join the group again: another leader hands its events out")
		r.Refusal.Expected = cur.Generation
	// The group was sought, or removed and created again.
	case generation != cur.Generation:
		r = refuse(Fenced, "generation", fmt.Sprintf("generation %d of group %q is over, this is %d", generation,
			name, cur.Generation), "join the group again: it was moved, or made again")
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
	r := refuse(Invalid, "cursor", fmt.Sprintf("%q is a group; join it", c.Name),
		"its members exchange events and acknowledgements: POST /v1/groups/"+c.Name+"/exchange")
	return &r
}
