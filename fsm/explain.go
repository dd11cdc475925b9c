package fsm

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// Explanation says what deduplication did with an event.
type Explanation struct {
	Offset     uint64
	Type       event.Type
	Hash       string // of its content, in hex
	DedupID    string // that its producer set; empty is none
	Kind       string // content, dedup_id, fields or off
	ByPolicy   bool   // the policy of its type decided about it, not its producer and not the setting dedup.window
	Source     string
	AppendedAt time.Time
	Suppressed uint64         // how often the same event was sent again
	First      time.Time      // when it was first sent again
	Last       time.Time      // when it was last sent again
	Sources    []SourceCount  // of the suppressed, by name
	InWindow   bool           // the same event, published now, would be suppressed
	Until      time.Time      // when its key leaves the window
	Others     []uint64       // other offsets with the same content, at most 100
	counts     map[string]int // by source
}

// SourceCount is how often a source sent what was suppressed.
type SourceCount struct {
	Source string
	Count  int
}

// Explain returns what deduplication did with the event at offset. Errors are a
// *log.TrimmedError, a *log.PastTailError, or one of reading.
func (v *views) Explain(ctx context.Context, offset uint64) (Explanation, error) {
	// The event as it is stored, and the key columns by which it was decided.
	e, err := v.log.Get(offset)
	if err != nil {
		return Explanation{}, err
	}
	cols, err := v.log.Columns(offset)
	if err != nil {
		return Explanation{}, err
	}
	// By what the event was compared.
	kind := cols.KindAt(cols.RowOf(offset))
	x := Explanation{
		Offset:     offset,
		Type:       e.Type,
		Hash:       e.Hash().String(),
		DedupID:    e.DedupID,
		Source:     e.Source,
		AppendedAt: e.AppendedAt,
		Kind:       kindName(kind),
		ByPolicy:   kind > frame.DedupID,
		counts:     map[string]int{},
	}

	// Until when its key counts, and whether it does now.
	v.mu.RLock()
	set, meta := v.s.settings, v.s.meta
	x.Until, x.InWindow = v.s.untilWhen(&e, kind)
	v.mu.RUnlock()

	// Receipts of its duplicates are in the entries appended after it, within the longest window that was ever set.
	window := max(set.DedupWindow, meta.MaxWindow)
	if x.ByPolicy {
		window = max(window, meta.MaxPolicyWindow)
	}
	last := e.AppendedAt.Add(window)
	// The map has no order: the list is by source.
	err = v.eachReceipt(ctx, cols.Index, last, x.count)
	for _, source := range slices.Sorted(maps.Keys(x.counts)) {
		x.Sources = append(x.Sources, SourceCount{source, x.counts[source]})
	}
	return x, err
}

// untilWhen returns when the key of an event leaves its window, and whether the same event, published now, would be
// suppressed.
func (s *state) untilWhen(e *event.Event, kind frame.DedupKind) (until time.Time, inWindow bool) {
	// The policy of its type, or the window of all types, has its key.
	switch kind {
	case frame.DedupTypeContent, frame.DedupTypeFields:
		p := s.policies.byType[e.Type]
		if p == nil {
			return e.AppendedAt, false // its key was removed with the policy
		}
		return e.AppendedAt.Add(p.window(&s.settings)), p.holds(e.Offset, s.meta.Time, &s.settings)
	case frame.DedupContent, frame.DedupID:
		until = e.AppendedAt.Add(s.settings.DedupWindow)
		// Events of a type with a policy are compared with what that policy has accepted, unless they have a dedup id.
		other := kind == frame.DedupContent && s.policies.gate.Of(e.Type) != nil
		return until, e.Offset >= s.meta.WindowStart && until.UnixNano() > s.meta.Time && !other
	// An event that was not compared is no reason to suppress another one.
	default:
		return e.AppendedAt.Add(s.settings.DedupWindow), false
	}
}

// kindName is how people see a kind. Whether the policy of the type decided is in ByPolicy.
func kindName(k frame.DedupKind) string {
	switch k {
	case frame.DedupTypeFields:
		return "fields"
	case frame.DedupContent, frame.DedupTypeContent:
		return "content"
	case frame.DedupID:
		return "dedup_id"
	default:
		return "off"
	}
}

// count takes in one suppressed event; those of other offsets are ignored.
func (x *Explanation) count(offset uint64, source string, at time.Time) {
	if offset != x.Offset {
		return
	}
	// Receipts are read in the order of their entries.
	if x.Suppressed == 0 {
		x.First = at
	}
	x.Suppressed++
	x.Last = at
	x.counts[source]++
}

// ErrUnknownHash says that no retained event has that content.
var ErrUnknownHash = errors.New("no retained event has that hash")

// maxOthers bounds the offsets listed beside the explained one.
const maxOthers = 100

// ExplainHash explains the newest event with that content hash, among those kept.
func (v *views) ExplainHash(ctx context.Context, h event.Hash) (Explanation, error) {
	offsets, err := v.offsetsOf(ctx, h)
	if err != nil {
		return Explanation{}, err
	}
	if len(offsets) == 0 {
		return Explanation{}, fmt.Errorf("explain %s: %w", h, ErrUnknownHash)
	}

	// Offsets ascend: the last one is the newest.
	x, err := v.Explain(ctx, offsets[len(offsets)-1])
	others := offsets[:len(offsets)-1]
	x.Others = others[max(0, len(others)-maxOthers):]
	return x, err
}

// offsetsOf returns the offsets of the retained events with that content hash. It goes through the key columns of
// everything retained, and reads only the events whose columns match.
func (v *views) offsetsOf(ctx context.Context, h event.Hash) ([]uint64, error) {
	first, last := v.log.Bounds()
	var offsets []uint64
	prefix := [8]byte(h[:8])

	// The columns have a prefix of the hash: the candidates are checked below.
	err := v.log.EachColumns(first, last, func(c *log.Columns) bool {
		// Offsets are those of the records that are not suppressed, in their order.
		offset := c.First
		for row := range c.Len() {
			if c.Suppressed.Has(row) {
				continue
			}
			if c.ContentAt(row) == prefix && offset >= first && offset <= last {
				offsets = append(offsets, offset)
			}
			offset++
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = ctx.Err()
	}

	// Only the events themselves have the whole hash.
	return slices.DeleteFunc(offsets, func(o uint64) bool {
		e, getErr := v.log.Get(o)
		return getErr != nil || e.Hash() != h
	}), err
}

// eachReceipt calls yield for every suppressed event of the entries from index on,
// up to a replicated time.
func (v *views) eachReceipt(
	ctx context.Context, index uint64, until time.Time, yield func(offset uint64, source string, at time.Time),
) error {
	return v.log.View(func(db kv.DB) error {
		// Receipts have the index of their entry as their key.
		it, err := db.Iter(indexKey(prefixReceipts, index), []byte{prefixReceipts + 1})
		if err != nil {
			return fmt.Errorf("receipts: %w", err)
		}
		defer it.Close()
		for ok := it.First(); ok && ctx.Err() == nil; ok = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("receipts: %w", err)
			}
			// Entries are in the order of their times: no later one counts.
			if at := readReceipts(value, yield); at.After(until) {
				break
			}
		}
		return errors.Join(it.Error(), ctx.Err())
	})
}
