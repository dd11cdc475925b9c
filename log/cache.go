package log

import (
	"container/list"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/frame"
)

// eventOverhead is about what a decoded event takes beside its payload.
const eventOverhead = 320

// cached is a block in memory. Its body is checked and its events are decoded once,
// by whoever asks first.
type cached struct {
	*stored
	owner   *cache
	verify  sync.Once
	damaged error
	once    sync.Once
	events  []event.Event
	err     error

	// Guarded by cache.mu.
	weight int64
	place  *list.Element
}

// cache keeps the blocks used last, so that many readers at the tail share one
// decoding. A block never changes, so that nothing needs to be invalidated but on
// a swap.
type cache struct {
	mu     sync.Mutex
	blocks map[uint64]*cached
	recent *list.List // front is the newest use
	weight int64
	limit  int64
}

func newCache(limit int64) *cache {
	return &cache{blocks: make(map[uint64]*cached), recent: list.New(), limit: limit}
}

func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocks, c.weight = make(map[uint64]*cached), 0
	c.recent.Init()
}

// block returns the block that the iterator stands on.
func (c *cache) block(it *pebble.Iterator) (*cached, error) {
	first := firstOf(it)
	if b := c.get(first); b != nil {
		return b, nil
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return nil, fmt.Errorf("log: read block %d: %w", first, err)
	}
	s, err := decodeBlock(first, append([]byte(nil), v...))
	if err != nil {
		return nil, err
	}
	return c.put(&cached{stored: s, owner: c, weight: int64(len(v))}), nil
}

func (c *cache) get(first uint64) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.blocks[first]
	if b != nil {
		c.recent.MoveToFront(b.place)
	}
	return b
}

func (c *cache) put(b *cached) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.blocks[b.first]; other != nil {
		return other
	}
	b.place = c.recent.PushFront(b)
	c.blocks[b.first] = b
	c.weight += b.weight
	c.shrink()
	return b
}

// grow is told that a block takes more by now.
func (c *cache) grow(b *cached, by int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blocks[b.first] == b {
		b.weight += by
		c.weight += by
		c.shrink()
	}
}

func (c *cache) shrink() {
	for c.weight > c.limit && c.recent.Len() > 1 {
		oldest := c.recent.Remove(c.recent.Back()).(*cached)
		delete(c.blocks, oldest.first)
		c.weight -= oldest.weight
	}
}

// decoded returns the block's live events with their offsets.
func (b *cached) decoded() ([]event.Event, error) {
	b.once.Do(func() {
		b.events, b.err = b.decode()
		b.owner.grow(b, int64(b.live)*eventOverhead+int64(frame.RawSize(b.body)))
	})
	return b.events, b.err
}

// verified returns the body once its checksum is known to be right.
func (b *cached) verified() ([]byte, error) {
	b.verify.Do(func() {
		if err := frame.Verify(b.body); err != nil {
			b.damaged = corrupt(b.first, "events", err)
		}
	})
	return b.body, b.damaged
}

func (b *cached) decode() ([]event.Event, error) {
	events := make([]event.Event, 0, b.live)
	err := frame.DecodeEvents(b.header, b.body, func(row int, e event.Event) bool {
		if !b.dead.Has(row) {
			e.Offset = b.first + uint64(len(events))
			e.AppendedAt, e.Term = b.appendedAt, b.term
			if b.target != "" {
				e.Target, e.Redrive = b.target, b.letters[len(events)]
			}
			events = append(events, e)
		}
		return true
	})
	if err != nil {
		return nil, corrupt(b.first, "events", err)
	}
	return events, nil
}
