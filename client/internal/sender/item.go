package sender

import (
	"sync"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Outcome is the answer to one event.
type Outcome struct {
	Offset    uint64 // its own, or that of the event it repeats
	Duplicate bool
	Warnings  []event.Warning // shared by outcomes
}

// Item is the events of one call, and once they are decided the answer to them.
// Its caller may use it before it is handed over, and once it is done. In between it belongs to a worker.
type Item struct {
	Events     []event.Event
	Outcomes   []Outcome // of Events, once Done without an error
	AppendedAt time.Time

	op          string
	unshareable bool // never shares a request
	pooled      bool // Release gives it back
	bytes       int
	ended       func(*Item) // called once the answer is final, of PublishOrdered; nil is nobody
	err         error
	done        chan struct{} // closed once the answer is final; holds one token if pooled
	// The event and the outcome of a single call, so that these need no allocation.
	single struct {
		events   [1]event.Event
		outcomes [1]Outcome
	}

	// Guarded by queue.mu.
	prev, next *Item  // of those that wait
	in         *batch // that it was taken into, nil before
	abandoned  bool   // its caller does not wait any more
	final      bool   // the answer is
}

// newItem returns an item that is not pooled: others may wait for its Done.
func newItem(op string) *Item { return &Item{op: op, done: make(chan struct{})} }

// pool holds items that nobody else has seen since their callers were answered.
var pool = sync.Pool{New: func() any { return &Item{pooled: true, done: make(chan struct{}, 1)} }}

// newPooledItem returns an item for a single event whose caller waits.
func newPooledItem() *Item {
	p := pool.Get().(*Item)
	p.op = "publish"
	return p
}

// Release gives an item of Publish back, which its caller must not use any more.
// Everything but the channel is cleared, so the pool keeps no payload alive. The token was received with the
// answer.
func (p *Item) Release() {
	*p = Item{pooled: true, done: p.done}
	pool.Put(p)
}

// Done is closed, for an item of PublishOrdered, when the answer is there.
func (p *Item) Done() <-chan struct{} { return p.done }

// Err is why the events were not appended, once Done.
func (p *Item) Err() error { return p.err }

// finish makes the answer final and wakes the caller.
// Whoever has received from done may read the outcomes and err.
func (p *Item) finish() {
	p.final = true
	if p.pooled {
		p.done <- struct{}{} // has room for it
		return
	}
	close(p.done)
}

// itemList links items in the order they came.
type itemList struct {
	first, last *Item
	n           int
}

// push appends an item.
func (l *itemList) push(p *Item) {
	p.prev = l.last
	if p.prev == nil {
		l.first = p
	} else {
		p.prev.next = p
	}
	l.last = p
	l.n++
}

// remove takes an item of this list out, wherever it is.
func (l *itemList) remove(p *Item) {
	// The neighbours, or the ends of the list, close the gap.
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
	l.n--
}
