package fsm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// TrimResult says what a trim did, or would do.
type TrimResult struct {
	First   uint64   `json:"first"`             // the first offset kept, whether anything was removed or not
	Removed uint64   `json:"removed"`           // events
	HeldBy  string   `json:"held_by,omitempty"` // the cursor that kept more from being removed
	Passed  []string `json:"passed,omitempty"`  // cursors that lose events, 256 of them at most
}

// trimRequest is a trim command whose answer is filled in at the end of the entry.
type trimRequest struct {
	frame.Trim
	answer int // its place among the entry's answers
}

// Reasons of a cursor's gap.
const (
	ReasonRetention = "retention" // the settings asked for it, and the cursor held back more than it may
	ReasonCompacted = "compacted" // somebody asked for it, and the cursor held back more than it may
	ReasonForced    = "forced"    // somebody asked for it whatever cursors hold
)

// trimApplier removes the oldest blocks, and what is stored about them.
type trimApplier struct {
	*applying
	letters *letterApplier
	losses  *lossApplier

	trims []trimRequest // of this entry, in the order of its commands
}

// requestTrim notes a trim for the end of the entry, which decides it over the blocks that were stored before.
func (a *trimApplier) requestTrim(c frame.Trim) Result {
	if !c.Retention && c.Before > a.tail()+1 {
		r := refuse(PastTail, "before", fmt.Sprintf("offset %d is past the tail, which is %d", c.Before, a.tail()),
			"name an offset that is there")
		r.Refusal.Offset = a.tail()
		return r
	}
	a.trims = append(a.trims, trimRequest{c, len(a.answers)})
	return Result{}
}

// applyTrims does the trims that this entry asks for, and those that settings ask for.
func (a *trimApplier) applyTrims() error {
	// First the trims that commands ask for, in their order.
	for _, t := range a.trims {
		result, err := a.trimTo(t.Trim)
		if err != nil {
			return err
		}
		a.answers[t.answer].Trim = result
	}

	// Receipts go before blocks: what is left of them counts for retention.bytes.
	if err := a.trimReceipts(); err != nil {
		return err
	}
	if err := a.applyRetention(); err != nil {
		return err
	}
	return a.trimColumns()
}

// Retention is applied by every entry whose index is a multiple of retentionEvery, and by
// the first of each second of replicated time: a trim of many blocks costs little more
// than that of one.
const (
	retentionEvery = 16
	retentionGrain = int64(time.Second)
)

// applyRetention applies retention, or notes that a later entry has to.
func (a *trimApplier) applyRetention() error {
	m := &a.s.meta
	// Every node is at the same index and time, so all of them apply it in the same entries.
	if a.index%retentionEvery == 0 || a.began/retentionGrain != a.now/retentionGrain {
		m.RetentionWaits = false
		_, err := a.trimTo(frame.Trim{Retention: true})
		return err
	}

	// Other entries only note whether there is something to remove, which NextDeadline looks at.
	p := planner{s: a.s, log: a.log, now: a.now, limit: a.firstNew}
	waits, err := p.wantsRetention()
	m.RetentionWaits = waits
	return err
}

// trimTo plans a trim and carries it out.
func (a *trimApplier) trimTo(t frame.Trim) (*TrimResult, error) {
	p := planner{s: a.s, log: a.log, now: a.now, limit: a.firstNew, notHeld: a.s.meta.NotHeld}
	plan, err := p.plan(t)
	m := &a.s.meta
	m.NotHeld = p.notHeld
	if err != nil || plan.target == nil {
		return &plan.TrimResult, err
	}

	// What folds the log on this node has to have these events. It changes nothing of what is decided.
	if err := a.beforeTrim(plan.First); err != nil {
		return nil, err
	}

	// Record what cursors lose while the blocks are still there, then remove blocks and receipts.
	if err := a.losses.recordLoss(m.First, plan.First-1); err != nil {
		return nil, err
	}
	if err := a.deleteKeys(log.BlockKeys(m.First, plan.First)); err != nil {
		return nil, err
	}
	if err := a.dropReceipts(plan.target.Index, 0); err != nil {
		return nil, err
	}
	m.First, m.TrimmedBytes = plan.First, plan.target.Before
	switch {
	case t.Retention:
		m.TrimReason = ReasonRetention
	case t.Force:
		m.TrimReason = ReasonForced
	default:
		m.TrimReason = ReasonCompacted
	}

	// Copies of letters in the removed blocks are not delivered any more.
	a.s.oldest = plan.target
	a.letters.reviveTrimmed()
	return &plan.TrimResult, nil
}

// trimColumns drops the key columns of trimmed blocks once their keys have left
// the dedup window.
func (a *trimApplier) trimColumns() error {
	m := &a.s.meta
	to := min(m.First, m.WindowStart)
	if to <= m.ColumnsFrom {
		return nil
	}
	err := a.deleteKeys(log.ColumnKeys(m.ColumnsFrom, to))
	m.ColumnsFrom = to
	return err
}

// maxDropped is how many keys are deleted one by one.
const maxDropped = 256

// deleteKeys deletes the stored keys in [from, to): a few one by one, because each range deletion
// slows every iterator down until Pebble has flushed it.
func (a *applying) deleteKeys(from, to []byte) error {
	it, err := a.db.Iter(from, to)
	if err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	defer it.Close()

	// With too many keys to delete one by one, a range deletion does it.
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

// holdMark is a cursor's place among all: no cursor before it, by what it has passed
// and then by name, keeps anything from a trim. Whatever lets such a cursor keep something
// again lowers the mark.
type holdMark struct {
	Passed uint64 `json:"passed"`
	Name   string `json:"name,omitzero"`
}

// rank is the mark as a place among cursors.
func (h holdMark) rank() ranked[uint64] { return ranked[uint64]{h.Passed, h.Name} }

// mayHold notes that a cursor has another place or policy, by which it may keep something from a
// trim.
func (a *cursorApplier) mayHold(c *Cursor) {
	if c.passedRank().compare(a.s.meta.NotHeld.rank()) < 0 {
		a.s.meta.NotHeld = holdMark{c.Passed(), c.Name}
	}
}

// planner decides how far a trim goes. It changes nothing but notHeld and checked.
type planner struct {
	s       *state
	log     *log.Log
	now     int64
	limit   uint64 // a trim stays below: blocks from here on are not stored yet
	notHeld holdMark
	checked int          // cursors that were asked whether they hold something
	held    *log.Columns // the block that heldBlock returned last
}

// trimPlan is what a planner found; target is the block that becomes the first,
// nil when nothing goes.
type trimPlan struct {
	TrimResult
	target *log.Columns
}

// Bounds of what retention does in one entry, and of what a trim answers with.
const (
	maxHoldsChecked = 512 // cursors that it asks; the others count as holding
	maxPassedNamed  = 256 // of the cursors that it passes
)

// plan finds the block that a trim makes the first, and the cursor that keeps it from going farther.
func (p *planner) plan(t frame.Trim) (trimPlan, error) {
	plan := trimPlan{TrimResult: TrimResult{First: p.s.meta.First}}
	if p.limit <= p.s.meta.First {
		return plan, nil
	}
	wants, err := t.Before > p.s.meta.First, error(nil)
	if t.Retention {
		wants, err = p.wantsRetention()
	}
	// Most entries end here: nothing is to be removed.
	if err != nil || !wants {
		return plan, err
	}
	oldest, err := p.oldest()
	if err != nil {
		return plan, err
	}
	// Most often it is the oldest block that a cursor holds. Then there is no need to know
	// how far the trim would go.
	want := oldest.Last() + 1
	if !t.Retention {
		want = min(want, t.Before)
	}
	holder, err := p.holder(t, want)
	if err == nil && holder == nil {
		want, err = p.wanted(t)
		if err == nil {
			holder, err = p.holder(t, want)
		}
	}
	if err != nil {
		return plan, err
	}

	// The events that the holder has not passed stay.
	if holder != nil {
		want, plan.HeldBy = holder.Passed()+1, holder.Name
	}
	return p.roundDown(t, plan, want)
}

// holder returns the cursor that has passed least of those that keep events below an
// offset, nil if none does.
func (p *planner) holder(t frame.Trim, below uint64) (*Cursor, error) {
	if t.Force || below < 2 {
		return nil, nil
	}

	// All cursors before notHeld keep nothing: ask those from there on.
	end := holdMark{Passed: below - 1}
	from := btreemap.GE(p.notHeld.rank())
	for place, c := range p.s.ranks.byPassed.Ascend(from, btreemap.LT(end.rank())) {
		p.notHeld = holdMark{place.rank, place.name}
		// Past the bound, the next one counts as holding; a later entry asks it.
		if t.Retention && p.checked == maxHoldsChecked {
			return c, nil
		}
		p.checked++
		if holds, err := p.holds(c); err != nil || holds {
			return c, err
		}
	}

	// No cursor below the offset holds anything: the next plan begins there.
	if p.notHeld.rank().compare(end.rank()) < 0 {
		p.notHeld = end
	}
	return nil, nil
}

// roundDown rounds the trim down to a whole block and names the cursors that it passes.
func (p *planner) roundDown(t frame.Trim, plan trimPlan, want uint64) (trimPlan, error) {
	if want <= p.s.meta.First {
		return plan, nil
	}

	// A block is removed as a whole or not at all.
	target, err := p.blockFrom(want)
	if err != nil || target == nil || target.First <= p.s.meta.First {
		return plan, err
	}
	plan.target, plan.First = target, target.First
	plan.Removed = target.First - p.s.meta.First
	if t.Retention {
		return plan, nil // no answer needs the names
	}
	for place := range p.s.ranks.byPassed.Ascend(atLeast[uint64](0), below(plan.First-1)) {
		plan.Passed = append(plan.Passed, place.name)
		if len(plan.Passed) == maxPassedNamed {
			break
		}
	}
	slices.Sort(plan.Passed)
	return plan, nil
}

// wantsRetention reports whether retention wants to remove the oldest block.
func (p *planner) wantsRetention() (bool, error) {
	m, set := &p.s.meta, &p.s.settings
	if p.limit <= m.First {
		return false, nil
	}
	oldest, err := p.oldest()
	if err != nil || oldest.Last() >= m.Last {
		return false, err // the newest block stays
	}
	// Any of the three bounds is enough. Age is not judged where time was just moved.
	tooMany := set.RetentionEvents > 0 && m.Last-oldest.Last() >= set.RetentionEvents
	tooLarge := set.RetentionBytes > 0 && m.Bytes-m.TrimmedBytes > p.room()
	tooOld := set.RetentionAge > 0 && !p.justStepped() && !p.young(oldest)
	return tooMany || tooLarge || tooOld, nil
}

// room is what receipts leave of retention.bytes for blocks.
func (p *planner) room() uint64 {
	// Receipts take an eighth of it at most, so something is left for blocks.
	bound := p.s.settings.RetentionBytes
	return bound - min(bound, p.s.meta.Receipts.Bytes)
}

// young reports whether a block is too young for retention by age.
func (p *planner) young(c *log.Columns) bool {
	return c.AppendedAt.UnixNano()+int64(p.s.settings.RetentionAge) > p.now
}

// blockFrom returns the last stored block that begins at or before offset, nil if that was trimmed.
func (p *planner) blockFrom(offset uint64) (*log.Columns, error) {
	offset = min(offset, p.limit-1)
	// It was trimmed.
	if offset < p.s.meta.First {
		return nil, nil
	}
	return p.log.Columns(offset)
}

// wanted returns the offset that the trim would like to be the first: what the caller has named, or the
// farthest that a bound of retention asks for.
func (p *planner) wanted(t frame.Trim) (uint64, error) {
	if !t.Retention {
		return t.Before, nil
	}
	m, set := &p.s.meta, &p.s.settings
	want := m.First

	// Each bound says how far it wants to go; the farthest decides.
	if kept := m.Last + 1 - m.First; set.RetentionEvents > 0 && kept > set.RetentionEvents {
		want = max(want, m.Last+1-set.RetentionEvents)
	}
	if room := p.room(); set.RetentionBytes > 0 && m.Bytes-m.TrimmedBytes > room {
		over, err := p.firstWhere(func(c *log.Columns) bool { return m.Bytes-c.Before <= room })
		if err != nil {
			return 0, err
		}
		want = max(want, over)
	}
	return p.wantedByAge(want)
}

// wantedByAge raises want to the first block that is young enough for retention by age.
func (p *planner) wantedByAge(want uint64) (uint64, error) {
	age := p.s.settings.RetentionAge
	if age == 0 || p.limit <= p.s.meta.First || p.justStepped() {
		return want, nil
	}
	if oldest, err := p.oldest(); err != nil || p.young(oldest) {
		return want, err
	}
	from, err := p.firstWhere(p.young)
	return max(want, from), err
}

// justStepped reports whether replicated time was moved within the last minute:
// what looks old may be young.
func (p *planner) justStepped() bool {
	step := p.s.meta.LastStep
	return step != nil && p.now-step.To.UnixNano() < int64(time.Minute)
}

// oldest returns the columns of the first retained block, and keeps them in the state.
func (p *planner) oldest() (c *log.Columns, err error) {
	if p.s.oldest == nil {
		p.s.oldest, err = p.log.Columns(p.s.meta.First)
	}
	return p.s.oldest, err
}

// firstWhere returns the first offset whose block holds the condition, which is
// false for older blocks and true for newer ones.
func (p *planner) firstWhere(holds func(*log.Columns) bool) (uint64, error) {
	// A binary search by offset in which each step skips a whole block: the condition is the same for all
	// offsets of one.
	low, high := p.s.meta.First, p.limit
	for low < high {
		c, err := p.log.Columns(low + (high-low)/2)
		if err != nil {
			return 0, err
		}
		// low never falls: a block that begins before it is the first of those left.
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
	// The cursor's own bounds, else those of the settings; 0 is no bound.
	set := &p.s.settings
	events := cmp.Or(c.Policy.HoldEvents, set.CursorHoldEvents)
	if events > 0 && p.s.meta.Last-c.Passed() > events {
		return false, nil
	}

	// The bounds by bytes and age count from the block with the first event that it has not passed.
	held, err := p.heldBlock(max(c.Passed()+1, p.s.meta.First))
	if err != nil || held == nil {
		return err == nil, err
	}
	if bytes := cmp.Or(c.Policy.HoldBytes, set.CursorHoldBytes); bytes > 0 && p.s.meta.Bytes-held.Before > bytes {
		return false, nil
	}
	age := cmp.Or(c.Policy.HoldFor, set.CursorHoldFor)
	return age == 0 || p.now-held.AppendedAt.UnixNano() < int64(age), nil
}

// heldBlock is blockFrom for one cursor after the other: many of them are at the same block.
func (p *planner) heldBlock(offset uint64) (c *log.Columns, err error) {
	// Cursors are asked in the order of their places: most often the block is that of the cursor
	// before.
	if p.held == nil || offset < p.held.First || offset > p.held.Last() {
		p.held, err = p.oldest()
	}
	// It is not the oldest block, so look it up.
	if err == nil && offset > p.held.Last() {
		p.held, err = p.blockFrom(offset)
	}
	return p.held, err
}
