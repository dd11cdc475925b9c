package fsm

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/RaduBerinde/btreemap"

	"github.com/ringrift/ringlog/log"
)

// losses are what trims took from the cursors that they passed: the gap of each is worked
// out from them, so that a trim costs the same for one of these cursors and for a million.
// They follow each other without a hole and end before the first offset that is kept.
//
// New ones are joined as the digits of a binary number are, but not where a cursor has its
// place at the seam while there are few: then its gap is exact.
type losses []loss

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

type typeCount struct {
	name string
	n    uint64
}

const (
	lossForm = 1

	maxCountedBlocks = 256  // that one entry opens to count types
	maxGapTypes      = 1000 // that a loss, or a gap, lists
	maxLosses        = 64
)

func (l *loss) encode() []byte {
	b := []byte{lossForm}
	for _, n := range []uint64{l.to, l.trims, l.uncounted, uint64(len(l.types))} {
		b = binary.AppendUvarint(b, n)
	}
	for _, t := range l.types {
		b = binary.AppendUvarint(b, uint64(len(t.name)))
		b = binary.AppendUvarint(append(b, t.name...), t.n)
	}
	return b
}

// load reads a loss that follows those that were read.
func (list *losses) load(key string, b []byte) error {
	if len(key) != 8 || len(b) == 0 || b[0] != lossForm {
		return errors.New("a form that this build does not know")
	}
	b = b[1:]
	bad := false
	uvarint := func() uint64 {
		v, n := binary.Uvarint(b)
		bad = bad || n <= 0
		b = b[max(n, 0):]
		return v
	}
	l := loss{from: binary.BigEndian.Uint64([]byte(key)), to: uvarint(), trims: uvarint(), uncounted: uvarint()}
	for types := uvarint(); types > 0 && !bad; types-- {
		size := uvarint()
		if size > uint64(len(b)) {
			bad = true
			break
		}
		name := string(b[:size])
		b = b[size:]
		l.types = append(l.types, typeCount{name, uvarint()})
	}
	if bad || len(b) > 0 || l.to < l.from {
		return errors.New("cut or altered")
	}
	*list = append(*list, l)
	return nil
}

func lossKey(from uint64) []byte { return indexKey(prefixLoss, from) }

// count takes in events of a type; what is past the bound of types is not told apart.
func (l *loss) count(name string, n uint64) {
	i, listed := slices.BinarySearchFunc(l.types, name, func(t typeCount, name string) int {
		switch {
		case t.name < name:
			return -1
		case t.name > name:
			return 1
		}
		return 0
	})
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
// passes, and forgets what no cursor has before it any more. The blocks are still there.
func (a *applier) recordLoss(from, to uint64) error {
	lowest, _, some := a.s.ranks.byCommit.Min()
	if !some || lowest.rank >= to {
		a.keepLosses(nil)
		return nil
	}
	added, err := a.countLosses(from, to)
	if err != nil {
		return err
	}
	list := slices.Clone(a.s.losses)
	for len(list) > 0 && list[0].to <= lowest.rank {
		list = list[1:]
	}
	for _, l := range added {
		list = append(list, l)
		for n := len(list); n > 1 && list[n-2].trims <= list[n-1].trims && !a.atSeam(list[n-2].from, list[n-1].from); n = len(list) {
			list = a.joinAt(list, n-2)
		}
	}
	for len(list) > maxLosses {
		list = a.joinAt(list, a.leastMissed(list))
	}
	a.keepLosses(list)
	return nil
}

// atSeam reports whether a cursor would lose count where a loss from one offset is joined
// with the next: it has its place within it, or at the seam.
func (a *applier) atSeam(from, seam uint64) bool {
	for range a.s.ranks.byCommit.Ascend(btreemap.GE(ranked[uint64]{rank: from}), btreemap.LT(ranked[uint64]{rank: seam})) {
		return true
	}
	return false
}

// leastMissed returns the seam to give up: the oldest where no cursor has its place, else
// the oldest of all.
func (a *applier) leastMissed(list losses) int {
	for i := range len(list) - 1 {
		if !a.atSeam(list[i].from, list[i+1].from) {
			return i
		}
	}
	return 0
}

// joinAt joins a loss with the next one. Those of the state stay as they are.
func (a *applier) joinAt(list losses, i int) losses {
	joined := list[i]
	joined.types = slices.Clone(joined.types)
	joined.join(&list[i+1])
	list[i] = joined
	return slices.Delete(list, i+1, i+2)
}

// keepLosses stores what differs from the losses before.
func (a *applier) keepLosses(list losses) {
	was := a.s.losses
	a.s.losses = list
	for len(was) > 0 || len(list) > 0 {
		switch {
		case len(list) == 0 || len(was) > 0 && was[0].from < list[0].from:
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
func (a *applier) countLosses(from, to uint64) (list losses, err error) {
	list = losses{{from: from, to: to, trims: 1}}
	for place := range a.s.ranks.byCommit.Ascend(btreemap.GE(ranked[uint64]{rank: from}), btreemap.LT(ranked[uint64]{rank: to})) {
		if last := &list[len(list)-1]; place.rank+1 > last.from {
			if len(list) == maxLosses {
				break
			}
			last.to = place.rank
			list = append(list, loss{from: place.rank + 1, to: to, trims: 1})
		}
	}
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
	err = a.log.EachTypes(from, to, func(first uint64, events int, types []string) bool {
		if a.opened++; a.opened > maxCountedBlocks {
			return false
		}
		counted = first + uint64(events)
		switch {
		case types == nil: // what was appended again is lost to nobody: its letters are dead again
		case len(types) == 1:
			takes(first, events, types[0])
		default:
			cols, err := a.log.Columns(first)
			if err != nil {
				a.tx.keep(err)
				return false
			}
			offset := first
			for row := range cols.Len() {
				if !cols.Dead.Has(row) {
					takes(offset, 1, types[cols.TypeAt(row)])
					offset++
				}
			}
		}
		return true
	})
	for i := range list { // what was not opened
		if l := &list[i]; counted <= l.to {
			l.uncounted += l.to + 1 - max(l.from, counted)
		}
	}
	return list, err
}

// gapOf is what was trimmed and a cursor has not committed, nil where that is nothing.
func (s *state) gapOf(c *Cursor) *log.Gap {
	next, first := c.Committed+1, s.meta.First
	if next >= first {
		return nil
	}
	gap := &log.Gap{From: next, To: first - 1, Reason: s.meta.TrimReason}
	if gap.Reason == "" {
		gap.Reason = log.ReasonTrimmed
	}
	for i := range s.losses {
		l := &s.losses[i]
		if l.to < next {
			continue
		}
		from := max(l.from, next)
		if from > next {
			gap.Uncounted += c.open(next, from-1)
		}
		if next = l.to + 1; from > l.from || c.settledWithin(from, l.to) {
			gap.Uncounted += c.open(from, l.to) // it is about others, too
			continue
		}
		gap.Uncounted += l.uncounted
		for _, t := range l.types {
			countType(gap, t)
		}
	}
	if next < first {
		gap.Uncounted += c.open(next, first-1)
	}
	return gap
}

func countType(gap *log.Gap, t typeCount) {
	_, listed := gap.Types[t.name]
	if !listed && len(gap.Types) == maxGapTypes {
		gap.Uncounted += t.n
		return
	}
	if gap.Types == nil {
		gap.Types = map[string]uint64{}
	}
	gap.Types[t.name] += t.n
}

// settledWithin reports whether a group has settled any of the offsets from from to to,
// which are after its commit.
func (c *Cursor) settledWithin(from, to uint64) bool {
	return c.Group != nil && ranges(c.Group.Done).within(from, to) > 0
}
