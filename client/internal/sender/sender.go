// Package sender appends events to a cluster. It gathers the events of concurrent callers into
// requests, sends each request until it is decided, and gives each caller its own answer.
//
// It promises:
//
//   - An event is appended at most once by one call, however often its request is sent: each
//     worker is a producer with numbered requests.
//   - A refusal of one caller's events does not fail the others of the same request.
//   - Events of PublishOrdered are appended in the order they were handed over.
//   - At most Config.MaxBuffered bytes of events wait or are in flight.
//
// A caller's events pass through here:
//
//	admission -> queue -> worker -> calls.Cluster or publish stream -> the caller's Item
package sender

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// Config says where to send and how much at once. All fields but Answered are required.
type Config struct {
	Cluster *calls.Cluster
	// Policy brings events into the form in which they are stored. Their limits are for the
	// nodes to judge.
	Policy *event.Policy

	MaxBatchEvents int // events of one shared request
	MaxBatchBytes  int // bytes of one shared request
	MaxInFlight    int // shared requests in flight at once
	MaxBuffered    int // bytes of events waiting or in flight

	// Answered is called with each item of PublishOrdered once it was answered, by one goroutine; nil is nobody.
	Answered func(*Item)
}

// Sender appends events. It is safe for concurrent use.
// Its workers run from New until Close, and end when everything is answered.
type Sender struct {
	cfg     Config
	samples sampler
	shared  *queue        // of concurrent calls: any worker takes from it
	ordered *queue        // of PublishOrdered: one worker takes from it
	newest  atomic.Uint64 // see Newest

	sending context.Context // ends with Abort
	abort   context.CancelCauseFunc
	workers sync.WaitGroup
}

// New starts the workers.
func New(cfg Config) *Sender {
	s := &Sender{cfg: cfg}
	s.sending, s.abort = context.WithCancelCause(context.Background())
	// One budget, since both queues take from the same memory.
	budget := newByteBudget(cfg.MaxBuffered)
	s.shared, s.ordered = newQueue(&cfg, budget), newQueue(&cfg, budget)

	// Callers of PublishOrdered do not wait for their answers, so nobody waits for them to
	// return.
	s.shared.callersReturn, s.ordered.answered = true, cfg.Answered
	for range cfg.MaxInFlight {
		s.startWorker(s.shared)
	}
	// One worker: a second one could have a later request decided first.
	s.startWorker(s.ordered)
	return s
}

// startWorker starts a goroutine that sends the queue's batches one after the other, until the
// queue is closed and empty. Wait joins it.
func (s *Sender) startWorker(q *queue) {
	s.workers.Go(func() {
		w := &worker{s: s, q: q}
		defer w.closeStream()

		// One batch at a time: the answers to a worker's sequence come in order.
		for {
			// The context of a batch has a time limit, so a batch ends if no node answers.
			b := q.nextBatch(s.sending, s.cfg.Cluster.Timeout())
			if b == nil {
				return
			}
			w.deliver(b)
			// It releases the timer of the batch.
			b.cancel(nil)
		}
	})
}

// Close refuses new events with ErrClosed. What was accepted is still sent.
func (s *Sender) Close() {
	s.shared.close()
	s.ordered.close()
}

// Wait waits, after Close, until everything that was accepted is answered.
func (s *Sender) Wait() { s.workers.Wait() }

// Abort ends, after Close, the requests in flight because of cause.
func (s *Sender) Abort(cause error) { s.abort(cause) }

// Newest is the highest offset that was acknowledged here.
func (s *Sender) Newest() uint64 { return s.newest.Load() }

// noteOffset raises newest to an offset that was acknowledged. Workers call it concurrently.
func (s *Sender) noteOffset(offset uint64) {
	// A lower offset changes nothing. Where another worker was faster, compare again.
	for {
		old := s.newest.Load()
		if offset <= old || s.newest.CompareAndSwap(old, offset) {
			return
		}
	}
}

// Publish appends one event in a request that it may share, and waits for the answer. The
// item has its outcome; Release gives the item back.
func (s *Sender) Publish(ctx context.Context, ev *event.Event) (*Item, error) {
	p := newPooledItem()
	if err := s.admitOne(p, ev); err != nil {
		return nil, err
	}
	// After an error p is not released, since a worker may still have it.
	return p, s.sendAndWait(ctx, p)
}

// PublishBatch appends events as one request of their own and waits for the answer.
func (s *Sender) PublishBatch(ctx context.Context, events []event.Event) (*Item, error) {
	p := newItem("publish batch")
	p.unshareable = true
	if err := s.admitBatch(p, events); err != nil {
		return nil, err
	}
	return p, s.sendAndWait(ctx, p)
}

// PublishOrdered hands one event over and returns at once, or when there is room for it: ctx
// bounds that wait alone.
func (s *Sender) PublishOrdered(ctx context.Context, ev *event.Event, ended func(*Item)) *Item {
	p := newItem("publish")
	p.ended = ended
	err := s.admitOne(p, ev)
	if err == nil {
		err = s.enqueue(ctx, s.ordered, p)
	}

	// A refused event gets another item, which is done at once.
	if err != nil {
		p = newItem("publish")
		p.err = err
		close(p.done)
	}
	return p
}

// enqueue hands p over to a queue and names the call in the error.
func (s *Sender) enqueue(ctx context.Context, q *queue, p *Item) error {
	if err := q.addItem(ctx, p); err != nil {
		return fmt.Errorf("client: %s: %w", p.op, err)
	}
	return nil
}

// sendAndWait hands p over and waits for its answer, at most for the time of one call.
func (s *Sender) sendAndWait(ctx context.Context, p *Item) error {
	if err := s.enqueue(ctx, s.shared, p); err != nil {
		return err
	}
	timer := takeTimer(s.cfg.Cluster.Timeout())
	defer putTimer(timer)
	// Why the caller stops waiting, for its error.
	var why error
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		why = context.Cause(ctx)
	case <-timer.C:
		why = context.DeadlineExceeded
	}

	// The caller stops waiting. What that means depends on how far its events came.
	switch s.shared.leave(p, why) {
	case leftQueue:
		return &calls.Error{Op: p.op, Ended: fmt.Errorf("%w: not sent, as requests before it wait for their answers; "+
			"it may be sent again", why)}
	case leftLast:
		// Nobody else waits for the request: it ends now, and its end says more.
		<-p.done
		return p.err
	}
	return &calls.Error{Op: p.op, Unknown: true, Ended: why}
}

// timers holds stopped ones, for the next call that waits.
var timers sync.Pool

// takeTimer returns a running timer, of those that earlier calls have returned if there is one.
func takeTimer(d time.Duration) *time.Timer {
	if t, ok := timers.Get().(*time.Timer); ok {
		t.Reset(d)
		return t
	}
	return time.NewTimer(d)
}

// putTimer stops a timer and keeps it for a later call.
func putTimer(t *time.Timer) {
	t.Stop() // after which nothing is in its channel
	timers.Put(t)
}
