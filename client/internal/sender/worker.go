package sender

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/ringrift/ringlog/api"
	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

// worker sends one request after the other, as a producer of its own.
//
// next is the sequence of the next request; all before it are decided. If an attempt with
// sequence next was lost and its retry was refused before it reached the state machine (for a
// bad event, say), nobody knows whether next is used: then inDoubt is set, and another request
// under next decides. If no other follows, the producer is abandoned for a new one.
type worker struct {
	s *Sender
	q *queue

	// Its id; "" if there is none at the moment.
	producer string
	// From 1.
	next uint64
	// When the producer was last used.
	used     time.Time
	inDoubt  bool
	suspects []suspect // of the request in doubt: refused, unless it happened

	stream *publishStream // nil before it is worth one, and where there is none
	events []event.Event  // memory for those of a request
}

// suspect is a refused item whose answer is held back until it is known whether the request in
// doubt happened.
type suspect struct {
	item *Item
	err  *calls.Error
}

const (
	// maxIdle stays far below the time for which nodes keep a producer's results.
	maxIdle = 5 * time.Minute
	// warmUp is how many requests a worker sends before it is worth a publish stream.
	warmUp = 8
	// manyRefusals is how many events of one batch may be refused one by one before the
	// rest is sent in halves, so a batch of bad events is not sent whole for each.
	manyRefusals = 4
	// producerAttempts is how often a request is sent under another producer.
	producerAttempts = 3
)

// deliver sends a batch and answers each of its callers. A refusal of one caller's
// events lets the others be sent again, in their order.
func (w *worker) deliver(b *batch) {
	refusals := 0
	// What is still to be sent, in order.
	for groups := [][]*Item{b.items}; len(groups) > 0; {
		// A caller that has left takes its events out of what is sent again.
		group := w.q.stillWaiting(groups[0])
		groups = groups[1:]
		if len(group) == 0 {
			continue
		}
		resp, failed := w.decide(b.ctx, group)
		if failed == nil {
			w.answerGroup(group, resp)
			continue
		}

		// The rest is sent before the groups that follow, so the order is kept.
		refusals++
		groups = append(w.divideGroup(group, failed, refusals > manyRefusals), groups...)
	}

	// No other request follows that would decide the doubt.
	if w.inDoubt {
		w.abandonProducer()
	}
}

// decide sends one request until it is decided.
func (w *worker) decide(ctx context.Context, group []*Item) (*ringlogv1.PublishResponse, *calls.Error) {
	for n := 1; ; n++ {
		resp, failed := w.sendSequence(ctx, group)
		switch w.verdictOf(group, failed) {
		case decided:
			// This request has used the sequence, so the one in doubt has not.
			w.next++
			w.endDoubt(false)
			return resp, failed
		case undecided:
			return nil, failed
		case doubtful:
			// The next request under the same sequence decides.
			w.inDoubt = true
			return nil, failed
		case misplaced:
			// An attempt before may have used the sequence, and then nothing may be sent again.
			if w.inDoubt || failed.Unknown {
				failed.Unknown = true
				w.abandonProducer()
				return nil, failed
			}
			// Nothing happened, so the same request may be sent under another producer.
			w.abandonProducer()
			if n == producerAttempts {
				return nil, failed
			}
		case lost:
			// The sequence may be used, so no other request takes it.
			w.abandonProducer()
			return nil, failed
		}
	}
}

// verdict says what became of the worker's sequence.
type verdict int

const (
	decided   verdict = iota // it is used, by this request
	undecided                // it is free: the request was refused before it was decided
	doubtful                 // the request was refused so, but an attempt before was lost
	misplaced                // it is not what the state machine expects
	lost                     // nobody knows
)

// verdictOf returns what the result of a request says of the worker's sequence. It clears
// failed.Unknown if the refusal settles what became of the attempts before.
func (w *worker) verdictOf(group []*Item, failed *calls.Error) verdict {
	if failed == nil {
		return decided
	}
	refusal := failed.Refusal()
	switch {
	case refusal == nil && failed.Unknown:
		return lost
	case refusal == nil:
		// No attempt can have happened.
		return undecided
	case refusal.Code == api.OutOfSequence, refusal.Code == api.UnknownProducer,
		refusal.Code == api.Conflict && refusal.Field == "sequence":
		return misplaced
	case refusal.Code == api.Conflict: // under this sequence, now or in an attempt before
		failed.Unknown = false
		return decided
	case aboutEvents(refusal.Code) && w.s.refuses(group): // as the attempt before was
		failed.Unknown = false
		return undecided
	case !failed.Unknown:
		// No attempt was lost, so nothing has used the sequence.
		return undecided
	case aboutEvents(refusal.Code):
		return doubtful
	}
	// It was refused for a reason that is no fault of the events, after an attempt that was lost.
	return lost
}

// endDoubt ends a doubt: the request in doubt has happened, or may have, or has not.
func (w *worker) endDoubt(happened bool) {
	w.inDoubt = false
	for _, s := range w.suspects {
		// Its caller learns now whether the events were refused, or may have happened.
		s.err.Unknown = happened
		w.failItems([]*Item{s.item}, s.err)
	}
	w.suspects = nil
}

// abandonProducer makes the next request one of a new producer.
func (w *worker) abandonProducer() {
	w.producer = ""
	w.endDoubt(true)
}

// sendSequence sends a group under the worker's sequence, over its publish stream if it has one.
func (w *worker) sendSequence(ctx context.Context, group []*Item) (*ringlogv1.PublishResponse, *calls.Error) {
	if w.producer == "" || calls.Elapsed(w.used) > maxIdle {
		// A new producer begins with sequence 1.
		w.producer, w.next = uuid.Must(uuid.NewV7()).String(), 1
	}
	if time.Since(w.used) > streamIdle {
		w.closeStream()
	}

	// All attempts send the same request, so it happens at most once.
	w.used = time.Now()
	req := &ringlogv1.PublishRequest{ProducerId: w.producer, Sequence: w.next, Packet: w.pack(group)}
	cluster := w.s.cfg.Cluster
	var out *ringlogv1.PublishResponse
	attempt := func(ctx context.Context, n *calls.Node) (http.Header, error) {
		// A message of a stream is bounded; a larger request goes alone.
		if proto.Size(req) <= api.MaxPublishMessage && w.useStream(ctx, n) {
			var usable bool
			var err error
			out, usable, err = w.stream.publish(ctx, req)
			if !usable {
				w.closeStream()
			}
			// A stream has no headers, so its messages name the leader. Without an answer out names none.
			cluster.NoteLeader(n, out.GetLeaderHttp())
			return nil, err
		}
		resp, err := n.Log.Publish(ctx, calls.NewRequest(cluster, req))
		if err != nil {
			return nil, err
		}
		out = resp.Msg
		cluster.NoteLeader(n, out.LeaderHttp)
		return resp.Header(), nil
	}
	// The call has the name of the first item; errorFor puts each caller's own into its error.
	err := cluster.Call(ctx, calls.Op{Name: group[0].op, Events: countEvents(group)}, calls.Sequenced, attempt)
	if err == nil {
		return out, nil
	}
	failed, ok := errors.AsType[*calls.Error](err)
	// Every error of Call is an *Error; this one would not be.
	if !ok {
		failed = &calls.Error{Op: group[0].op, Err: err}
	}
	return nil, failed
}

// countEvents is how many events the items of a group have.
func countEvents(group []*Item) (n int) {
	for _, p := range group {
		n += len(p.Events)
	}
	return n
}

// useStream reports whether the worker has a stream to n, and opens one if it is worth it.
func (w *worker) useStream(ctx context.Context, n *calls.Node) bool {
	if w.stream != nil && w.stream.to != n {
		// The leader has changed, and the stream is to another node.
		w.closeStream()
	}
	if w.stream == nil && w.next > warmUp && n.OffersStream() {
		w.stream = openStream(ctx, w.s.cfg.Cluster, n)
	}
	return w.stream != nil
}

// closeStream ends the publish stream, if there is one: the next request is sent without, or
// over another.
func (w *worker) closeStream() {
	if w.stream != nil {
		w.stream.close()
		w.stream = nil
	}
}

// pack lays the group's events out as the log stores them.
func (w *worker) pack(group []*Item) *ringlogv1.Packet {
	// The events of one item are packed where they are.
	events := group[0].Events

	// The events of several items are gathered in memory that the worker keeps, without keeping
	// what they refer to.
	if len(group) > 1 {
		for _, p := range group {
			w.events = append(w.events, p.Events...)
		}
		events = w.events
		defer func() {
			// Else the memory would keep the payloads of a finished request alive.
			clear(w.events)
			w.events = w.events[:0]
		}()
	}
	p := frame.Pack(events)
	return &ringlogv1.Packet{Rows: uint32(p.Rows), Types: p.Types, Sources: p.Sources, NoDedup: p.NoDedup, Body: p.Body,
		Traces: p.Traces}
}

// divideGroup answers the callers that a failure is about, and returns the others in groups
// to send again.
func (w *worker) divideGroup(group []*Item, failed *calls.Error, halve bool) [][]*Item {
	refusal := failed.Refusal()
	if refusal == nil || !aboutEvents(refusal.Code) || (failed.Unknown && !w.inDoubt) {
		// It is about all items, or what happened is not known.
		w.failItems(group, failed)
		return nil
	}
	// Where one payload is refused, others may be, too.
	w.s.samples.checkMore()

	// The field names the event at fault. If it names none, halves find it.
	at, ok := ownerOf(group, refusal.Field)
	if len(group) == 1 {
		at, ok = 0, true
	}
	if ok {
		w.refuseItem(group[at], failed)
		// The capacity is cut, so append copies and leaves the caller's slice as it is.
		group = append(group[:at:at], group[at+1:]...)
		if !halve || len(group) < 2 {
			return [][]*Item{group}
		}
	}
	half := len(group) / 2
	return [][]*Item{group[:half], group[half:]}
}

// refuseItem answers one caller, or waits with that until it is certain.
func (w *worker) refuseItem(p *Item, failed *calls.Error) {
	if failed.Unknown || w.inDoubt {
		// A copy: endDoubt writes into it.
		own := *failed
		w.suspects = append(w.suspects, suspect{p, &own})
		return
	}
	w.failItems([]*Item{p}, failed)
}

// aboutEvents reports whether a refusal may be the fault of some events alone.
func aboutEvents(code api.Code) bool {
	switch code {
	case api.InvalidArgument, api.InvalidJSON, api.UnknownType, api.Reserved, api.Conflict, api.TooLarge:
		return true
	}
	// Any other refusal is about the request, the caller or the cluster.
	return false
}

// ownerOf finds the item whose event a field like events[3].payload is in.
func ownerOf(group []*Item, field string) (int, bool) {
	index, _, ok := cutIndex(field)
	if !ok {
		return 0, false
	}

	// The index counts over all events of the request.
	for i, p := range group {
		if index < len(p.Events) {
			return i, true
		}
		index -= len(p.Events)
	}
	return 0, false
}

// cutIndex takes events[3].payload apart.
func cutIndex(field string) (index int, rest string, ok bool) {
	number, ok := strings.CutPrefix(field, "events[")
	if !ok {
		return 0, field, false
	}

	// The field within the event follows the bracket, if there is one.
	number, rest, ok = strings.Cut(number, "]")
	index, err := strconv.Atoi(number)
	if !ok || err != nil || index < 0 {
		return 0, field, false
	}
	return index, strings.TrimPrefix(rest, "."), true
}

// failItems answers callers with an error of their own.
func (w *worker) failItems(group []*Item, failed *calls.Error) {
	for _, p := range group {
		p.err = errorFor(p, failed)
	}
	w.q.finish(group)
}

// errorFor is a failure as p's caller has to see it: a single event has no index.
func errorFor(p *Item, failed *calls.Error) error {
	own := *failed
	own.Op = p.op
	if refusal := failed.Refusal(); refusal != nil && !p.unshareable {
		// A copy, since other callers have the same answer.
		answer := *refusal
		_, answer.Field, _ = cutIndex(refusal.Field)
		own.Err = &answer
	}
	return &own
}
