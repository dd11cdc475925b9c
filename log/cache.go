package log

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/kv"
)

// eventOverhead is about what a decoded event takes beside its payload, in bytes.
const eventOverhead = 320

// cached is a block in memory. The first reader that needs it verifies the body, and
// decodes the events, once for all readers.
type cached struct {
	*stored
	owner *cache

	verifyOnce sync.Once
	verifyErr  error
	decodeOnce sync.Once
	events     []event.Event
	decodeErr  error

	// Guarded by cache.mu.
	weight int64 // bytes that it takes, about
	place  *list.Element
}

// cache keeps the most recently used blocks, so many readers at the tail share one
// decoding. A block never changes: only a swap of the database invalidates blocks.
type cache struct {
	mu     sync.Mutex
	blocks map[uint64]*cached
	recent *list.List // the most recently used block is at the front
	weight int64
	limit  int64 // bytes that the blocks may take; see shrink
}

func newCache(limit int64) *cache {
	return &cache{blocks: make(map[uint64]*cached), recent: list.New(), limit: limit}
}

// clear forgets all blocks: another database may have others at the same offsets.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocks, c.weight = make(map[uint64]*cached), 0
	c.recent.Init()
}

// block returns the block at the iterator.
func (c *cache) block(it kv.Iterator) (*cached, error) {
	first := firstOf(it)
	if b := c.get(first); b != nil {
		return b, nil
	}

	// Decode without the lock: readers that miss the same block decode it more than once, and put keeps one.
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("log: read block %d: %w", first, err)
	}

	// The copy is kept: Pebble reuses the value at the next step of the iterator.
	s, err := decodeBlock(first, append([]byte(nil), v...))
	if err != nil {
		return nil, err
	}
	return c.put(&cached{stored: s, owner: c, weight: int64(len(v))}), nil
}

// get returns the block whose first offset is first, and counts it as used; nil if it is not cached.
func (c *cache) get(first uint64) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocks[first]
	if b != nil {
		c.recent.MoveToFront(b.place)
	}
	return b
}

// put adds a block and returns it, or the one that another reader has added meanwhile.
func (c *cache) put(b *cached) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Readers share one decoding: the first one stays.
	if other := c.blocks[b.first]; other != nil {
		return other
	}
	b.place = c.recent.PushFront(b)
	c.blocks[b.first] = b
	c.weight += b.weight
	c.shrink()
	return b
}

// grow notes that a block takes more memory by now. A block that left the cache does not count.
func (c *cache) grow(b *cached, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[b.first] == b {
		b.weight += by
		c.weight += by
		c.shrink()
	}
}

// shrink removes the least recently used blocks until the rest is within the limit. The
// newest stays even if it exceeds the limit by itself.
func (c *cache) shrink() {
	for c.weight > c.limit && c.recent.Len() > 1 {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.blocks, oldest.first)
		c.weight -= oldest.weight
	}
}

// decoded returns the block's live events with their offsets.
func (b *cached) decoded() ([]event.Event, error) {
	b.decodeOnce.Do(func() {
		b.events, b.decodeErr = b.decode()
		b.owner.grow(b, b.decodedBytes())
	})
	return b.events, b.decodeErr
}

// decodedBytes is about what the events of the block take.
func (b *cached) decodedBytes() int64 {
	return int64(b.live)*eventOverhead + int64(frame.RawSize(b.body))
}

// verified returns the body after its checksum was compared.
func (b *cached) verified() ([]byte, error) {
	b.verifyOnce.Do(func() {
		if err := frame.Verify(b.body); err != nil {
			b.verifyErr = corrupt(b.first, "events", err)
		}
	})
	return b.body, b.verifyErr
}

// decode returns the events of the live rows; DecodeEvents compares the body's checksum.
func (b *cached) decode() ([]event.Event, error) {
	events := make([]event.Event, 0, b.live)
	err := frame.DecodeEvents(b.header, b.body, func(row int, e event.Event) bool {
		if b.suppressed.Has(row) {
			return true
		}
		nth := len(events) // among the live rows
		e.Offset = b.first + uint64(nth)
		e.AppendedAt, e.Term = b.appendedAt, b.term
		if b.target != "" {
			e.Target, e.Redrive = b.target, b.letters[nth]
		}
		events = append(events, e)
		return true
	})
	if err != nil {
		return nil, corrupt(b.first, "events", err)
	}
	return events, nil
}
