package prefetch

import (
	"bytes"
	"container/heap"
	"fmt"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// Buffer is the events that a member of a group was given and has not settled.
//
// Of the events of a key only the first is handed out; the others queue after it. After a
// nack the queue of that key stops until the group has said which of the others it takes back,
// so none is handled before the one that is redelivered.
type Buffer struct {
	held     map[uint64]*Held // by offset, waiting or handed out
	ready    readyHeap        // may be handed out
	keys     map[string]*keyQueue
	waiting  int // not handed out
	bytes    int // of those
	ticks    uint32
	progress []uint64 // offsets whose ack deadline must be extended
	nacks    uint64   // so far

	// A call with acks and a call that fetches may be in flight at the same time, and which of
	// their answers the group made first is not known. Events come with fetches alone.
	//
	// redelivered are the offsets that came again while acks were in flight: if the answer to
	// those acks takes such an offset back, the copy before is meant. pendingRevokes are the
	// offsets that the answer to acks took back and that are not here yet: the fetch in flight
	// brings them.
	acksInFlight, fetchInFlight bool
	redelivered, pendingRevokes map[uint64]struct{}
}

// Held is one event that the member was given.
type Held struct {
	event.Event
	Count uint64 // which delivery it is, from 1
	Bytes int    // about what it takes in memory

	state heldState
	queue *keyQueue // nil without a key
	ticks uint32    // when its ack deadline was extended last
}

// heldState is where an event is between its arrival and its end.
type heldState byte

const (
	inBuffer heldState = iota
	handedOut
	gone // settled or taken back; a queue that still has it skips it
)

// keyQueue is the events of one key that are held. While nacked is not 0 there is no current
// one, and none becomes it.
type keyQueue struct {
	key     string
	current *Held // ready or handed out
	rest    []*Held
	last    uint64 // the highest offset that was here
	nacked  uint64 // the offset whose nack has stopped the queue
	nack    uint64 // the number of that nack
}

// NewBuffer returns an empty buffer.
func NewBuffer() *Buffer {
	return &Buffer{held: map[uint64]*Held{}, keys: map[string]*keyQueue{},
		redelivered: map[uint64]struct{}{}, pendingRevokes: map[uint64]struct{}{}}
}

// Waiting returns how many events are not handed out, and their bytes.
func (b *Buffer) Waiting() (events, bytes int) { return b.waiting, b.bytes }

// String is what the buffer has, for tests and logs.
func (b *Buffer) String() string {
	return fmt.Sprintf("%d held, %d waiting, %d bytes, %d keys", len(b.held), b.waiting, b.bytes, len(b.keys))
}

// Ready is how many events may be handed out now, or were taken back since.
func (b *Buffer) Ready() int { return len(b.ready) }

// Holds reports whether an event is held, waiting or handed out.
func (b *Buffer) Holds(offset uint64) bool { return b.held[offset] != nil }

// Delivery returns which delivery of an event is held, from 1; 0 is none.
func (b *Buffer) Delivery(offset uint64) uint64 {
	if h := b.held[offset]; h != nil {
		return h.Count
	}
	return 0
}

// Offsets returns the offsets held, in no order.
func (b *Buffer) Offsets() []uint64 {
	list := make([]uint64, 0, len(b.held))
	for offset := range b.held {
		list = append(list, offset)
	}
	return list
}

// BeginFetch notes that a fetching call is in flight.
func (b *Buffer) BeginFetch() { b.fetchInFlight = true }

// EndFetch notes that the fetching call is over, and that its events were added.
func (b *Buffer) EndFetch() {
	b.fetchInFlight = false
	clear(b.pendingRevokes)
}

// Fetching reports whether a fetching call is in flight.
func (b *Buffer) Fetching() bool { return b.fetchInFlight }

// Add takes an event in.
func (b *Buffer) Add(h *Held) {
	offset := h.Offset
	if _, ok := b.pendingRevokes[offset]; ok {
		delete(b.pendingRevokes, offset)
		return
	}
	h.ticks = b.ticks

	// Without a key the event may be handed out at once.
	if h.Key == "" {
		if old := b.held[offset]; old != nil {
			b.drop(old)
			b.noteRedelivered(offset)
		}
		b.store(h)
		heap.Push(&b.ready, h)
		return
	}

	// With one it is queued. An offset that was here before has been taken back by the group,
	// and with it what follows it in the key.
	q := b.keys[h.Key]
	if q == nil {
		q = &keyQueue{key: h.Key}
		b.keys[h.Key] = q
	}
	if offset <= q.last {
		b.dropFrom(q, offset)
	}
	h.queue, q.last = q, max(q.last, offset)
	q.rest = append(q.rest, h)
	b.store(h)
	b.advance(q)
}

// store counts an event among those that wait.
func (b *Buffer) store(h *Held) {
	b.held[h.Offset] = h
	b.waiting++
	b.bytes += h.Bytes
}

// drop forgets an event, but not its place in a queue.
func (b *Buffer) drop(h *Held) {
	delete(b.held, h.Offset)
	if h.state == inBuffer {
		b.waiting--
		b.bytes -= h.Bytes
	}
	h.state = gone
}

// noteRedelivered notes that an offset came again while acks are in flight, see redelivered.
func (b *Buffer) noteRedelivered(offset uint64) {
	if b.acksInFlight {
		b.redelivered[offset] = struct{}{}
	}
}

// dropFrom takes from a queue the events from an offset on: the group has taken them back if
// it delivers that offset again.
func (b *Buffer) dropFrom(q *keyQueue, from uint64) {
	for _, h := range q.rest {
		if h.state != gone && h.Offset >= from {
			b.drop(h)
			b.noteRedelivered(h.Offset)
		}
	}

	// The current event and the nacked one were of the copies before, too.
	if q.current != nil && q.current.Offset >= from {
		b.noteRedelivered(q.current.Offset)
		b.drop(q.current)
		q.current = nil
	}
	if q.nacked >= from {
		b.noteRedelivered(q.nacked)
		q.nacked = 0
	}
}

// advance makes the next of a queue the current one, if it may.
func (b *Buffer) advance(q *keyQueue) {
	for q.current == nil && q.nacked == 0 {
		if len(q.rest) == 0 {
			delete(b.keys, q.key)
			return
		}

		// Events that were taken back meanwhile are still in the queue: they are skipped.
		next := q.rest[0]
		q.rest[0] = nil
		q.rest = q.rest[1:]
		if next.state != gone {
			q.current = next
			heap.Push(&b.ready, next)
		}
	}
}

// Next hands out the first event that may be handled, nil if there is none.
func (b *Buffer) Next() *Held {
	for len(b.ready) > 0 {
		h := heap.Pop(&b.ready).(*Held)
		if h.state == gone {
			continue
		}
		h.state = handedOut
		b.waiting--
		b.bytes -= h.Bytes

		// Its ack deadline begins when it is handed out, unless that is this tick.
		if h.ticks != b.ticks {
			h.ticks = b.ticks
			b.progress = append(b.progress, h.Offset)
		}
		return h
	}
	return nil
}

// handedOutAt returns the event at an offset if it is handed out, else nil.
func (b *Buffer) handedOutAt(offset uint64) *Held {
	if h := b.held[offset]; h != nil && h.state == handedOut {
		return h
	}
	return nil
}

// finish takes out an event that was handed out, and reports whether it was.
func (b *Buffer) finish(offset uint64) bool {
	h := b.handedOutAt(offset)
	if h == nil {
		return false
	}
	b.drop(h)

	// The next of its key may be handled now.
	if q := h.queue; q != nil {
		q.current = nil
		b.advance(q)
	}
	return true
}

// fail takes out an event that was handed out and failed, and stops its queue until that is
// resumed under the number returned.
func (b *Buffer) fail(offset uint64) (f failure, ok bool) {
	h := b.handedOutAt(offset)
	if h == nil {
		return f, false
	}
	b.drop(h)

	// The queue has no current event until the nack with this number is answered.
	b.nacks++
	if q := h.queue; q != nil {
		q.current, q.nacked, q.nack = nil, offset, b.nacks
	}
	return failure{key: h.Key, number: b.nacks}, true
}

// stoppedBy returns the queue that a nack has stopped, nil if it was resumed already.
func (b *Buffer) stoppedBy(f failure) *keyQueue {
	if q := b.keys[f.key]; q != nil && q.nacked != 0 && q.nack == f.number {
		return q
	}
	return nil
}

// holdsAfter reports whether events are held that follow a nacked one in its key.
func (b *Buffer) holdsAfter(f failure) bool {
	q := b.stoppedBy(f)
	return q != nil && slices.ContainsFunc(q.rest, func(h *Held) bool { return h.state != gone })
}

// releaseAfter takes out what follows a nacked event in its key and returns it, the last
// offset first.
func (b *Buffer) releaseAfter(f failure) (offsets []uint64) {
	q := b.stoppedBy(f)
	if q == nil {
		return nil
	}

	// The last offset first, as in releaseWaiting.
	for _, h := range slices.Backward(q.rest) {
		if h.state != gone {
			b.drop(h)
			offsets = append(offsets, h.Offset)
		}
	}
	q.rest = nil
	return offsets
}

// resume lets a queue continue after a nack: what was to be taken back has been.
func (b *Buffer) resume(f failure) {
	if q := b.stoppedBy(f); q != nil {
		q.nacked = 0
		b.advance(q)
	}
}

// revoke takes out an event that the group has taken back. fromAcks says whether the answer to
// a call with acks reports it.
func (b *Buffer) revoke(offset uint64, fromAcks bool) {
	if fromAcks {
		if _, copied := b.redelivered[offset]; copied {
			return
		}
	}

	// Events that are not here yet may come with the fetch in flight: see pendingRevokes.
	h := b.held[offset]
	if h == nil {
		if fromAcks && b.fetchInFlight {
			b.pendingRevokes[offset] = struct{}{}
		}
		return
	}
	b.drop(h)
	if q := h.queue; q != nil && q.current == h {
		q.current = nil
		b.advance(q)
	}
}

// releaseWaiting takes out all events that are not handed out and returns them, the last
// offset first: so the group need not take back the later ones of a key.
func (b *Buffer) releaseWaiting() (offsets []uint64) {
	for offset, h := range b.held {
		if h.state == inBuffer {
			offsets = append(offsets, offset)
		}
	}

	// The map has no order, and the order matters to the group.
	slices.Sort(offsets)
	slices.Reverse(offsets)
	for _, offset := range offsets {
		b.revoke(offset, false)
	}
	return offsets
}

// forgetAfter forgets the events held after an offset.
func (b *Buffer) forgetAfter(last uint64) {
	for _, offset := range b.Offsets() {
		if offset > last {
			b.revoke(offset, false)
		}
	}
}

// Progress has the ack deadline of an event that is handed out extended, and reports whether
// it is.
func (b *Buffer) Progress(offset uint64) bool {
	if b.handedOutAt(offset) == nil {
		return false
	}
	b.progress = append(b.progress, offset)
	return true
}

// Tick marks time. The ack deadline of events that have waited for two ticks is extended, and
// with all also that of events that are handed out.
func (b *Buffer) Tick(all bool) {
	b.ticks++
	for offset, h := range b.held {
		if (all || h.state == inBuffer) && b.ticks-h.ticks >= 2 {
			h.ticks = b.ticks
			b.progress = append(b.progress, offset)
		}
	}
}

// takeProgress adds to list the events whose ack deadline is to be extended, as far as one
// call takes them.
func (b *Buffer) takeProgress(list []frame.Range) []frame.Range {
	// Events that were settled since need no time any more.
	held := slices.DeleteFunc(b.progress, func(offset uint64) bool { return b.held[offset] == nil })
	list = frame.JoinRanges(append(list, rangesOf(held)...))
	b.progress = nil
	if len(list) <= maxRanges {
		return list
	}

	// Events that one call does not take are kept for the next.
	for _, r := range list[maxRanges:] {
		for offset := r.From; offset <= r.To; offset++ {
			b.progress = append(b.progress, offset)
		}
	}
	return list[:maxRanges]
}

// Detach makes an event independent of the memory of the block that it came in.
func (h *Held) Detach() {
	texts := []*string{&h.Value, &h.Key, &h.CorrelationID, &h.CausationID, &h.DedupID, &h.Original, &h.Target}
	for _, s := range texts {
		*s = strings.Clone(*s)
	}
	h.Payload = bytes.Clone(h.Payload)
}

// readyHeap is a heap.Interface, the lowest offset first.
type readyHeap []*Held

// Len, Less and Swap implement sort.Interface.
func (h readyHeap) Len() int           { return len(h) }
func (h readyHeap) Less(i, j int) bool { return h[i].Offset < h[j].Offset }
func (h readyHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *readyHeap) Push(x any) { *h = append(*h, x.(*Held)) }

// Pop implements heap.Interface.
func (h *readyHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}
