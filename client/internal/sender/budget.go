package sender

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// byteBudget bounds the bytes that wait or are in flight. Callers that find no room wait in
// the order they came.
type byteBudget struct {
	// It guards what follows, and the bytes of waiting reservations.
	mu sync.Mutex
	// used exceeds size only while one large item is alone.
	size    int
	used    int
	waiting list.List // of *reservation
	closed  bool
}

// reservation is one caller that waits for bytes.
type reservation struct {
	bytes int           // negative once the budget was closed
	done  chan struct{} // closed when it has its bytes, or the budget was closed
}

// newByteBudget returns a budget of size bytes.
func newByteBudget(size int) *byteBudget { return &byteBudget{size: size} }

// fits lets an unused budget take anything: what is larger than the budget could never be sent otherwise.
func (b *byteBudget) fits(bytes int) bool { return b.used == 0 || b.used+bytes <= b.size }

// reserve waits until there is room for that many bytes.
func (b *byteBudget) reserve(ctx context.Context, bytes int) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return calls.ErrClosed
	}
	// A caller that comes while others wait goes to the end, even if its bytes would fit.
	if b.waiting.Len() == 0 && b.fits(bytes) {
		b.used += bytes
		b.mu.Unlock()
		return nil
	}

	// Others wait already, or there is no room: wait in line.
	r := &reservation{bytes, make(chan struct{})}
	at := b.waiting.PushBack(r)
	b.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
	}

	// If both came at once, the bytes count.
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-r.done:
		if r.bytes < 0 {
			return calls.ErrClosed
		}
		return nil
	default:
		// The one after it may fit now.
		b.waiting.Remove(at)
		b.grant()
		return fmt.Errorf("%w: not sent, as %d bytes of events wait already; it may be sent again",
			context.Cause(ctx), b.used)
	}
}

// release returns bytes and grants them to those that wait.
func (b *byteBudget) release(bytes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= bytes
	b.grant()
}

// grant gives free bytes to those that wait, in their order: a large one at the front is not
// overtaken. mu is held.
func (b *byteBudget) grant() {
	// The first is removed each time, so the next one is first.
	for at := b.waiting.Front(); at != nil; at = b.waiting.Front() {
		r := at.Value.(*reservation)
		if !b.fits(r.bytes) {
			return
		}
		b.used += r.bytes
		b.waiting.Remove(at)
		close(r.done)
	}
}

// close refuses the bytes that are waited for, and all later ones.
func (b *byteBudget) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	// Bytes that were granted stay so, and are released as usual.
	b.closed = true
	for at := b.waiting.Front(); at != nil; at = b.waiting.Front() {
		r := at.Value.(*reservation)
		r.bytes = -1
		b.waiting.Remove(at)
		close(r.done)
	}
}
