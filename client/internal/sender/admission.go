package sender

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// A node checks every payload. A payload that it refuses, or has to change, costs the others of
// the same request: they are sent again, or packed again. So events are checked here as well,
// but not each of them, as checking a payload costs more than the rest of sending it.
const (
	largePayload = 16 << 10 // such a payload is always checked
	sampleEvery  = 61       // few callers repeat themselves every 61 events
	firstOfBatch = 4        // that many of a batch are always checked
	suspectFor   = 1024     // payloads that are all checked after one that was not in the stored form
)

// sampler chooses the payloads of single events that are checked before they are sent.
// Its zero value is ready, and several goroutines may use it.
type sampler struct {
	seen  atomic.Uint64
	until atomic.Uint64 // all are checked up to this one
}

// picks reports whether the payload of the next single event is to be checked.
func (s *sampler) picks(payload json.RawMessage) bool {
	// The count begins with 1, so the first one is checked.
	seen := s.seen.Add(1)
	return seen%sampleEvery == 1 || seen <= s.until.Load() || alwaysChecked(payload)
}

// checkMore has the next payloads all checked.
func (s *sampler) checkMore() { s.until.Store(s.seen.Load() + suspectFor) }

// alwaysChecked reports whether a payload is checked wherever it comes: an empty one is to be
// filled in, and a large one costs much if it is refused later.
func alwaysChecked(payload json.RawMessage) bool {
	return len(payload) == 0 || len(payload) > largePayload
}

// admitOne makes ev the event of p.
func (s *Sender) admitOne(p *Item, ev *event.Event) error {
	p.Events, p.Outcomes = p.single.events[:], p.single.outcomes[:]
	gate := s.cfg.Policy.Gate()
	defer gate.Close()
	// CheckEnvelope checks everything but the payload.
	check := gate.CheckEnvelope
	if s.samples.picks(ev.Payload) {
		check = gate.Check
	}
	err := admitEvent(check, &p.Events[0], ev)
	if err != nil {
		err = invalidEvent(p.op, err)
	}

	// A producer whose payload is not in the stored form probably has more of them.
	p.bytes = WireBytes(&p.Events[0])
	if err != nil || (len(ev.Payload) > 0 && changed(&p.Events[0], ev)) {
		s.samples.checkMore()
	}
	return err
}

// changed reports whether checking has changed what a node would have had to change.
func changed(checked, ev *event.Event) bool {
	// A payload that has to change is put into a new slice: the same address means the same bytes.
	return checked.CorrelationID != ev.CorrelationID ||
		unsafe.SliceData(checked.Payload) != unsafe.SliceData(ev.Payload)
}

// admitBatch takes events into p as they are, if the form of those it checks is the stored
// one. Else it checks all and changes copies.
func (s *Sender) admitBatch(p *Item, events []event.Event) error {
	if len(events) == 0 {
		return fmt.Errorf("client: %s: %w", p.op, &api.Error{Code: api.InvalidArgument, Field: "events",
			Message: "a request without events", Remedy: "send at least one"})
	}
	p.Events, p.Outcomes = events, make([]Outcome, len(events))
	gate := s.cfg.Policy.Gate()
	defer gate.Close()
	// One for all events, so the loop allocates nothing.
	var checked event.Event
	for i := range events {
		ev, check := &events[i], gate.CheckEnvelope
		if i < firstOfBatch || i%sampleEvery == 0 || alwaysChecked(ev.Payload) {
			check = gate.Check
		}

		// A copy is checked, so the caller's events stay as they are.
		checked = *ev
		if err := check(&checked); err != nil {
			return invalidEvent(p.op, atIndex(err, i))
		}
		// With an alias, the value is the node's to fill in.
		if changed(&checked, ev) || (checked.Type == ev.Type && checked.Value != ev.Value) {
			return s.admitCopies(gate, p, events)
		}
		p.bytes += WireBytes(ev)
	}
	return nil
}

// admitCopies checks all events and puts them into p in the stored form, as copies.
func (s *Sender) admitCopies(gate *event.Gate, p *Item, events []event.Event) error {
	// bytes begins at 0 again: admitBatch has counted some events.
	p.Events, p.bytes = make([]event.Event, len(events)), 0
	for i := range events {
		if err := admitEvent(gate.Check, &p.Events[i], &events[i]); err != nil {
			return invalidEvent(p.op, atIndex(err, i))
		}
		p.bytes += WireBytes(&p.Events[i])
	}
	return nil
}

// admitEvent makes e what ev's caller made, but for what a node would change: the payload is
// canonical, and what follows from it and from the type is filled in. The type stays, so a
// node can warn of an alias.
func admitEvent(check func(*event.Event) error, e, ev *event.Event) error {
	*e = *ev
	if err := check(e); err != nil {
		return err
	}

	// The check has also made changes that are for the node to make. Only those that a node
	// could not distinguish from the caller's own are kept.
	payload, correlation, value := e.Payload, e.CorrelationID, e.Value
	if e.Type != ev.Type {
		value = ev.Value
	}
	*e = *ev
	e.Payload, e.CorrelationID, e.Value = payload, correlation, value
	return nil
}

// refuses reports whether no node can have taken these events, nor ever will.
func (s *Sender) refuses(group []*Item) bool {
	// It runs after a refusal, so each event may be checked in full.
	for _, p := range group {
		for _, ev := range p.Events {
			if s.cfg.Policy.Check(&ev) != nil {
				return true
			}
		}
	}
	return false
}

// WireBytes is about what an event takes in a request.
func WireBytes(ev *event.Event) int {
	const overhead = 32 // lengths, time
	return overhead + len(ev.Type) + len(ev.Value) + len(ev.Payload) + len(ev.Source) + len(ev.Key) + len(ev.DedupID) +
		len(ev.CorrelationID) + len(ev.CausationID) + len(ev.Original)
}

// invalidError is input refused before it was sent, in the form a node would refuse it.
// errors.As finds both: the answer as a node would give it, and the error with the reason.
type invalidError struct {
	answer *api.Error
	cause  *event.Error
}

// Error implements error.
func (e *invalidError) Error() string { return e.answer.Error() }

// Unwrap implements errors.Unwrap.
func (e *invalidError) Unwrap() []error { return []error{e.answer, e.cause} }

// invalidEvent returns a refusal of the gate as the answer that a node would give.
func invalidEvent(op string, err error) error {
	cause, ok := errors.AsType[*event.Error](err)
	// The gate itself failed; the event may be right.
	if !ok {
		return fmt.Errorf("client: %s: %w", op, err)
	}

	// Of all reasons, those that say the payload is no JSON have a code of their own.
	code := api.InvalidArgument
	switch cause.Reason {
	case event.ReasonInvalidJSON, event.ReasonDuplicateKey, event.ReasonTrailingBytes, event.ReasonInvalidUTF8,
		event.ReasonLoneSurrogate, event.ReasonNotANumber, event.ReasonTooDeep:
		code = api.InvalidJSON
	}
	answer := &api.Error{Code: code, Reason: cause.Reason, Message: cause.Message, Field: cause.Field,
		Remedy: cause.Remedy}
	return fmt.Errorf("client: %s: %w", op, &invalidError{answer, cause})
}

// atIndex names the event of a batch that an error is about.
func atIndex(err error, index int) error {
	e, ok := errors.AsType[*event.Error](err)
	if !ok {
		return err
	}
	named := *e
	// Without a field of its own the event is the field, and ends without a point.
	named.Field = strings.TrimSuffix(fmt.Sprintf("events[%d].%s", index, e.Field), ".")
	return &named
}
