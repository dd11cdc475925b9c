package fsm

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/ringrift/ringlog/frame"
	"github.com/ringrift/ringlog/log"
)

// TrimResult says what a trim did, or would do.
type TrimResult struct {
	First   uint64   `json:"first"`             // the first offset kept
	Removed uint64   `json:"removed"`           // events
	HeldBy  string   `json:"held_by,omitempty"` // the cursor that kept more from being removed
	Passed  []string `json:"passed,omitempty"`  // cursors that lost events and get a gap
}

// trimRequest is a trim command whose answer is filled in at the end of the entry.
type trimRequest struct {
	frame.Trim
	answer int
}

// Reasons of a cursor's gap.
const (
	ReasonRetention = "retention" // the settings asked for it, and the cursor held back more than it may
	ReasonCompacted = "compacted" // somebody asked for it, and the cursor held back more than it may
	ReasonForced    = "forced"    // somebody asked for it whatever cursors hold
)

// A trim is decided at the end of its entry, over the blocks stored before it.
func (a *applier) requestTrim(c frame.Trim) Result {
	if !c.Retention && c.Before > a.tail()+1 {
		r := refuse(PastTail, "before", fmt.Sprintf("offset %d is past the tail, which is %d", c.Before, a.tail()), "name an offset that is there")
		r.Refusal.Offset = a.tail()
		return r
	}
	a.trims = append(a.trims, trimRequest{c, len(a.answers)})
	return Result{}
}

func (a *applier) trim() error {
	for _, t := range a.trims {
		result, err := a.trimTo(t.Trim)
		if err != nil {
			return err
		}
		a.answers[t.answer].Trim = result
	}
	if err := a.trimReceipts(); err != nil {
		return err
	}
	if _, err := a.trimTo(frame.Trim{Retention: true}); err != nil {
		return err
	}
	return a.trimColumns()
}

// trimTo plans a trim and carries it out.
func (a *applier) trimTo(t frame.Trim) (*TrimResult, error) {
	p := planner{s: a.s, log: a.log, now: a.now, limit: a.stored}
	plan, err := p.plan(t)
	if err != nil || plan.target == nil {
		return &plan.TrimResult, err
	}
	reason := ReasonCompacted
	switch {
	case t.Retention:
		reason = ReasonRetention
	case t.Force:
		reason = ReasonForced
	}
	for _, name := range plan.Passed {
		if err := a.openGap(a.s.cursors[name], plan.First, reason); err != nil {
			return nil, err
		}
		a.reviveLetters(name, plan.First-1)
	}
	m := &a.s.meta
	if err := a.drop(log.BlockKeys(m.First, plan.First)); err != nil {
		return nil, err
	}
	if err := a.dropReceipts(plan.target.Index, 0); err != nil {
		return nil, err
	}
	m.First, m.TrimmedBytes = plan.First, plan.target.Before
	a.s.oldest = plan.target
	return &plan.TrimResult, nil
}

// trimColumns drops the key columns of trimmed blocks once their keys have left
// the dedup window.
func (a *applier) trimColumns() error {
	m := &a.s.meta
	to := min(m.First, m.Floor)
	if to <= m.ColumnsFrom {
		return nil
	}
	err := a.drop(log.ColumnKeys(m.ColumnsFrom, to))
	m.ColumnsFrom = to
	return err
}

// maxDropped is how many keys are deleted one by one.
const maxDropped = 256

// drop deletes the stored keys in [from, to): a few one by one, because each range
// deletion slows every iterator down until Pebble has flushed it.
func (a *applier) drop(from, to []byte) error {
	it, err := a.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return fmt.Errorf("fsm: trim: %w", err)
	}
	defer it.Close()
	var keys [][]byte
	for ok := it.First(); ok; ok = it.Next() {
		if len(keys) == maxDropped {
			a.tx.DeleteRange(from, to)
			return it.Error()
		}
		keys = append(keys, slices.Clone(it.Key()))
	}
	for _, k := range keys {
		a.tx.Delete(k)
	}
	return it.Error()
}

// planner decides how far a trim goes. It changes nothing.
type planner struct {
	s     *state
	log   *log.Log
	now   int64
	limit uint64 // a trim stays below: blocks from here on are not stored yet
}

// trimPlan is what a planner found; target is the block that becomes the first,
// nil when nothing goes.
type trimPlan struct {
	TrimResult
	target *log.Columns
}

func (p *planner) plan(t frame.Trim) (trimPlan, error) {
	want, err := p.wanted(t)
	if err != nil {
		return trimPlan{}, err
	}
	plan := trimPlan{TrimResult: TrimResult{First: p.s.meta.First}}
	if want <= p.s.meta.First {
		return plan, nil
	}
	for _, name := range slices.Sorted(maps.Keys(p.s.cursors)) {
		next := p.s.cursors[name].Committed + 1
		if next >= want {
			continue
		}
		holds, err := p.holds(p.s.cursors[name])
		if err != nil {
			return plan, err
		}
		if holds && !t.Force {
			want, plan.HeldBy = next, name
		}
	}
	return p.settle(plan, want)
}

// settle rounds down to a whole block and names the cursors that are passed.
func (p *planner) settle(plan trimPlan, want uint64) (trimPlan, error) {
	if want <= p.s.meta.First {
		return plan, nil
	}
	target, err := p.blockFrom(want)
	if err != nil || target == nil || target.First <= p.s.meta.First {
		return plan, err
	}
	plan.target, plan.First = target, target.First
	plan.Removed = target.First - p.s.meta.First
	for _, name := range slices.Sorted(maps.Keys(p.s.cursors)) {
		if p.s.cursors[name].Committed+1 < plan.First {
			plan.Passed = append(plan.Passed, name)
		}
	}
	return plan, nil
}

// blockFrom returns the last stored block that begins at or before offset.
func (p *planner) blockFrom(offset uint64) (*log.Columns, error) {
	offset = min(offset, p.limit-1)
	if offset < p.s.meta.First {
		return nil, nil
	}
	return p.log.Columns(offset)
}

// wanted returns the offset that the trim would like to be the first.
func (p *planner) wanted(t frame.Trim) (uint64, error) {
	if !t.Retention {
		return t.Before, nil
	}
	m, set := &p.s.meta, &p.s.settings
	want := m.First
	if kept := m.Last + 1 - m.First; set.RetentionEvents > 0 && kept > set.RetentionEvents {
		want = max(want, m.Last+1-set.RetentionEvents)
	}
	room := set.RetentionBytes - min(set.RetentionBytes, m.Receipts.Bytes)
	if set.RetentionBytes > 0 && m.Bytes-m.TrimmedBytes > room {
		over, err := p.firstWhere(func(c *log.Columns) bool { return m.Bytes-c.Before <= room })
		if err != nil {
			return 0, err
		}
		want = max(want, over)
	}
	return p.wantedByAge(want)
}

func (p *planner) wantedByAge(want uint64) (uint64, error) {
	age := p.s.settings.RetentionAge
	if age == 0 || p.limit <= p.s.meta.First || p.justStepped() {
		return want, nil
	}
	young := func(c *log.Columns) bool { return c.AppendedAt.UnixNano()+int64(age) > p.now }
	if oldest, err := p.oldest(); err != nil || young(oldest) {
		return want, err
	}
	from, err := p.firstWhere(young)
	return max(want, from), err
}

// justStepped reports whether replicated time was moved within the last minute:
// what looks old may be young.
func (p *planner) justStepped() bool {
	step := p.s.meta.LastStep
	return step != nil && p.now-step.To.UnixNano() < int64(time.Minute)
}

func (p *planner) oldest() (c *log.Columns, err error) {
	if p.s.oldest == nil {
		p.s.oldest, err = p.log.Columns(p.s.meta.First)
	}
	return p.s.oldest, err
}

// firstWhere returns the first offset whose block holds the condition, which is
// false for older blocks and true for newer ones.
func (p *planner) firstWhere(holds func(*log.Columns) bool) (uint64, error) {
	low, high := p.s.meta.First, p.limit
	for low < high {
		c, err := p.log.Columns(low + (high-low)/2)
		if err != nil {
			return 0, err
		}
		if holds(c) {
			high = max(low, c.First)
		} else {
			low = c.Last() + 1
		}
	}
	return low, nil
}

// holds reports whether a cursor may still keep what it has not committed.
func (p *planner) holds(c *Cursor) (bool, error) {
	set := &p.s.settings
	events := cmpOr(c.Policy.HoldEvents, set.CursorHoldEvents)
	if events > 0 && p.s.meta.Last-c.Committed > events {
		return false, nil
	}
	held, err := p.blockFrom(max(c.Committed+1, p.s.meta.First))
	if err != nil || held == nil {
		return err == nil, err
	}
	if bytes := cmpOr(c.Policy.HoldBytes, set.CursorHoldBytes); bytes > 0 && p.s.meta.Bytes-held.Before > bytes {
		return false, nil
	}
	age := cmpOr(c.Policy.HoldFor, set.CursorHoldFor)
	return age == 0 || p.now-held.AppendedAt.UnixNano() < int64(age), nil
}

func cmpOr[T uint64 | time.Duration](own, fallback T) T {
	if own != 0 {
		return own
	}
	return fallback
}

// Bounds of what is told of gaps: how many blocks one entry opens for all of them,
// and how many types one gap lists.
const (
	maxCountedBlocks = 256
	maxGapTypes      = 1000
)

// openGap records that a cursor lost what it had not committed below first.
func (a *applier) openGap(c *Cursor, first uint64, reason string) error {
	gap := c.Gap
	if gap == nil {
		gap = &log.Gap{From: c.Committed + 1, To: c.Committed}
	}
	if gap.Types == nil { // also of a stored gap that had none
		gap.Types = map[string]uint64{}
	}
	counted := max(gap.To+1, a.s.meta.First)
	gap.Uncounted += c.open(gap.To+1, counted-1) // trimmed before the cursor stood there
	gap.Reason, gap.To = reason, first-1
	err := a.log.EachColumns(counted, first-1, func(cols *log.Columns) bool {
		if a.opened++; a.opened > maxCountedBlocks || cols.First >= first {
			return false
		}
		if err := a.countTypes(c, gap, cols, counted); err != nil {
			a.tx.keep(err)
			return false
		}
		counted = cols.Last() + 1
		return true
	})
	if counted < first {
		gap.Uncounted += c.open(counted, first-1)
	}
	c.Gap = gap
	if c.Group != nil {
		a.dropRetries(c, first)
	}
	a.tx.setJSON(key(prefixCursor, c.Name), c)
	return err
}

func (a *applier) countTypes(c *Cursor, gap *log.Gap, cols *log.Columns, from uint64) error {
	target, err := a.log.TargetAt(cols.First)
	if err != nil || target != "" { // what was appended again is lost to nobody: its letters are dead again
		return err
	}
	types, _, err := a.log.HeaderAt(cols.First)
	if err != nil {
		return err
	}
	offset := cols.First
	for row := range cols.Len() {
		if cols.Dead.Has(row) {
			continue
		}
		if offset >= from && !c.Settled(offset) {
			countType(gap, types[cols.TypeAt(row)])
		}
		offset++
	}
	return nil
}

func countType(gap *log.Gap, name string) {
	if _, listed := gap.Types[name]; listed || len(gap.Types) < maxGapTypes {
		gap.Types[name]++
	} else {
		gap.Uncounted++
	}
}
