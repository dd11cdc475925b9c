package tail

import (
	"context"
	"io"
	"math"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// Bounds of one batch of a read.
const (
	batchEvents = 1000
	BatchBytes  = 1 << 20
	firstBatch  = 64      // events of the first one, when their size is not known yet
	firstSpans  = 2 << 10 // bytes of the first one of spans: what a bad connection lets through
)

// Tail reads the log forward. One goroutine uses it.
//
// next never decreases; everything before it was handed out, filtered away, or reported as
// a gap.
type Tail struct {
	log     *log.Log
	cursor  string // that it reads for; "" is none, see log.EveryCursor
	filter  *LiveFilter
	where   func(*event.Event) (bool, error)
	failed  bool // where could not be evaluated for an event
	next    uint64
	end     uint64 // a read that does not follow stops after it
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
	// check, if set, says whether the reader may continue; gap, if set, what is known of
	// events that were trimmed before it.
	check func() error
	gap   func(*log.Gap) *log.Gap
}

// batch is what a read found: events, or a gap, or neither where only time or
// events that do not match have passed.
type batch struct {
	Events []event.Event // shared with other readers, never to be changed
	Spans  []log.Span    // or these
	Gap    *log.Gap
	// Failure is of the first event that the reader's condition could not be evaluated for. The later ones are not
	// reported.
	Failure *Failure
	Next    uint64 // where to resume
	Last    uint64 // the node's tail
}

// Failure is why a condition could not be evaluated for an event, which therefore does not meet it.
type Failure struct {
	Offset uint64 // of the event
	Err    error
}

// Options says what a tail reads.
type Options struct {
	Filter event.Filter
	Types  []string // patterns of the types that the reader may have; none is all
	Next   uint64   // the first offset to read
	Limit  uint64   // events; 0 is no limit
	Follow bool     // wait for what is appended, rather than end at the log's end
	Spans  bool     // events come as they are stored where there is neither a filter nor a condition
	// Where is a condition on events that pass the filter; nil is none. An error says that it could not be evaluated.
	Where     func(*event.Event) (met bool, err error)
	Diverged  func() bool
	Heartbeat time.Duration // an empty batch is returned this often where there is nothing to read
}

// New returns a tail. One that does not follow ends at what is the log's end now.
func New(m *fsm.Machine, o Options) *Tail {
	_, last := m.Log().Bounds()
	return &Tail{log: m.Log(), filter: NewLiveFilter(m, o.Filter, o.Types), where: o.Where, next: o.Next, end: last,
		follow: o.Follow, limited: o.Limit > 0, left: o.Limit,
		spans:  o.Spans && o.Filter.Empty() && len(o.Types) == 0 && o.Where == nil,
		budget: firstSpans, ask: firstBatch, diverged: o.Diverged, heartbeat: o.Heartbeat, handed: time.Now()}
}

// ReadFor reads what is for a cursor: events of the log and what was appended again for it alone.
func (t *Tail) ReadFor(cursor string) { t.cursor = cursor }

// Reader is the cursor that it reads for, "" if there is none.
func (t *Tail) Reader() string {
	if t.cursor == log.EveryCursor {
		return ""
	}
	return t.cursor
}

// Guard sets check, which is called before each step and whose error ends the read, and refine, which returns what
// is known of a gap.
func (t *Tail) Guard(check func() error, refine func(*log.Gap) *log.Gap) {
	t.check, t.gap = check, refine
}

// Next is the first offset that was not read yet.
func (t *Tail) Next() uint64 { return t.next }

// End is the log's last offset when the read began.
func (t *Tail) End() uint64 { return t.end }

// Last is the log's last offset now.
func (t *Tail) Last() uint64 { _, last := t.log.Bounds(); return last }

// Follows reports whether the read waits for what is appended.
func (t *Tail) Follows() bool { return t.follow }

// AtLimit reports whether all events that were asked for were read.
func (t *Tail) AtLimit() bool { return t.limited && t.left == 0 }

// Matcher is the reader's filter, compiled against the newest catalogue.
func (t *Tail) Matcher() *event.Matcher { return t.filter.Matcher() }

// Read returns the next batch, or io.EOF after the last one. When nothing matches for a heartbeat, the batch is
// empty and only reports how far the read has come.
func (t *Tail) Read(ctx context.Context) (batch, error) {
	for {
		if err := t.mayGoOn(ctx); err != nil {
			return batch{}, err
		}
		if b, ok, err := t.step(); ok || err != nil {
			return b, err
		}
		// Nothing matched. At the tail the read waits for more; before the tail it steps again at once.
		_, last := t.log.Bounds()
		if t.next > last {
			if !t.follow {
				return batch{}, io.EOF
			}
			if err := t.wait(ctx); err != nil {
				return batch{}, err
			}
		}
		// A heartbeat is also due while the read passes many events that do not match.
		if time.Since(t.handed) >= t.heartbeat {
			return t.hand(batch{}), nil
		}
	}
}

// mayGoOn returns nil, or why the read ends before its next step: its context's cause, io.EOF, or what check says.
func (t *Tail) mayGoOn(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if t.diverged() {
		return raftnode.ErrDiverged
	}
	// A read that does not follow ends at the tail as it was at the beginning, however far the log has grown since.
	if (t.limited && t.left == 0) || (!t.follow && t.next > t.end) {
		return io.EOF
	}
	if t.check != nil {
		return t.check()
	}
	return nil
}

// step reads once, without waiting. Where ok is false it has found nothing to return, though next may have advanced.
func (t *Tail) step() (b batch, ok bool, err error) {
	if t.spans {
		return t.stepSpans()
	}
	return t.stepEvents()
}

// stepEvents is step for decoded events.
func (t *Tail) stepEvents() (b batch, ok bool, err error) {
	// Any number of the events that are read may fail the condition, so the limit does not bound the read.
	ask := t.ask
	if t.where == nil {
		ask = t.wanted(ask)
	}
	chunk, err := t.filter.Read(t.cursor, t.next, ask)
	if err != nil {
		return batch{}, false, err
	}
	if chunk.Gap != nil {
		return t.pass(chunk.Gap), true, nil
	}
	// Events that do not match the filter are passed, also where none matches.
	t.next = chunk.Next
	if len(chunk.Events) == 0 {
		return batch{}, false, nil
	}
	t.learn(chunk.Events)
	events, failure := t.choose(chunk.Events)
	if len(events) == 0 && failure == nil {
		return batch{}, false, nil
	}
	t.took(len(events))
	return t.hand(batch{Events: events, Failure: failure}), true, nil
}

// choose returns the events that meet the reader's condition. It ends early, with next at the first event that it has
// not judged, once there are as many as are wanted or a heartbeat is due: a condition may take long.
func (t *Tail) choose(events []event.Event) (met []event.Event, failure *Failure) {
	if t.where == nil {
		return events, nil
	}
	for i := range events {
		enough := t.limited && uint64(len(met)) == t.left
		if enough || (i > 0 && time.Since(t.handed) >= t.heartbeat) {
			t.next = events[i].Offset
			break
		}
		ok, err := t.where(&events[i])
		if err != nil && !t.failed {
			t.failed, failure = true, &Failure{events[i].Offset, err}
		}
		if ok {
			met = append(met, events[i])
		}
	}
	return met, failure
}

// stepSpans is step for a read that takes whole blocks as they are stored.
func (t *Tail) stepSpans() (b batch, ok bool, err error) {
	found, err := t.log.ReadSpans(t.cursor, t.next, t.wanted(math.MaxInt), t.budget)
	if err != nil {
		return batch{}, false, err
	}
	if found.Gap != nil {
		return t.pass(found.Gap), true, nil
	}
	t.next = found.Next
	// The next event was redriven for this cursor, which a span cannot say of it: it is read decoded.
	if found.Targeted && len(found.Spans) == 0 {
		return t.stepEvents()
	}
	// After a small first batch each may take four times as much as the one before.
	t.budget = min(4*t.budget, BatchBytes)
	for _, span := range found.Spans {
		t.took(span.Take)
	}
	return t.hand(batch{Spans: found.Spans}), len(found.Spans) > 0, nil
}

// pass returns a gap as a batch and continues after it. The gap that t.gap returns may end elsewhere than the one
// that the log reported; next is then after both.
func (t *Tail) pass(gap *log.Gap) batch {
	after := gap.To + 1
	if t.gap != nil {
		gap = t.gap(gap)
	}
	t.next = max(after, gap.To+1)
	return t.hand(batch{Gap: gap})
}

// wanted is how many events to ask for, n at most.
func (t *Tail) wanted(n int) int {
	if t.limited {
		return int(min(uint64(n), t.left))
	}
	return n
}

// took counts n events against the limit.
func (t *Tail) took(n int) {
	if t.limited {
		t.left -= uint64(n)
	}
}

// hand completes a batch, which starts the time until the next heartbeat again.
func (t *Tail) hand(b batch) batch {
	_, b.Last = t.log.Bounds()
	b.Next, t.handed = t.next, time.Now()
	return b
}

// learn sets how many events to ask for next, so a batch takes about BatchBytes. It goes up in steps, since
// events that were small so far may be followed by large ones.
func (t *Tail) learn(events []event.Event) {
	bytes := 0
	for i := range events {
		bytes += EventBytes(&events[i])
	}
	fit := BatchBytes * len(events) / max(bytes, 1)
	t.ask = max(1, min(fit, 4*t.ask, batchEvents))
}

// EventBytes is about how much an event takes on the wire.
func EventBytes(e *event.Event) int {
	const fixed = 64
	return fixed + len(e.Payload) + len(e.Source) + len(e.Key) + len(e.CorrelationID) + len(e.CausationID) + len(e.DedupID)
}

// wait returns when there is more to read, or when it is time for a heartbeat.
func (t *Tail) wait(ctx context.Context) error {
	grown := t.log.Grown(t.next)
	if grown == nil {
		return nil
	}
	// The read wakes for its heartbeat even if the log does not grow.
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
