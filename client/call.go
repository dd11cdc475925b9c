package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/client/internal/calls"
	"github.com/ringrift/ringlog/event"
)

// CallOptions say what answers a call. Types are names in any spelling; lists that are nil are those that
// event.Catalogue.RepliesTo takes from the flows of the cluster.
type CallOptions struct {
	Replies  []event.Type // any of them is the outcome
	Failures []event.Type // any of them says that the run has failed
}

// CallResult is what became of a run.
type CallResult struct {
	Success bool
	Error   string // why it failed, "" with Success

	Offset        uint64      // of the event that started the run
	Duplicate     bool        // that event was in the log already, and this is the outcome of its run
	CorrelationID string      // of the run
	Reply         event.Event // the outcome
	// Duration is the time between the two events, as the log has appended them.
	Duration time.Duration
}

// ErrNoReply says that no outcome is known for the type of a call.
var ErrNoReply = errors.New("no flow names a reply")

// Call publishes an event and waits for the outcome of the run that it starts: the first event after it of the same run
// that is a reply or a failure. That is one with its correlation id. If a flow that the event is a stage of finds runs
// by payload fields (event.Flow.RunBy), it is one with the same values in these, whatever its correlation id, or
// without these values one that has its correlation id or names the event as its cause. An event without a correlation
// id gets that of ctx, see event.CausedBy, or a new one. A duplicate waits for the outcome of the original's run.
//
// A reply fails the run if its payload has "success": false. So does a HANDLER_FAILED that names the event and answers
// it, which ringlog react publishes for types without a failure of their own.
//
// Call waits until ctx is done, across changes of leaders and outages. An error after the event was published comes
// with a result whose Offset and CorrelationID are set.
func (c *Client) Call(ctx context.Context, ev event.Event, o CallOptions) (CallResult, error) {
	w := waiter{c: c, kind: ev.Type}
	if err := w.choose(ctx, ev.Type, o); err != nil {
		return CallResult{}, fmt.Errorf("client: call %s: %w", ev.Type, err)
	}
	// An id of its own, in the payload as well, comes first; that of a handler's event is next.
	ev = event.Inherit(ctx, ev)
	ev = event.Inherit(event.CausedBy(ctx, &event.Event{CorrelationID: uuid.NewString()}), ev)
	published, err := c.Publish(ctx, ev)
	if err != nil {
		return CallResult{}, err
	}
	w.result = CallResult{Offset: published.Offset, Duplicate: published.Duplicate, CorrelationID: ev.CorrelationID}
	w.began = published.AppendedAt
	if err := w.findRun(ctx, &ev); err != nil {
		return w.result, err
	}
	return w.result, w.wait(ctx)
}

// waiter waits for the outcome of a run.
type waiter struct {
	c        *Client
	kind     event.Type         // of the event, as the caller spells it
	replies  []string           // canonical names
	failures []string           // a subset of types that are waited for, too
	byFields []namedRun         // the flows that the event is a stage of; after nameRuns those whose fields it has
	fields   *event.FieldReader // of byFields
	began    time.Time          // when the event was appended
	result   CallResult         // filled in from the publish on
}

// namedRun is the run of the event by a flow that finds runs by payload fields.
type namedRun struct {
	flow event.Flow
	id   string
}

// choose decides which types are waited for, and by which flows.
func (w *waiter) choose(ctx context.Context, kind event.Type, o CallOptions) error {
	flows, err := w.c.Admin().Flows(ctx)
	if err != nil {
		return err
	}

	// A flow finds the run by payload fields only if the event is one of its stages.
	found, _ := w.c.cfg.Catalogue.Resolve(string(kind))
	for _, f := range flows {
		if len(f.RunBy) > 0 && slices.Contains(f.Stages(), found.Type) {
			w.byFields = append(w.byFields, namedRun{flow: f})
		}
	}
	known := event.Replies{Success: o.Replies, Failure: o.Failures}
	if known.Success == nil || known.Failure == nil {
		// The built-in ones are in the catalogue already.
		flows = slices.DeleteFunc(flows, func(f event.Flow) bool { return f.Status != event.StatusRegistered })
		catalogue, err := w.c.cfg.Catalogue.WithFlows(flows...)
		if err != nil {
			return err
		}
		from := catalogue.RepliesTo(kind)
		// What the caller names as the one is not the other.
		if known.Success == nil {
			known.Success = without(from.Success, o.Failures)
		}
		if known.Failure == nil {
			known.Failure = without(from.Failure, o.Replies)
		}
	}
	if len(known.Success) == 0 {
		return fmt.Errorf("%w to %s: name it in CallOptions.Replies, or register a flow that does", ErrNoReply, kind)
	}

	// Events in the log have canonical names. In these the two lists may turn out to overlap.
	w.replies, w.failures = w.names(known.Success), w.names(known.Failure)
	for _, name := range w.replies {
		if slices.Contains(w.failures, name) {
			return fmt.Errorf("%s is both a reply and a failure", name)
		}
	}
	return nil
}

// without returns the types of a list that are not in another one.
func without(list, other []event.Type) []event.Type {
	return slices.DeleteFunc(slices.Clone(list), func(t event.Type) bool { return slices.Contains(other, t) })
}

// names returns the canonical names of types.
func (w *waiter) names(types []event.Type) (names []string) {
	for _, t := range types {
		found, _ := w.c.cfg.Catalogue.Resolve(string(t))
		names = append(names, string(found.Type))
	}
	return names
}

// findRun finds the run that the event begins. Of one that this call has not started itself, or whose correlation id is
// in the payload, the log has the event.
func (w *waiter) findRun(ctx context.Context, first *event.Event) error {
	// The run is that of the event in the log, whose correlation id and payload may differ from those sent.
	if w.result.Duplicate || w.result.CorrelationID == "" {
		stored, err := w.c.Get(ctx, w.result.Offset)
		if err != nil {
			return fmt.Errorf("client: call %s: it repeats %d: %w", w.kind, w.result.Offset, err)
		}
		first = &stored
		w.result.CorrelationID, w.began = first.CorrelationID, first.AppendedAt
	}
	w.nameRuns(first.Payload)
	if w.result.CorrelationID == "" && len(w.byFields) == 0 {
		return fmt.Errorf("client: call %s: it repeats %d, which has no correlation id that its outcome could be "+
			"found by: use another dedup id, or NoDedup, to start a run", w.kind, w.result.Offset)
	}
	return nil
}

// nameRuns keeps the flows whose fields are in the payload of the event.
func (w *waiter) nameRuns(payload []byte) {
	var flows []event.Flow
	for i := range w.byFields {
		flows = append(flows, w.byFields[i].flow)
	}

	// One reader for the fields of all flows, also for the events that are read later.
	w.fields = event.NewFieldReader(flows...)
	fields := w.fields.Read(payload)
	for i := range w.byFields {
		w.byFields[i].id = flows[i].RunIn(fields)
	}
	w.byFields = slices.DeleteFunc(w.byFields, func(r namedRun) bool { return r.id == "" })
}

// run says which run is waited for.
func (w *waiter) run() string {
	var ids []string
	for _, r := range w.byFields {
		ids = append(ids, r.id)
	}
	return strings.Join(append(ids, w.result.CorrelationID), " or ")
}

// wait reads the log until the outcome is there.
func (w *waiter) wait(ctx context.Context) error {
	next := w.result.Offset + 1
	filter := event.Filter{Types: slices.Concat(w.replies, w.failures, []string{string(event.HandlerFailed)})}
	// No index leads to payload fields: of a run that these name, all events of the types are read.
	if len(w.byFields) == 0 {
		filter.CorrelationIDs = []string{w.result.CorrelationID}
	}
	for {
		// read moves next on, so that a tail that has failed is continued where it was.
		err := w.read(ctx, filter, &next)
		failure, ok := errors.AsType[*calls.Error](err)
		switch {
		case err == nil && w.result.Reply.Offset > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("client: call %s: event %d, run %s: none of %s in time: %w", w.kind, w.result.Offset,
				w.run(), strings.Join(slices.Concat(w.replies, w.failures), ", "), context.Cause(ctx))
		case errors.Is(err, ErrClosed) || (err != nil && (!ok || failure.Answer)):
			return fmt.Errorf("client: call %s: while waiting for the reply to %d: %w", w.kind, w.result.Offset, err)
		}
		// No node has answered for Config.Timeout: the event is in the log, and the wait continues.
	}
}

// read follows the log from next on until it has the outcome.
func (w *waiter) read(ctx context.Context, filter event.Filter, next *uint64) error {
	for ev, err := range w.c.Tail(ctx, TailOptions{From: FromOffset(*next), Filter: filter}) {
		if err != nil {
			return err
		}
		*next = ev.Offset + 1
		if w.isOutcome(&ev) {
			// The payload shares a buffer with others.
			ev.Payload = slices.Clone(ev.Payload)
			w.result.Reply, w.result.Duration = ev, max(ev.AppendedAt.Sub(w.began), 0)
			return nil
		}
	}
	return nil
}

// inRun reports whether an event of a type that is waited for is of the run.
func (w *waiter) inRun(ev *event.Event) bool {
	fields, elsewhere := w.fields.Read(ev.Payload), false
	for i := range w.byFields {
		// One flow in which both are of the same run is enough.
		id := w.byFields[i].flow.RunIn(fields)
		if id == w.byFields[i].id {
			return true
		}
		elsewhere = elsewhere || id != ""
	}
	// Without the fields it is of the run that its correlation id or its cause says.
	related := (ev.CorrelationID != "" && ev.CorrelationID == w.result.CorrelationID) ||
		ev.CausationID == strconv.FormatUint(w.result.Offset, 10)
	return related && !elsewhere
}

// isOutcome decides an event: success or failure of the run, or neither.
func (w *waiter) isOutcome(ev *event.Event) bool {
	var said struct {
		Success *bool  `json:"success"`
		Error   string `json:"error"`
		Reason  string `json:"reason"`
		Message string `json:"message"`
		Answer  bool   `json:"answer"`
		Offset  uint64 `json:"offset"`
	}
	// The fields are the publisher's own: one of another kind says nothing, and the others are read.
	_ = json.Unmarshal(ev.Payload, &said)

	// An event of a type that is asked for has to be of the run. A HANDLER_FAILED beside these has to answer the event
	// itself.
	asked := slices.Contains(w.replies, string(ev.Type)) || slices.Contains(w.failures, string(ev.Type))
	if asked {
		if !w.inRun(ev) {
			return false
		}
	} else if !said.Answer || said.Offset != w.result.Offset {
		return false
	}
	w.result.Success = slices.Contains(w.replies, string(ev.Type)) && (said.Success == nil || *said.Success)
	if !w.result.Success {
		w.result.Error = cmp.Or(said.Error, said.Reason, said.Message, string(ev.Type))
	}
	return true
}
