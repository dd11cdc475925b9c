package sender

import (
	"context"
	"sync"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// batch is what a worker takes at once.
// It is sent as one request. After a refusal, the rest of it may be several.
type batch struct {
	ctx    context.Context // ends when no caller waits any more
	cancel context.CancelCauseFunc
	items  []*Item
	live   int // items that are neither answered nor abandoned; guarded by queue.mu
}

// queue holds what callers have handed over until a worker is free. Workers take items in the
// order they came, as many as fit one request.
//
// Requests cost more than events, so concurrent callers should share as few as possible. While
// others are in flight, one more request is sent only when one of these holds:
//
//   - it has at least as many events as are in flight, and those are below inFlightLimit,
//   - it is full,
//   - its oldest event has waited for maxLinger,
//   - an unshareable item waits.
//
// Callers who were just answered usually return at once with their next event, so a worker
// that has work waits for them a moment first: see waitForReturning.
type queue struct {
	// budget is shared by both queues of a sender.
	budget              *byteBudget
	maxEvents, maxBytes int
	callersReturn       bool        // callers wait for their answers before they send again
	answered            func(*Item) // called with each item once finish has made its answer final; nil is nobody

	// It guards everything below, and the fields that item.go says.
	mu   sync.Mutex
	work sync.Cond // there may be a batch to take
	// The oldest is first.
	waiting     itemList
	unshareable int // of waiting
	inFlight    int // events in requests that may be shared
	closed      bool

	linger   *time.Timer // runs while items wait
	lingered bool        // the oldest item has waited for maxLinger

	returning      int // callers that were answered and have not sent again
	returningUntil time.Time
	collecting     bool      // a worker waits for them
	returned       sync.Cond // for that worker: returning is 0
}

// When a worker takes what waits. Each bound trades the latency of one event for larger requests.
const (
	inFlightLimit = 16                     // with this many events in flight the next request waits for their answers
	returnWait    = 200 * time.Microsecond // how long callers are waited for after an answer, or after one returned
	maxReturnWait = 2 * time.Millisecond   // how long all of them are waited for at most
	maxLinger     = 10 * time.Millisecond  // how long events wait at most while a worker is free
)

// newQueue returns a queue whose items are within the budget.
func newQueue(cfg *Config, budget *byteBudget) *queue {
	q := &queue{budget: budget, maxEvents: cfg.MaxBatchEvents, maxBytes: cfg.MaxBatchBytes}
	q.work.L, q.returned.L = &q.mu, &q.mu

	// The timer is made once and runs only while items wait.
	q.linger = time.AfterFunc(time.Hour, q.endLinger)
	q.linger.Stop()
	return q
}

// addItem waits for room and hands p over.
func (q *queue) addItem(ctx context.Context, p *Item) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// It may wait, so mu is not held yet.
	if err := q.budget.reserve(ctx, p.bytes); err != nil {
		return err
	}

	// The queue may have been closed while this waited for room.
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		q.budget.release(p.bytes)
		return calls.ErrClosed
	}
	q.waiting.push(p)
	if p.unshareable {
		q.unshareable++
	}
	// The time runs from when the oldest came; those that follow do not extend it.
	if q.waiting.n == 1 {
		q.linger.Reset(maxLinger)
	}

	// A caller that hands something over counts as one of those that return.
	q.returning = max(q.returning-1, 0)
	if q.collecting {
		q.returningUntil = time.Now().Add(returnWait)
		if q.returning == 0 {
			q.returned.Signal()
		}
	}
	// A worker takes more than this item, so one is woken.
	q.work.Signal()
	return nil
}

// close lets workers take what is left and then end.
func (q *queue) close() {
	// Before mu: whoever waits for bytes holds no lock and is woken.
	q.budget.close()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.work.Broadcast()
	q.returned.Broadcast()
}

// nextBatch waits for work. It returns nil once the queue is closed and empty.
func (q *queue) nextBatch(ctx context.Context, timeout time.Duration) *batch {
	q.mu.Lock()
	defer q.mu.Unlock()

	// One worker at a time waits for returning callers. Meanwhile the items may have gone to
	// nobody: their callers may have left.
	for {
		for q.collecting || !q.worthSending() {
			// What is left is taken before the workers end.
			if q.closed && q.waiting.n == 0 {
				return nil
			}
			q.work.Wait()
		}
		q.waitForReturning()
		// The callers may all have left meanwhile.
		if q.waiting.n > 0 {
			break
		}
	}

	// Take items up to the bounds of a request. An unshareable one is taken alone.
	// The time runs from when the items are taken.
	b := &batch{}
	b.ctx, b.cancel = batchContext(ctx, timeout)
	events, bytes := 0, 0
	for p := q.waiting.first; p != nil; p = q.waiting.first {
		// The first is taken whatever its size, or it could never be sent.
		if events > 0 && (p.unshareable || events+len(p.Events) > q.maxEvents || bytes+p.bytes > q.maxBytes) {
			break
		}
		q.removeWaiting(p)
		p.in = b
		b.items = append(b.items, p)
		if p.unshareable {
			break
		}
		// An item that shares a request has one event.
		q.inFlight++
		events, bytes = events+len(p.Events), bytes+p.bytes
	}
	b.live = len(b.items)
	// What is left may be enough for another worker.
	q.afterRemoval()
	return b
}

// batchContext returns a context that ends with ctx, after the timeout, or by the function with
// the cause given to it. The function releases the timer as well.
func batchContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelCauseFunc) {
	ctx, release := context.WithTimeout(ctx, timeout)
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func(cause error) {
		cancel(cause)
		release()
	}
}

// worthSending reports whether what waits is worth a request of its own. mu is held.
func (q *queue) worthSending() bool {
	switch {
	case q.waiting.n == 0:
		return false
	case q.closed, q.lingered, q.unshareable > 0, q.waiting.n >= q.maxEvents:
		// Waiting would gain nothing, or was long enough.
		return true
	}
	// A request has to be worth as much as those in flight.
	return q.inFlight < inFlightLimit && q.waiting.n >= q.inFlight
}

// removeWaiting takes p out of those that wait; afterRemoval follows. mu is held.
func (q *queue) removeWaiting(p *Item) {
	q.waiting.remove(p)
	if p.unshareable {
		q.unshareable--
	}
}

// afterRemoval restarts the linger time and wakes a worker for what still waits. mu is held.
func (q *queue) afterRemoval() {
	q.lingered = false
	q.linger.Stop()
	if q.waiting.n > 0 {
		q.linger.Reset(maxLinger)
	}
	if q.worthSending() {
		q.work.Signal()
	}
}

// endLinger runs when the oldest item has waited for maxLinger: it is sent now, alone if need
// be.
func (q *queue) endLinger() {
	q.mu.Lock()
	defer q.mu.Unlock()
	// A worker may have taken everything since the timer fired.
	q.lingered = q.waiting.n > 0
	q.work.Signal()
}

// waitForReturning waits for callers who are expected to send again, so they share the
// next request: until all are there, until none has come for returnWait, and at most for
// maxReturnWait. mu is held, though not while it waits.
func (q *queue) waitForReturning() {
	if q.returning == 0 || q.unshareable > 0 || q.closed {
		return
	}
	q.collecting = true

	// The timer follows returningUntil, which moves with each caller that returns.
	late := false
	last := time.Now().Add(maxReturnWait)
	var timer *time.Timer
	// It waits for mu, which is held until timer is set.
	timer = time.AfterFunc(time.Until(q.returningUntil), func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if rest := min(time.Until(q.returningUntil), time.Until(last)); rest > 0 && !late {
			timer.Reset(rest)
			return
		}
		late = true
		q.returned.Signal()
	})
	for q.returning > 0 && !late && !q.closed {
		q.returned.Wait()
	}
	timer.Stop()

	// Callers that did not return in time are not waited for again.
	if late {
		q.returning = 0
	}
	q.collecting = false
	// Workers that saw collecting wait until it is over.
	q.work.Broadcast()
}

// departure says how far the events of a caller came who stopped waiting.
type departure int

const (
	leftQueue departure = iota // nothing was sent
	leftOther                  // the request continues for other callers
	leftLast                   // the request ends, the item's done follows at once
)

// leave stops waiting for p, because of why.
func (q *queue) leave(p *Item, why error) departure {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.in == nil {
		// No worker has it, so nothing was sent.
		q.removeWaiting(p)
		q.afterRemoval()
		q.budget.release(p.bytes)
		return leftQueue
	}
	if p.final {
		// The answer was first; the caller takes it.
		return leftLast
	}

	// The request continues as long as one of its callers waits.
	p.abandoned = true
	p.in.live--
	if p.in.live > 0 {
		return leftOther
	}
	// Nobody waits for the batch any more: its request ends.
	p.in.cancel(why)
	return leftLast
}

// stillWaiting returns those of list whose callers wait, and finishes the others: their
// callers know that the outcome is unknown.
func (q *queue) stillWaiting(list []*Item) []*Item {
	q.mu.Lock()
	defer q.mu.Unlock()
	var out []*Item

	// An item whose caller left the batch for others is finished; the last caller's stays,
	// so the canceled request gives it an answer.
	for _, p := range list {
		if p.abandoned && p.in.live > 0 {
			q.finishItem(p)
			continue
		}
		out = append(out, p)
	}
	return out
}

// finish makes the answers of list final.
func (q *queue) finish(list []*Item) {
	q.mu.Lock()
	for _, p := range list {
		q.finishItem(p)
	}
	q.mu.Unlock()
	if !q.callersReturn {
		q.reportOrdered(list)
	}
}

// reportOrdered reports the answers of items of PublishOrdered, whose callers may not wait for them. They are in nobody
// else's pool.
func (q *queue) reportOrdered(list []*Item) {
	for _, p := range list {
		if q.answered != nil {
			q.answered(p)
		}
		if p.ended != nil {
			p.ended(p)
		}
	}
}

// finishItem makes one answer final and returns what the item took of the bounds. mu is held.
func (q *queue) finishItem(p *Item) {
	// leave has counted those that were abandoned.
	if !p.abandoned {
		p.in.live--
	}

	// Its caller is expected to return soon with the next event, if callers do.
	if !p.unshareable {
		q.inFlight--
		if q.callersReturn {
			q.returning++
			q.returningUntil = time.Now().Add(returnWait)
		}
		q.work.Signal()
	}
	q.budget.release(p.bytes)
	p.finish()
}
