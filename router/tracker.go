package router

import (
	"context"
	"slices"
	"sort"
	"sync"
)

// tracker knows what a subscription has read from the log and what of it is settled,
// so its cursor never passes an event that is not.
//
// entries are in the order of their offsets. Everything up to seen was read; what of it
// is not in entries is settled and passed.
type tracker struct {
	limit int           // of entries
	room  chan struct{} // holds a token when entries may have been taken off
	wake  chan struct{} // something at the head was settled

	mu      sync.Mutex
	entries []*entry
	seen    uint64                    // the highest offset read, or where restart has begun
	epoch   int                       // rises with each restart
	failed  []failure                 // the last that were abandoned
	waiters map[uint64][]chan<- error // by offset; each channel has room for its one answer
}

// entry is one event that was read.
type entry struct {
	offset uint64
	state  entryState
	letter *DeadLetter // of one that was abandoned, if it becomes one
}

// entryState is what became of an event.
type entryState byte

const (
	pending entryState = iota
	settled
	abandoned // not handled, and not to be passed: it is redelivered
)

// failure is how an event was not handled, kept for those that ask late.
type failure struct {
	offset uint64
	err    error
}

// rememberedFailures is how many failures a late waiter can still hear of.
const rememberedFailures = 64

// newTracker returns a tracker that holds at most limit entries.
func newTracker(limit int) *tracker {
	return &tracker{limit: limit, room: make(chan struct{}, 1), wake: make(chan struct{}, 1),
		waiters: map[uint64][]chan<- error{}}
}

// restart forgets everything, and continues after an offset.
func (t *tracker) restart(offset uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entries, t.seen, t.epoch = nil, offset, t.epoch+1
}

// position returns the last offset read.
func (t *tracker) position() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen
}

// current reports whether there was no restart since an epoch.
func (t *tracker) current(epoch int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch == epoch
}

// track notes an offset that was read, and returns nil for one that was before. It waits
// while there are too many. One goroutine calls it.
func (t *tracker) track(ctx context.Context, offset uint64) (*entry, error) {
	for {
		// An offset up to seen was read before. A new one needs room, and the lock is released
		// while there is none.
		t.mu.Lock()
		if offset <= t.seen {
			t.mu.Unlock()
			return nil, nil
		}
		if len(t.entries) < t.limit {
			break
		}
		t.mu.Unlock()
		select {
		case <-t.room:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}

	// Offsets in between are not for this subscription: whoever waits for one of them has
	// nothing to wait for.
	defer t.mu.Unlock()
	for waited := range t.waiters {
		if t.seen < waited && waited < offset { // the log had it for others
			t.notify(waited, nil)
		}
	}
	e := &entry{offset: offset}
	t.entries, t.seen = append(t.entries, e), offset
	return e, nil
}

// settleEntry notes that an event is handled, or with an error that it failed for good; its letter waits for the
// events before it.
func (t *tracker) settleEntry(e *entry, err error, letter *DeadLetter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.state, e.letter = settled, letter

	// Late waiters hear of the last failures alone.
	if err != nil {
		if len(t.failed) == rememberedFailures {
			t.failed = append(t.failed[:0], t.failed[1:]...)
		}
		t.failed = append(t.failed, failure{e.offset, err})
	}

	// Only the head lets the cursor move.
	t.notify(e.offset, err)
	if len(t.entries) > 0 && t.entries[0] == e {
		signal(t.wake)
	}
}

// abandonEntry notes that an event was not handled and is redelivered.
func (t *tracker) abandonEntry(e *entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e.state = abandoned
	t.notify(e.offset, ErrClosed)
}

// takeSettled takes the settled events at the head off, up to a letter, and returns the offset
// up to which everything is passed now, 0 if nothing was. A letter is taken off too,
// but it is for the caller to pass. The answer holds while the epoch does.
func (t *tracker) takeSettled() (upTo uint64, letter *DeadLetter, epoch int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.entries) > 0 && t.entries[0].state == settled && letter == nil {
		e := t.entries[0]
		t.entries[0] = nil
		t.entries = t.entries[1:]
		letter = e.letter
		if letter == nil {
			upTo = e.offset
		}
	}

	// A caller that waits in track has room now.
	signal(t.room)
	return upTo, letter, t.epoch
}

// outstanding returns how many events were read and not passed.
func (t *tracker) outstanding() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.entries)
}

// await sends result how the event at an offset is settled, once it is. result has room for it.
func (t *tracker) await(offset uint64, result chan<- error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if offset > t.seen {
		t.waiters[offset] = append(t.waiters[offset], result)
		return
	}

	// An event that was read and is settled has left entries, or is marked there.
	i := sort.Search(len(t.entries), func(i int) bool { return t.entries[i].offset >= offset })
	if i < len(t.entries) && t.entries[i].offset == offset && t.entries[i].state == pending {
		t.waiters[offset] = append(t.waiters[offset], result)
		return
	}
	for _, f := range t.failed {
		if f.offset == offset {
			result <- f.err
			return
		}
	}
	result <- nil
}

// cancelAwait cancels an await.
func (t *tracker) cancelAwait(offset uint64, result chan<- error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Others may wait for the same offset.
	left := slices.DeleteFunc(t.waiters[offset], func(w chan<- error) bool { return w == result })
	t.waiters[offset] = left
	if len(left) == 0 {
		delete(t.waiters, offset)
	}
}

// notify answers all that wait for an offset. mu is held.
func (t *tracker) notify(offset uint64, err error) {
	for _, w := range t.waiters[offset] {
		w <- err
	}
	delete(t.waiters, offset)
}

// signal leaves a token unless one lies there.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
