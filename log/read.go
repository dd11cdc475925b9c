package log

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/ringrift/ringlog/event"
)

// Gap tells a reader what it can not get any more.
type Gap struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
	// Types counts what the gap held for the reader's filter, as far as type and
	// source tell; Uncounted is how many events were too many to look at.
	Types     map[string]uint64 `json:"types,omitempty"`
	Uncounted uint64            `json:"uncounted,omitempty"`
}

// ReasonTrimmed is the reason of a gap that a reader without a cursor meets.
const ReasonTrimmed = "trimmed"

// Chunk is what one Read found.
type Chunk struct {
	Events []event.Event // matching, in order; shared with other readers, never to be changed
	Next   uint64        // where to go on: behind all that was looked at
	Gap    *Gap          // what was skipped because it is trimmed; Events is then empty
}

// maxBlocksPerRead bounds how much a filter that matches nothing passes over in
// one call.
const maxBlocksPerRead = 256

// Read returns up to about limit matching events from offset from on: it stops at
// the end of the block that reaches limit, at the tail, or after many blocks
// without a match. It never waits. A read past the tail finds nothing. What was
// appended again for one cursor is passed over.
func (l *Log) Read(from uint64, m *event.Matcher, limit int) (Chunk, error) {
	return l.ReadFor("", from, m, limit)
}

// ReadFor is Read for a cursor, or for EveryCursor: it gets what was appended again for
// it too, whatever its filter.
func (l *Log) ReadFor(cursor string, from uint64, m *event.Matcher, limit int) (Chunk, error) {
	chunk, limit := Chunk{Next: from}, max(limit, 1)
	gap, err := l.walk(from, func(b *cached) (more bool, err error) {
		err = chunk.take(b, cursor, m, limit)
		return len(chunk.Events) < limit, err
	})
	if gap != nil {
		return Chunk{Next: gap.To + 1, Gap: gap}, nil
	}
	return chunk, err
}

// walk calls visit with the blocks from the one that holds from on, in order, until it
// wants no more. A gap says that from is not kept any more.
func (l *Log) walk(from uint64, visit func(*cached) (more bool, err error)) (*Gap, error) {
	first, last := l.Bounds()
	if from < first {
		return &Gap{From: from, To: first - 1, Reason: ReasonTrimmed}, nil
	}
	if from > last {
		return nil, nil
	}
	visited := false
	err := l.View(func(db *pebble.DB) error {
		at, n := from, 0
		for ; at <= last && n < maxBlocksPerRead; n++ { // whoever follows the log finds the newest ones in memory
			b := l.cache.get(at)
			if b == nil {
				break
			}
			visited = true
			if more, err := visit(b); err != nil || !more {
				return err
			}
			at = b.last() + 1
		}
		if at > last || n == maxBlocksPerRead {
			return nil
		}
		it, err := blockIter(db, last)
		if err != nil {
			return err
		}
		defer it.Close()
		more := it.SeekLT(blockKey(at + 1))
		for ; more && n < maxBlocksPerRead; n++ {
			b, err := l.cache.block(it)
			if err != nil {
				return err
			}
			visited = true
			if more, err = visit(b); err != nil {
				return err
			}
			more = more && it.Next()
		}
		return it.Error()
	})
	if errors.Is(err, errMissing) || err == nil && !visited {
		return l.trimmedMeanwhile(from)
	}
	return nil, l.tell(err)
}

var errMissing = errors.New("no block holds it")

// trimmedMeanwhile answers a read that found no block: a trim overtook it, or the
// log has a hole.
func (l *Log) trimmedMeanwhile(from uint64) (*Gap, error) {
	first, _ := l.Bounds()
	if from >= first {
		return nil, l.tell(fmt.Errorf("log: read %d: %w: %w", from, ErrCorrupt, errMissing))
	}
	return &Gap{From: from, To: first - 1, Reason: ReasonTrimmed}, nil
}

func blockIter(db *pebble.DB, last uint64) (*pebble.Iterator, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixBlock}, UpperBound: blockKey(last + 1)})
	if err != nil {
		return nil, fmt.Errorf("log: read: %w", err)
	}
	return it, nil
}

// take adds b's matching events from c.Next on and moves c.Next behind what it
// looked at: behind the block, or behind the event that reached limit.
func (c *Chunk) take(b *cached, cursor string, m *event.Matcher, limit int) error {
	if b.last() < c.Next || c.Next < b.first {
		return errMissing
	}
	if !b.isFor(cursor) || b.target == "" && !b.header.MayContain(m) {
		c.Next = b.last() + 1
		return nil
	}
	events, err := b.decoded()
	if err != nil {
		return err
	}
	events = events[c.Next-b.first:]
	if m.Empty() && len(c.Events) == 0 {
		events = events[:min(len(events), limit)]
		c.Events = events[:len(events):len(events)]
		c.Next += uint64(len(events))
		return nil
	}
	for i := range events {
		c.Next = events[i].Offset + 1
		if b.target != "" || m.Match(&events[i]) {
			if c.Events = append(c.Events, events[i]); len(c.Events) == limit {
				break
			}
		}
	}
	return nil
}

// load returns the block that offset is in, which must be within bounds.
func (l *Log) load(offset uint64) (b *cached, err error) {
	err = l.View(func(db *pebble.DB) error {
		it, err := blockIter(db, offset)
		if err != nil {
			return err
		}
		defer it.Close()
		if !it.SeekLT(blockKey(offset + 1)) {
			return fmt.Errorf("log: read %d: %w: %w (%v)", offset, ErrCorrupt, errMissing, it.Error())
		}
		b, err = l.cache.block(it)
		if err == nil && b.last() < offset {
			return fmt.Errorf("log: read %d: %w: %w", offset, ErrCorrupt, errMissing)
		}
		return err
	})
	return b, l.overtaken(offset, err)
}

func firstOf(it *pebble.Iterator) uint64 { return binary.BigEndian.Uint64(it.Key()[1:]) }
