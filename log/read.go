package log

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/kv"
)

// Gap reports to a reader what it cannot get any more.
type Gap struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
	// Types counts the events of the gap that match the reader's filter by type and
	// source; Uncounted is how many events exceeded what is counted.
	Types     map[string]uint64 `json:"types,omitempty"`
	Uncounted uint64            `json:"uncounted,omitempty"`
}

// ReasonTrimmed is the reason of a gap that a reader without a cursor meets.
const ReasonTrimmed = "trimmed"

// Chunk is what one Read found.
type Chunk struct {
	Events []event.Event // matching, in order; shared with other readers, must not be changed
	Next   uint64        // where to resume: after everything that was read
	Gap    *Gap          // what was skipped because it is trimmed; Events is then empty
	bytes  int64         // of the blocks that hold Events, about
}

// maxBytesPerRead bounds the memory of what one Read returns, about.
const maxBytesPerRead = 32 << 20

// maxBlocksPerRead bounds how many blocks are read while the database cannot be replaced, for a filter that matches
// nothing, say.
const maxBlocksPerRead = 256

// Read returns up to limit matching events from offset from on: it stops at limit, after the block with which they take
// 32 MiB, at the tail, or after many blocks. It never waits. A read past the tail finds nothing. Events that
// were redriven for one cursor are skipped.
func (l *Log) Read(from uint64, m *event.Matcher, limit int) (Chunk, error) {
	return l.ReadFor("", from, m, limit)
}

// ReadFor is Read for a cursor, or for EveryCursor: it also returns the events that were
// redriven for that cursor, whether its filter passes them or not.
func (l *Log) ReadFor(cursor string, from uint64, m *event.Matcher, limit int) (Chunk, error) {
	chunk, limit := Chunk{Next: from}, max(limit, 1)
	gap, err := l.walk(from, func(b *cached) (more bool, err error) {
		found := len(chunk.Events)
		err = chunk.addMatching(b, cursor, m, limit)
		if len(chunk.Events) > found {
			chunk.bytes += b.decodedBytes()
		}
		return len(chunk.Events) < limit && chunk.bytes < maxBytesPerRead, err
	})
	if gap != nil {
		return Chunk{Next: gap.To + 1, Gap: gap}, nil
	}
	return chunk, err
}

// walk calls visit with the blocks in order, beginning with the one that holds from, until
// visit wants no more. It returns a gap where from is not retained any more.
func (l *Log) walk(from uint64, visit func(*cached) (more bool, err error)) (*Gap, error) {
	first, last := l.Bounds()
	if from < first {
		return &Gap{From: from, To: first - 1, Reason: ReasonTrimmed}, nil
	}
	if from > last {
		return nil, nil
	}
	visited := false
	err := l.View(func(db kv.DB) error {
		// A reader that follows the log finds the newest blocks in the cache, which has them
		// by their first offset, and opens no iterator.
		at, n := from, 0
		for ; at <= last && n < maxBlocksPerRead; n++ {
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

		// The others come from the database, from the block that holds at.
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
			wanted, err := visit(b)
			if err != nil {
				return err
			}
			more = wanted && it.Next()
		}
		return it.Error()
	})
	if errors.Is(err, errMissing) || (err == nil && !visited) {
		return l.trimmedMeanwhile(from)
	}
	return nil, l.reportDamage(err)
}

// errMissing is wrapped where no block holds an offset: it was trimmed meanwhile, or the log has a hole.
var errMissing = errors.New("no block holds it")

// trimmedMeanwhile is the result of a read that found no block: a gap where a trim has
// removed it since Bounds, and an error where the log has a hole.
func (l *Log) trimmedMeanwhile(from uint64) (*Gap, error) {
	first, _ := l.Bounds()
	if from >= first {
		return nil, l.reportDamage(fmt.Errorf("log: read %d: %w: %w", from, ErrCorrupt, errMissing))
	}
	return &Gap{From: from, To: first - 1, Reason: ReasonTrimmed}, nil
}

// blockIter iterates over the blocks that begin at last or before.
func blockIter(db kv.DB, last uint64) (kv.Iterator, error) {
	it, err := db.Iter([]byte{prefixBlock}, blockKey(last+1))
	if err != nil {
		return nil, fmt.Errorf("log: read: %w", err)
	}
	return it, nil
}

// addMatching adds b's matching events from c.Next on, and moves c.Next past the block or
// past the event that reached limit.
func (c *Chunk) addMatching(b *cached, cursor string, m *event.Matcher, limit int) error {
	if b.last() < c.Next || c.Next < b.first {
		return errMissing
	}

	// A redriven block is for its cursor whatever the filter; of any other block the header
	// says, without decompressing it, whether an event can match.
	if !b.isFor(cursor) || (b.target == "" && !b.header.MayContain(m)) {
		c.Next = b.last() + 1
		return nil
	}
	events, err := b.decoded()
	if err != nil {
		return err
	}
	events = events[c.Next-b.first:]

	// Where every event matches, the chunk is a part of the cached block.
	if m.Empty() && len(c.Events) == 0 {
		events = events[:min(len(events), limit)]
		c.Events = events[:len(events):len(events)]
		c.Next += uint64(len(events))
		return nil
	}
	for i := range events {
		c.Next = events[i].Offset + 1
		if b.target == "" && !m.Match(&events[i]) {
			continue
		}
		c.Events = append(c.Events, events[i])
		if len(c.Events) == limit {
			break
		}
	}
	return nil
}

// Pick returns the events at offsets, which ascend. It leaves out those that are not retained any
// more and those that the log has not reached. It reads each block once, and never waits.
func (l *Log) Pick(offsets []uint64) ([]event.Event, error) {
	events := make([]event.Event, 0, len(offsets))
	for len(offsets) > 0 {
		var err error
		events, offsets, err = l.pickSome(events, offsets)
		if err != nil {
			return events, l.reportDamage(err)
		}
	}
	return events, nil
}

// pickSome appends the events of up to maxBlocksPerRead blocks to events, and returns the offsets that are left. The
// database cannot be replaced while it is read, so offsets in many blocks take several calls.
func (l *Log) pickSome(events []event.Event, offsets []uint64) (_ []event.Event, left []uint64, err error) {
	err = l.View(func(db kv.DB) error {
		first, last := l.Bounds()
		it, err := blockIter(db, last)
		if err != nil {
			return err
		}
		defer it.Close()
		var b *cached // of the offset before
		blocks := 0
		for i, offset := range offsets {
			if offset < first || offset > last {
				continue
			}
			if b == nil || offset > b.last() {
				if blocks == maxBlocksPerRead {
					left = offsets[i:]
					return nil
				}
				blocks++
				b, err = l.blockAt(it, offset)
				if first, _ := l.Bounds(); errors.Is(err, errMissing) && offset < first {
					continue // trimmed meanwhile
				}
				if err != nil {
					return err
				}
			}
			decoded, err := b.decoded()
			if err != nil {
				return err
			}
			events = append(events, decoded[offset-b.first])
		}
		return nil
	})
	return events, left, err
}

// load returns the block that holds offset, which was within Bounds.
func (l *Log) load(offset uint64) (b *cached, err error) {
	err = l.View(func(db kv.DB) error {
		it, err := blockIter(db, offset)
		if err != nil {
			return err
		}
		defer it.Close()
		b, err = l.blockAt(it, offset)
		return err
	})
	return b, l.trimmedOr(offset, err)
}

// blockAt moves an iterator to the block that holds offset, and returns that block.
func (l *Log) blockAt(it kv.Iterator, offset uint64) (*cached, error) {
	// The block that holds offset is the last one that begins there or before.
	if !it.SeekLT(blockKey(offset + 1)) {
		return nil, fmt.Errorf("log: read %d: %w: %w (%v)", offset, ErrCorrupt, errMissing, it.Error())
	}
	b, err := l.cache.block(it)
	// The block before a hole ends before offset.
	if err == nil && b.last() < offset {
		return nil, fmt.Errorf("log: read %d: %w: %w", offset, ErrCorrupt, errMissing)
	}
	return b, err
}

// firstOf returns the offset in the key of the iterator, which is at a block or at columns.
func firstOf(it kv.Iterator) uint64 { return binary.BigEndian.Uint64(it.Key()[1:]) }
