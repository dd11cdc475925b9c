package log

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/kv"
)

// Log reads and writes blocks. Any number of goroutines may read; one appends.
//
// first <= last+1 always; first == last+1 is an empty log.
type Log struct {
	// mu is held shared while db is read and exclusively to replace it: no database
	// is closed under a reader.
	mu sync.RWMutex
	db kv.DB

	state sync.Mutex // guards the next three
	first uint64
	last  uint64
	grown chan struct{} // closed when last grows

	cache    *cache
	onDamage func(error)
}

// New returns a log without a database, whose decoded blocks may take about
// cacheBytes of memory. onDamage, unless nil, is called with every error that wraps
// ErrCorrupt before a reader gets it, possibly by many goroutines at a time.
func New(cacheBytes int64, onDamage func(error)) *Log {
	if onDamage == nil {
		onDamage = func(error) {}
	}
	return &Log{first: 1, grown: make(chan struct{}), cache: newCache(cacheBytes), onDamage: onDamage}
}

// reportDamage returns err, and reports it first where it wraps ErrCorrupt.
func (l *Log) reportDamage(err error) error {
	if errors.Is(err, ErrCorrupt) {
		l.onDamage(err)
	}
	return err
}

// Attach replaces the database with db once no reader uses it, and returns the one
// before, which is nil the first time.
func (l *Log) Attach(db kv.DB, first, last uint64) (old kv.DB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, l.db = l.db, db
	l.cache.clear()
	l.Advance(first, last)
	return old
}

// View calls read with the database, which stays open until read returns.
func (l *Log) View(read func(db kv.DB) error) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.db == nil {
		return fmt.Errorf("log: read: %w", kv.ErrClosed)
	}
	return read(l.db)
}

// Bounds returns the first retained offset and the last one.
func (l *Log) Bounds() (first, last uint64) {
	l.state.Lock()
	defer l.state.Unlock()
	return l.first, l.last
}

// Advance makes committed blocks, or a trim, visible to readers.
func (l *Log) Advance(first, last uint64) {
	l.state.Lock()
	defer l.state.Unlock()
	if last > l.last {
		close(l.grown)
		l.grown = make(chan struct{})
	}
	l.first, l.last = first, last
}

// Grown returns nil if the log has reached offset, else a channel that is closed when the
// log grows.
func (l *Log) Grown(offset uint64) <-chan struct{} {
	l.state.Lock()
	defer l.state.Unlock()
	if l.last >= offset {
		return nil
	}
	return l.grown
}

// Wait returns when the log has reached offset, or ctx is done.
func (l *Log) Wait(ctx context.Context, offset uint64) error {
	for {
		grown := l.Grown(offset)
		if grown == nil {
			return nil
		}
		// grown belongs to the check: growth since then has closed it.
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Writer is the batch that blocks are written to. SetBlock says how many bytes precede the
// body of a block, since the Raft entry has a checksum of the body already.
type Writer interface {
	Set(key, value []byte)
	SetBlock(key, value []byte, head int)
	DeleteRange(from, to []byte)
}

// Append writes a block and returns the bytes that it takes; before is what all blocks before
// it took.
func Append(w Writer, b *Block, before uint64) uint64 {
	value, head := b.encode()
	w.SetBlock(blockKey(b.First), value, head)
	w.Set(columnsKey(b.First), b.encodeColumns(before, len(value)))
	return uint64(len(value))
}

// BlockKeys are the bounds of the keys of blocks whose first offset is in [from, to).
func BlockKeys(from, to uint64) (low, high []byte) { return blockKey(from), blockKey(to) }

// ColumnKeys are the bounds of the keys of the columns of these blocks.
func ColumnKeys(from, to uint64) (low, high []byte) { return columnsKey(from), columnsKey(to) }

// Columns returns the key columns of the block that holds offset. The error is a *TrimmedError
// where they are trimmed, and a *PastTailError past the last event.
func (l *Log) Columns(offset uint64) (c *Columns, err error) {
	if _, last := l.Bounds(); offset > last {
		return nil, &PastTailError{Offset: offset, Tail: last}
	}
	err = l.View(func(db kv.DB) error {
		c, err = columnsAt(db, offset)
		return err
	})
	return c, l.trimmedOr(offset, err)
}

// trimmedOr returns a *TrimmedError where a block is missing because a trim came first, and
// err otherwise.
func (l *Log) trimmedOr(offset uint64, err error) error {
	if first, _ := l.Bounds(); errors.Is(err, errMissing) && offset < first {
		return &TrimmedError{Offset: offset, First: first}
	}
	return l.reportDamage(err)
}

// columnsAt reads the columns with the largest first offset that is not above offset.
func columnsAt(db kv.DB, offset uint64) (*Columns, error) {
	it, err := columnsIter(db, []byte{prefixColumns + 1})
	if err != nil {
		return nil, fmt.Errorf("log: columns of %d: %w", offset, err)
	}
	defer it.Close()
	if !it.SeekLT(columnsKey(offset + 1)) {
		return nil, fmt.Errorf("log: columns of %d: %w: %w (%v)", offset, ErrCorrupt, errMissing, it.Error())
	}
	return columnsOf(it)
}

// columnsIter iterates over the key columns below upper.
func columnsIter(db kv.DB, upper []byte) (kv.Iterator, error) {
	return db.Iter([]byte{prefixColumns}, upper)
}

// columnsOf decodes a copy of the iterator's value, which changes with the next step.
func columnsOf(it kv.Iterator) (*Columns, error) {
	first := firstOf(it)
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("log: columns of %d: %w", first, err)
	}
	return decodeColumns(first, append([]byte(nil), v...))
}

// EachColumns calls yield with the key columns of every block that holds an offset
// in [from, to], in order, until yield returns false. A hole between two blocks is an
// error.
func (l *Log) EachColumns(from, to uint64, yield func(*Columns) bool) error {
	return l.reportDamage(l.View(func(db kv.DB) error {
		it, err := columnsIter(db, columnsKey(to+1))
		if err != nil {
			return fmt.Errorf("log: columns from %d: %w", from, err)
		}
		defer it.Close()

		// Begin with the block that holds from, or with the first one.
		next := uint64(0) // where the next block has to begin
		for ok := it.SeekLT(columnsKey(from+1)) || it.First(); ok; ok = it.Next() {
			c, err := columnsOf(it)
			if err != nil {
				return err
			}
			if next != 0 && c.First != next {
				return fmt.Errorf("log: columns of %d: %w: %w, the next begins at %d",
					next, ErrCorrupt, errMissing, c.First)
			}
			next = c.Last() + 1
			if c.Last() >= from && !yield(c) {
				return nil
			}
		}
		return it.Error()
	}))
}

// EachTypes calls yield with the first offset, the number of events and the types of every
// block that holds an offset in [from, to], in order, until yield returns false. The types of
// a block that is for one cursor are nil. It decodes heads only and leaves the cache as it is.
func (l *Log) EachTypes(from, to uint64, yield func(first uint64, events int, types []string) bool) error {
	return l.reportDamage(l.View(func(db kv.DB) error {
		it, err := blockIter(db, to)
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.SeekLT(blockKey(from+1)) || it.First(); ok; ok = it.Next() {
			first := firstOf(it)
			v, err := it.ValueAndErr()
			if err != nil {
				return fmt.Errorf("log: read block %d: %w", first, err)
			}
			b, err := decodeBlock(first, v) // no copy: nothing of b is kept but strings
			if err != nil {
				return err
			}
			types := b.header.Types
			if b.target != "" {
				types = nil
			}
			if b.last() >= from && !yield(first, b.live, types) {
				return nil
			}
		}
		return it.Error()
	}))
}

// OffsetAt returns the offset of the first event that was appended at or after t; where
// there is none, the offset after the last event.
func (l *Log) OffsetAt(t time.Time) (uint64, error) {
	first, last := l.Bounds()
	var failed error
	// Append times never decrease.
	n := sort.Search(int(last+1-first), func(i int) bool {
		c, err := l.Columns(first + uint64(i))
		if trimmed := (*TrimmedError)(nil); errors.As(err, &trimmed) {
			return false // what was trimmed meanwhile is not returned
		}
		if err != nil {
			failed = err
			return true
		}
		return !c.AppendedAt.Before(t)
	})
	return first + uint64(n), failed
}

// Get returns the event at offset. The error is a *TrimmedError where the log does not
// have it any more, and a *PastTailError where it does not have it yet.
func (l *Log) Get(offset uint64) (event.Event, error) {
	first, last := l.Bounds()
	switch {
	case offset < first:
		return event.Event{}, &TrimmedError{Offset: offset, First: first}
	case offset > last:
		return event.Event{}, &PastTailError{Offset: offset, Tail: last}
	}
	b, err := l.load(offset)
	if err != nil {
		return event.Event{}, err // also a *TrimmedError, where a trim came first
	}
	events, err := b.decoded()
	if err != nil {
		return event.Event{}, l.reportDamage(err)
	}
	return events[offset-b.first], nil
}

// TrimmedError says that an offset is not retained any more.
type TrimmedError struct{ Offset, First uint64 }

// Error implements error.
func (e *TrimmedError) Error() string {
	return fmt.Sprintf("log: offset %d is trimmed; the first kept is %d", e.Offset, e.First)
}

// PastTailError says that an offset is after the last event.
type PastTailError struct{ Offset, Tail uint64 }

// Error implements error.
func (e *PastTailError) Error() string {
	return fmt.Sprintf("log: offset %d is past the tail, which is %d", e.Offset, e.Tail)
}
