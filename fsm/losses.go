package fsm

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ringrift/ringlog/internal/fields"
	"github.com/ringrift/ringlog/internal/kv"
	"github.com/ringrift/ringlog/log"
)

// losses are what trims took from the cursors that they passed. The gap of each cursor is computed
// from them, so a trim costs the same for one of these cursors and for a million. They follow
// each other without a hole and end before the first offset that is kept.
//
// New ones are joined as the digits of a binary number are, but not where a cursor has its
// place at the seam while there are few: then its gap is exact.
type losses struct {
	list []loss // ascending; it is replaced as a whole and never changed
	// sums returns, for each loss, the sum of it and all that follow. They are computed once, for all
	// cursors that have the same losses before them; their maps are shared.
	sums func() []log.Gap
}

// newLosses returns losses whose sums are computed when the first gap needs them. The list must not be
// changed afterwards.
func newLosses(list []loss) losses {
	return losses{list, sync.OnceValue(func() []log.Gap {
		// From the last one on: each sum adds one loss to the sum after it.
		sums := make([]log.Gap, len(list)+1)
		for i := len(list) - 1; i >= 0; i-- {
			sums[i] = log.Gap{Types: maps.Clone(sums[i+1].Types), Uncounted: sums[i+1].Uncounted}
			list[i].addTo(&sums[i])
		}
		return sums
	})}
}

// lossApplier records what trims take from cursors.
type lossApplier struct {
	*applying
	opened int // blocks, to count their types
}

// loss is what was trimmed from one offset to another, stored under 'z' and from:
//
//	byte     1, the form
//	uvarint  to
//	uvarint  trims that it was joined from
//	uvarint  events that were too many to count by type
//	uvarint  number of types, then for each in order of its name:
//	         uvarint length, the name, uvarint events
type loss struct {
	from, to  uint64
	trims     uint64
	uncounted uint64
	types     []typeCount // by name
}

// typeCount is how many events of a type were trimmed.
type typeCount struct {
	name string
	n    uint64
}

const (
	lossForm = 1

	maxCountedBlocks = 256  // that one entry opens to count types
	maxGapTypes      = 1000 // that a loss, or a gap, lists
	maxLosses        = 64   // that are kept; beyond it neighbours are joined
)

// encode returns the value, as it is drawn at loss; from is in the key.
func (l *loss) encode() []byte {
	b := []byte{lossForm}
	for _, n := range []uint64{l.to, l.trims, l.uncounted, uint64(len(l.types))} {
		b = binary.AppendUvarint(b, n)
	}
	for _, t := range l.types {
		b = binary.AppendUvarint(fields.Append(b, t.name), t.n)
	}
	return b
}

// loadLosses reads what was trimmed.
func (s *state) loadLosses(db kv.DB) error {
	var list []loss
	err := scan(db, prefixLoss, func(key string, value []byte) error {
		l, err := decodeLoss(key, value)
		list = append(list, l)
		return err
	})
	s.losses = newLosses(list)
	return err
}

// decodeLoss reads what encode wrote.
func decodeLoss(key string, b []byte) (loss, error) {
	if len(key) != 8 {
		return loss{}, errors.New("a cut key")
	}
	r := fields.Reader{Rest: b}
	r.Form(lossForm)
	l := loss{from: binary.BigEndian.Uint64([]byte(key)), to: r.Uvarint(), trims: r.Uvarint(), uncounted: r.Uvarint()}

	// A type takes two bytes at least, which bounds what a damaged count can claim.
	for range r.Count(2) {
		l.types = append(l.types, typeCount{string(r.Bytes()), r.Uvarint()})
	}
	if l.to < l.from {
		r.Fail("it ends at %d, before it begins", l.to)
	}
	return l, r.End()
}

// lossKey orders losses by where they begin.
func lossKey(from uint64) []byte { return indexKey(prefixLoss, from) }

// count takes in events of a type; past the bound of types they are not counted by type.
func (l *loss) count(name string, n uint64) {
	byName := func(t typeCount, name string) int { return strings.Compare(t.name, name) }
	// The types are kept by name, so the stored form is the same on every node.
	i, listed := slices.BinarySearchFunc(l.types, name, byName)
	switch {
	case listed:
		l.types[i].n += n
	case len(l.types) < maxGapTypes:
		l.types = slices.Insert(l.types, i, typeCount{name, n})
	default:
		l.uncounted += n
	}
}

// join takes in the loss that follows.
func (l *loss) join(next *loss) {
	l.to, l.trims, l.uncounted = next.to, l.trims+next.trims, l.uncounted+next.uncounted
	for _, t := range next.types {
		l.count(t.name, t.n)
	}
}

// recordLoss records what a trim from one offset to another takes from the cursors that it
// passes, and forgets losses that all cursors have passed. The blocks are still there.
func (a *lossApplier) recordLoss(from, to uint64) error {
	// Where no cursor is passed, nothing has to be known of what is trimmed.
	lowest, _, some := a.s.ranks.byPassed.Min()
	if !some || lowest.rank >= to {
		a.keepLosses(nil)
		return nil
	}
	added, err := a.countLosses(from, to)
	if err != nil {
		return err
	}
	// A loss that every cursor has passed is in no gap any more. The list of the state stays as it is, since
	// readers share it.
	list := slices.Clone(a.s.losses.list)
	for len(list) > 0 && list[0].to <= lowest.rank {
		list = list[1:]
	}
	// Join the new ones with those before them while these come from no more trims, as a binary number
	// carries: where no cursor's place keeps them apart, there are as many as the number has digits.
	for _, l := range added {
		list = append(list, l)
		for n := len(list); n > 1; n = len(list) {
			if list[n-2].trims > list[n-1].trims || a.atSeam(list[n-2].from, list[n-1].from) {
				break
			}
			list = a.joinAt(list, n-2)
		}
	}
	a.keepLosses(a.joinDown(list))
	return nil
}

// atSeam reports whether joining the loss that begins at from with the next one, at seam, would cost a
// cursor its exact count: its place is within that loss, or at the seam.
func (a *lossApplier) atSeam(from, seam uint64) bool {
	for range a.s.ranks.byPassed.Ascend(atLeast(from), below(seam)) {
		return true
	}
	return false
}

// joinDown joins as many as are too many: those with no cursor's place at the seam first,
// then the oldest.
func (a *lossApplier) joinDown(list []loss) []loss {
	// First those by which no cursor loses count.
	for i := 0; len(list) > maxLosses && i < len(list)-1; {
		if a.atSeam(list[i].from, list[i+1].from) {
			i++
		} else {
			list = a.joinAt(list, i)
		}
	}

	// Cursors with a place among the oldest lose the exact count by type.
	for len(list) > maxLosses {
		list = a.joinAt(list, 0)
	}
	return list
}

// joinAt joins a loss with the next one. Those of the state stay as they are.
func (a *lossApplier) joinAt(list []loss, i int) []loss {
	joined := list[i]
	// The types are shared with the list of the state.
	joined.types = slices.Clone(joined.types)
	joined.join(&list[i+1])
	list[i] = joined
	return slices.Delete(list, i+1, i+2)
}

// keepLosses stores what differs from the losses before.
func (a *lossApplier) keepLosses(list []loss) {
	was := a.s.losses.list
	if len(was)+len(list) == 0 {
		return
	}
	a.s.losses = newLosses(list)

	// Both lists ascend: walk them together and write the differences.
	for len(was) > 0 || len(list) > 0 {
		switch {
		case len(list) == 0 || (len(was) > 0 && was[0].from < list[0].from):
			a.tx.Delete(lossKey(was[0].from))
			was = was[1:]
		case len(was) == 0 || list[0].from < was[0].from:
			a.tx.Set(lossKey(list[0].from), list[0].encode())
			list = list[1:]
		default:
			if was[0].to != list[0].to {
				a.tx.Set(lossKey(list[0].from), list[0].encode())
			}
			was, list = was[1:], list[1:]
		}
	}
}

// countLosses counts the types from one offset to another, in parts that begin where
// cursors have their places.
func (a *lossApplier) countLosses(from, to uint64) (list []loss, err error) {
	// A part begins after each cursor's place, so the gap of each is made of whole parts.
	list = []loss{{from: from, to: to, trims: 1}}
	for place := range a.s.ranks.byPassed.Ascend(atLeast(from), below(to)) {
		if last := &list[len(list)-1]; place.rank+1 > last.from {
			if len(list) == maxLosses {
				break
			}
			last.to = place.rank
			list = append(list, loss{from: place.rank + 1, to: to, trims: 1})
		}
	}

	// takes counts events of one type, which begin at an offset, in the parts that they are in.
	part, counted := 0, from
	takes := func(offset uint64, events int, name string) {
		for last := offset + uint64(events) - 1; offset <= last; offset = list[part].to + 1 {
			for offset > list[part].to {
				part++
			}
			list[part].count(name, min(last, list[part].to)+1-offset)
			if last <= list[part].to {
				return
			}
		}
	}

	// Heads list the types of their blocks; columns are only read where a block has several.
	err = a.log.EachTypes(from, to, func(first uint64, events int, types []string) bool {
		a.opened++
		// An entry must not take long: the rest is not counted by type.
		if a.opened > maxCountedBlocks {
			return false
		}
		counted = first + uint64(events)
		switch {
		// Nobody loses what a redrive appended: its letters are dead again.
		case types == nil:
		case len(types) == 1:
			takes(first, events, types[0])
		default:
			cols, err := a.log.Columns(first)
			if err != nil {
				a.tx.keepError(err)
				return false
			}
			offset := first
			for row := range cols.Len() {
				if !cols.Suppressed.Has(row) {
					takes(offset, 1, types[cols.TypeAt(row)])
					offset++
				}
			}
		}
		return true
	})

	// What was not opened is not counted by type.
	for i := range list {
		if l := &list[i]; counted <= l.to {
			l.uncounted += l.to + 1 - max(l.from, counted)
		}
	}
	return list, err
}

// gapOf returns what was trimmed before a cursor passed it, nil if that is nothing. The types are
// shared: the caller must not change them.
func (s *state) gapOf(c *Cursor) *log.Gap {
	next, first := c.Passed()+1, s.meta.First
	if next >= first {
		return nil
	}
	gap := &log.Gap{From: next, To: first - 1, Reason: s.meta.TrimReason}
	if gap.Reason == "" {
		gap.Reason = log.ReasonTrimmed
	}

	// From whole on, losses are after the place of this cursor; what is before counts without types.
	list := s.losses.list
	whole, _ := slices.BinarySearchFunc(list, next,
		func(l loss, offset uint64) int { return cmp.Compare(l.from, offset) })
	before := first // up to here nothing is known of types, or it is about others, too
	if whole < len(list) {
		before = list[whole].from
	}
	if next < before {
		gap.Uncounted = c.open(next, before-1)
	}

	// Most cursors lose all that follows, which is summed already.
	if !c.settledWithin(before, first-1) {
		sum := &s.losses.sums()[whole]
		gap.Types, gap.Uncounted = sum.Types, gap.Uncounted+sum.Uncounted
		return gap
	}

	// A group that has settled a part of a loss does not know which types are left of it.
	for _, l := range list[whole:] {
		if c.settledWithin(l.from, l.to) {
			gap.Uncounted += c.open(l.from, l.to)
		} else {
			l.addTo(gap)
		}
	}
	return gap
}

// addTo adds a loss to a gap.
func (l *loss) addTo(gap *log.Gap) {
	// Types past the bound of a gap are not listed.
	gap.Uncounted += l.uncounted
	if gap.Types == nil && len(l.types) > 0 {
		gap.Types = map[string]uint64{}
	}
	for _, t := range l.types {
		if _, listed := gap.Types[t.name]; listed || len(gap.Types) < maxGapTypes {
			gap.Types[t.name] += t.n
		} else {
			gap.Uncounted += t.n
		}
	}
}

// settledWithin reports whether a group has settled any of the offsets from from to to,
// which are after its commit.
func (c *Cursor) settledWithin(from, to uint64) bool {
	return c.Group != nil && ranges(c.Group.Done).within(from, to) > 0
}
