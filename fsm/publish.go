package fsm

import (
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm/dedup"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// publishApplier decides the records of the clients' block, row by row: each gets an offset or is
// suppressed. A row is a record's number in the block.
type publishApplier struct {
	*applying
	producers *producerApplier
	schedule  *scheduleApplier
	views     *viewApplier

	row        int        // the next row to decide
	base       uint64     // offset of the block's first accepted event
	keyed      int        // how many of the accepted rows have a dedup key
	suppressed log.Bitmap // rows of the records that get no offset
	receipts   receipts   // of the duplicates

	keyedTypes  []event.Type // whose policies have keys of this entry, in the order of their first one
	removedKeys int          // of policies, by this entry
	overdue     int          // what overdueKeys counted
	overdueAt   int64        // the replicated time for which it did; 0: overdue is not known
}

// publish decides the records of one request: all of them get an offset, their own or that of an
// earlier event, or none does and nothing of the request remains.
func (a *publishApplier) publish(c frame.Publish) (Result, error) {
	from := a.row
	a.row += c.Count
	if c.Count == 0 || strings.ContainsRune(c.Producer, 0) {
		a.suppressRows(from, a.row)
		return refuse(Invalid, "events", "a request without events, or a producer id with a zero byte",
			"send at least one event"), nil
	}

	// A retry gets its first result, and its records are suppressed.
	var rowsPrint uint32
	if c.Producer != "" {
		rowsPrint = fingerprint(a.frame.Columns, from, a.row)
		if answer := a.producers.checkSequence(c, rowsPrint); answer != nil {
			a.suppressRows(from, a.row)
			return *answer, nil
		}
	}

	// The lease counts where the request is decided: a retry has got its result above. The refusal does not use up the
	// sequence number.
	if refused := a.fenced(c.Lease); refused != nil {
		a.suppressRows(from, a.row)
		return *refused, nil
	}

	// A scheduled event is published once, whoever proposes it.
	if c.Scheduled != "" {
		if answer := a.schedule.admit(c); answer != nil {
			a.suppressRows(from, a.row)
			return *answer, nil
		}
	}

	// So is what the rules of a view publish.
	if c.Emission.View != "" {
		if answer := a.views.admit(c.Emission); answer != nil {
			a.suppressRows(from, a.row)
			return *answer, nil
		}
	}

	// An overloaded window is not kept as a result: a retry may succeed.
	r, err := a.placeRows(from, a.row)
	if err != nil {
		return Result{}, err
	}
	// Both are noted with the publish, in the same entry.
	if c.Scheduled != "" && r.Refusal == nil {
		a.schedule.published(c.Scheduled, r)
	}
	if c.Emission.View != "" && r.Refusal == nil {
		a.views.emitted(c.Emission)
	}
	// A retry of this request gets this result.
	if c.Producer != "" && (r.Refusal == nil || r.Refusal.Code != Overloaded) {
		a.producers.keepResult(c, rowsPrint, r)
	}
	return r, nil
}

// suppressRows marks the records of rows that get no offset.
func (a *publishApplier) suppressRows(from, to int) {
	for row := from; row < to; row++ {
		a.suppressed.Set(row)
	}
}

// placeRows gives the records of the rows [from, to) their offsets. A refusal undoes what it has placed
// of them; an error stops the node.
func (a *publishApplier) placeRows(from, to int) (Result, error) {
	r, start, receipts := Result{}, len(a.accepted), len(a.receipts.list)
	for row := from; row < to; row++ {
		// The index looks many keys up at a time, which waits for memory once and not for each.
		if (row-from)%dedup.FetchMost == 0 {
			a.prefetchKeys(row, min(row+dedup.FetchMost, to))
		}

		// One refused record refuses the whole request.
		earlier, refusal, err := a.placeRow(row)
		switch {
		case err != nil:
			return Result{}, err
		case refusal != nil:
			a.undoRows(start, receipts, from, to)
			refusal.Row = row - from
			return Result{Refusal: refusal}, nil
		case earlier != 0:
			r.Duplicates = append(r.Duplicates, Duplicate{Row: row - from, Offset: earlier})
		}
	}

	// The records that were accepted follow each other in the log.
	if len(a.accepted) > start {
		r.First = a.base + uint64(start)
	}
	a.s.meta.Counters.Accepted += uint64(len(a.accepted) - start)
	a.s.meta.Counters.Suppressed += uint64(len(r.Duplicates))
	return r, nil
}

// prefetchKeys lets the index load what the rows' keys need.
func (a *publishApplier) prefetchKeys(from, to int) {
	var keys [dedup.FetchMost]frame.Key
	n := 0
	for row := from; row < to; row++ {
		if a.frame.Columns.Keyed(row) {
			keys[n] = a.frame.Columns.KeyAt(row)
			n++
		}
	}
	a.s.keys.Fetch(keys[:n])
}

// placeRow accepts the record of a row, or returns the earlier offset that it repeats.
func (a *publishApplier) placeRow(row int) (earlier uint64, refusal *Refusal, err error) {
	cols := a.frame.Columns
	switch {
	// The node that checked the event has asked for its type's policy.
	case cols.ByPolicy(row):
		earlier, refusal = a.placeByPolicy(row)
		return earlier, refusal, nil
	// Without deduplication the record is always accepted.
	case !cols.Keyed(row):
		a.accepted = append(a.accepted, row)
		return 0, nil, nil
	}
	k := cols.KeyAt(row)

	// The same key with other content can only come from a dedup id.
	hit, found, err := a.findEarlier(k)
	if err != nil {
		return 0, nil, err
	}
	if found {
		if hit.content != cols.ContentAt(row) {
			return 0, conflict(hit.offset), nil
		}
		a.suppressed.Set(row)
		a.receipts.add(hit.offset, a.frame.Header.Sources[cols.SourceAt(row)])
		return hit.offset, nil, nil
	}

	// A new key enters the window, if there is room.
	if room := a.s.settings.DedupMaxKeys; uint64(a.s.keys.Len()) >= room {
		return 0, fullWindow(room), nil
	}
	a.s.keys.Insert(k, a.base+uint64(len(a.accepted)))
	a.keyed++
	a.accepted = append(a.accepted, row)
	return 0, nil, nil
}

// fullWindow is the refusal of a new key while the dedup window is full.
func fullWindow(room uint64) *Refusal {
	return &Refusal{Code: Overloaded, Field: "events",
		Message: fmt.Sprintf("the dedup window holds %d keys, which is the limit", room),
		Remedy:  "retry after some have expired, or raise dedup.max_keys, or shorten dedup.window"}
}

// conflict is the refusal of a dedup_id that an earlier event, at first, has with other content.
func conflict(first uint64) *Refusal {
	return &Refusal{Code: Conflict, Field: "dedup_id", Offset: first,
		Message: fmt.Sprintf("the dedup_id was used at offset %d for an event with other content", first),
		Remedy:  "use a new dedup_id for new content"}
}

// undoRows removes what a refused request had placed.
func (a *publishApplier) undoRows(start, receipts, from, to int) {
	// The next requests of this entry must not find these keys.
	for i := len(a.accepted) - 1; i >= start; i-- {
		row, offset := a.accepted[i], a.base+uint64(i)
		switch {
		case a.frame.Columns.Keyed(row):
			a.s.keys.Remove(a.frame.Columns.KeyAt(row), offset)
			a.keyed--
		case a.frame.Columns.ByPolicy(row):
			a.undoByPolicy(row, offset)
		}
	}
	// The records before start are those of earlier requests of the entry.
	a.accepted = a.accepted[:start]
	a.receipts.list = a.receipts.list[:receipts]
	a.suppressRows(from, to)
}

// earlierEvent is the event that has the key already.
type earlierEvent struct {
	offset  uint64
	content [8]byte // prefix of its content hash
}

// findEarlier looks a key up and confirms it against the key columns, so that the result is exact
// to the whole key. It finds events of this entry as well, since their keys are inserted as they are
// accepted.
func (a *publishApplier) findEarlier(k frame.Key) (earlier earlierEvent, found bool, err error) {
	// An error ends the search as a match does, and is returned.
	_, found = a.s.keys.Lookup(k, func(offset uint64) bool {
		var same bool
		earlier, same, err = a.confirmKey(k, offset)
		return same || err != nil
	})
	return earlier, found && err == nil, err
}

// confirmKey reports whether the event at an offset has the key. The index has a part of it only.
func (a *publishApplier) confirmKey(k frame.Key, offset uint64) (e earlierEvent, same bool, err error) {
	e.offset = offset

	// An event of this entry is not stored yet.
	if offset >= a.base {
		row := a.accepted[offset-a.base]
		e.content = a.frame.Columns.ContentAt(row)
		return e, a.frame.Columns.KeyAt(row) == k, nil
	}
	// The window has its key columns, also where its event was trimmed.
	c, err := a.columns.at(a.log, offset)
	if err != nil {
		return e, false, err
	}
	row := c.RowOf(offset)
	if row < 0 {
		return e, false, fmt.Errorf("apply %d: the block at %d does not hold offset %d: %w", a.index, c.First,
			offset, log.ErrCorrupt)
	}
	e.content = c.ContentAt(row)
	return e, c.KeyAt(row) == k, nil
}

// expired reports whether a key appended at that time has left the window.
func (a *publishApplier) expired(at int64) bool { return at+int64(a.s.settings.DedupWindow) <= a.now }

// expireWindow removes the keys of blocks that left the window from the index. All of them go at
// once, so that the index has exactly what a rebuild from the window's start would put into it.
func (a *publishApplier) expireWindow() {
	// Time never falls, so the oldest blocks expire first.
	n, keys := 0, 0
	for n < len(a.s.window) && a.expired(a.s.window[n].at) {
		keys += a.s.window[n].keys
		n++
	}
	if n == 0 {
		return
	}
	a.s.meta.WindowStart = a.s.window[n-1].last + 1
	a.s.keys.Expire(a.s.meta.WindowStart, keys)
	a.s.window = a.s.window[n:]
}

// columnsCache keeps the key columns used last, for entries that repeat many
// events of the same blocks.
type columnsCache struct {
	recent [8]*log.Columns // in any order; nil is a free place
	next   int             // the place that is filled next
}

// at returns the key columns of the block that holds an offset.
func (c *columnsCache) at(l *log.Log, offset uint64) (*log.Columns, error) {
	// Few blocks are kept: a search through all of them is cheaper than a map.
	for _, cols := range c.recent {
		if cols != nil && cols.First <= offset && offset <= cols.Last() {
			return cols, nil
		}
	}
	// It takes the place of the one that was read longest ago.
	cols, err := l.Columns(offset)
	if err != nil {
		return nil, err
	}
	c.recent[c.next] = cols
	c.next = (c.next + 1) % len(c.recent)
	return cols, nil
}
