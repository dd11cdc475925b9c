package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of one batch of a read.
const (
	batchEvents = 1000
	batchBytes  = 1 << 20
	firstBatch  = 64      // events of the first one, when their size is not known yet
	firstSpans  = 2 << 10 // bytes of the first one of spans: what a bad connection lets through
)

// tailRequest says what to read.
type tailRequest struct {
	from         api.Position
	filter       event.Filter
	limit        uint64 // events; 0 is no limit
	follow       bool
	linearizable bool
	minOffset    uint64 // wait until the node has it; 0 is none
	redriven     bool   // what was appended again for one cursor, for any of them, comes too
	spans        bool   // events come as they are stored where there is no filter
}

// tail reads the log forward. One goroutine uses it.
//
// next only rises; everything before it was handed out, filtered away, or told as a
// gap.
type tail struct {
	log     *log.Log
	cursor  string // that it reads for; "" is none, see log.EveryCursor
	filter  *liveFilter
	next    uint64
	end     uint64 // a read that does not follow stops behind it
	follow  bool
	limited bool
	left    uint64 // events still wanted, where limited
	spans   bool
	budget  int // bytes of spans to ask for

	diverged  func() bool
	heartbeat time.Duration
	handed    time.Time   // when a batch was handed out last
	beat      *time.Timer // for the next heartbeat; nil before anything was waited for
	ask       int         // events to ask for
	// check, if set, says whether the reader may go on; gap, if set, what is known of
	// events that were trimmed before it.
	check func() error
	gap   func(*log.Gap) *log.Gap
}

// batch is what a read found: events, or a gap, or neither where only time or
// events that do not match have passed.
type batch struct {
	events []event.Event // shared with other readers, never to be changed
	spans  []log.Span    // or these
	gap    *log.Gap
	next   uint64 // where to go on
	last   uint64 // the node's tail
}

// openTail finds the place to read from. It waits for min_offset, for the leader's
// word where the read is to be linearizable, and in a read that follows for the tail
// to come up to an offset that this node does not have yet.
func (s *service) openTail(ctx context.Context, r tailRequest) (*tail, error) {
	if r.linearizable {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.checkFilter(ctx, r.filter); err != nil {
		return nil, err
	}
	l := s.machine().Log()
	if err := waitFor(ctx, l, r.minOffset); err != nil {
		return nil, err
	}
	fallback := api.AtStart
	if r.follow {
		fallback = api.AtEnd
	}
	next, err := resolvePosition(s.machine(), r.from, fallback)
	if err != nil {
		return nil, err
	}
	if r.follow {
		err = waitForNext(ctx, l, next)
	} else if _, last := l.Bounds(); next > last+1 {
		err = pastTail("from", next, last, "wait for it with follow or min_offset, or read from end")
	}
	if err != nil {
		return nil, err
	}
	t := s.newTail(r, next)
	if r.redriven {
		t.cursor = log.EveryCursor
	}
	return t, nil
}

func (s *service) newTail(r tailRequest, next uint64) *tail {
	l := s.machine().Log()
	_, last := l.Bounds()
	return &tail{log: l, filter: newLiveFilter(s.machine(), r.filter), next: next, end: last, follow: r.follow,
		spans: r.spans && r.filter.Empty(), budget: firstSpans, limited: r.limit > 0, left: r.limit, diverged: s.node.Diverged, heartbeat: s.heartbeat, handed: time.Now(), ask: firstBatch}
}

// waitForTail is how long a read waits for an offset that the node does not have.
const waitForTail = 10 * time.Second

// waitFor returns when the log has reached min_offset; past the time for it the error
// tells the tail.
func waitFor(ctx context.Context, l *log.Log, offset uint64) error {
	late, err := waitLog(ctx, l, offset)
	if late {
		_, last := l.Bounds()
		return &api.Error{Code: api.Timeout, Field: "min_offset", Offset: last,
			Message: fmt.Sprintf("offset %d did not come in time; the tail is %d", offset, last),
			Remedy:  "check that it was acknowledged; then this node is behind: ask again, or another node"}
	}
	return err
}

// waitForNext returns when next follows the tail, or is there.
func waitForNext(ctx context.Context, l *log.Log, next uint64) error {
	late, err := waitLog(ctx, l, next-1)
	if late {
		_, last := l.Bounds()
		return pastTail("from", next-1, last, "read from end, or ask again when more was appended")
	}
	return err
}

// waitLog waits until the log has reached offset; late says that its time was up.
func waitLog(ctx context.Context, l *log.Log, offset uint64) (late bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, waitForTail)
	defer cancel()
	err = l.Wait(ctx, offset)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errStreamTime), err
}

// read returns the next batch, or io.EOF behind the last. When nothing matches for a
// while the batch is empty and only tells how far the read has come.
func (t *tail) read(ctx context.Context) (batch, error) {
	for {
		if err := t.mayGoOn(ctx); err != nil {
			return batch{}, err
		}
		if b, ok, err := t.step(); ok || err != nil {
			return b, err
		}
		_, last := t.log.Bounds()
		if t.next > last {
			if !t.follow {
				return batch{}, io.EOF
			}
			if err := t.wait(ctx); err != nil {
				return batch{}, err
			}
		}
		if time.Since(t.handed) >= t.heartbeat {
			return t.hand(batch{}), nil
		}
	}
}

func (t *tail) mayGoOn(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.diverged() {
		return raftnode.ErrDiverged
	}
	if t.limited && t.left == 0 || !t.follow && t.next > t.end {
		return io.EOF
	}
	if t.check != nil {
		return t.check()
	}
	return nil
}

// step reads once, without waiting.
func (t *tail) step() (b batch, ok bool, err error) {
	if t.spans {
		return t.stepSpans()
	}
	return t.stepEvents()
}

func (t *tail) stepEvents() (b batch, ok bool, err error) {
	chunk, err := t.filter.read(t.cursor, t.next, t.wanted(t.ask))
	if err != nil {
		return batch{}, false, err
	}
	if chunk.Gap != nil {
		return t.pass(chunk.Gap), true, nil
	}
	t.next = chunk.Next
	if len(chunk.Events) == 0 {
		return batch{}, false, nil
	}
	t.took(len(chunk.Events))
	t.learn(chunk.Events)
	return t.hand(batch{events: chunk.Events}), true, nil
}

func (t *tail) stepSpans() (b batch, ok bool, err error) {
	found, err := t.log.ReadSpans(t.cursor, t.next, t.wanted(math.MaxInt), t.budget)
	if err != nil {
		return batch{}, false, err
	}
	if found.Gap != nil {
		return t.pass(found.Gap), true, nil
	}
	t.next = found.Next
	if found.Targeted && len(found.Spans) == 0 {
		return t.stepEvents()
	}
	t.budget = min(4*t.budget, batchBytes)
	for _, span := range found.Spans {
		t.took(span.Take)
	}
	return t.hand(batch{spans: found.Spans}), len(found.Spans) > 0, nil
}

// pass goes behind a gap.
func (t *tail) pass(gap *log.Gap) batch {
	behind := gap.To + 1
	if t.gap != nil {
		gap = t.gap(gap)
	}
	t.next = max(behind, gap.To+1)
	return t.hand(batch{gap: gap})
}

// wanted is how many events to ask for, n at most.
func (t *tail) wanted(n int) int {
	if t.limited {
		return int(min(uint64(n), t.left))
	}
	return n
}

func (t *tail) took(n int) {
	if t.limited {
		t.left -= uint64(n)
	}
}

// hand completes a batch.
func (t *tail) hand(b batch) batch {
	_, b.last = t.log.Bounds()
	b.next, t.handed = t.next, time.Now()
	return b
}

// learn asks for about batchBytes next time, going up in steps.
func (t *tail) learn(events []event.Event) {
	bytes := 0
	for i := range events {
		bytes += eventBytes(&events[i])
	}
	fit := batchBytes * len(events) / max(bytes, 1)
	t.ask = max(1, min(fit, 4*t.ask, batchEvents))
}

// eventBytes is about how much an event takes on the wire.
func eventBytes(e *event.Event) int {
	const fixed = 64
	return fixed + len(e.Payload) + len(e.Source) + len(e.Key) + len(e.CorrelationID) + len(e.CausationID) + len(e.DedupID)
}

// wait returns when there is more to read, or when it is time for a heartbeat.
func (t *tail) wait(ctx context.Context) error {
	grown := t.log.Grown(t.next)
	if grown == nil {
		return nil
	}
	due := time.Until(t.handed.Add(t.heartbeat))
	if t.beat == nil {
		t.beat = time.NewTimer(due)
	} else {
		t.beat.Reset(due)
	}
	select {
	case <-grown:
	case <-t.beat.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// errManyStreams refuses a read beyond Config.MaxStreams.
func errManyStreams() *api.Error {
	return &api.Error{Code: api.Overloaded, Field: "follow", Message: "there are as many streams as this node serves at a time",
		Remedy: "end some, or read from another node"}
}

// stream takes a place among the streams; release gives it back.
func (s *Server) stream() (release func(), err error) {
	select {
	case s.streams <- struct{}{}:
		s.metrics.streams.Inc()
		return func() { <-s.streams; s.metrics.streams.Dec() }, nil
	default:
		return nil, errManyStreams()
	}
}
