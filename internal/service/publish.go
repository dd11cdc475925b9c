package service

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
)

// PublishRequest is the events of one request, or a packet of them. Producer is
// empty where the caller gave none.
type PublishRequest struct {
	// Events are what to publish, as decoded; Publish normalizes them in place. None beside a Packet.
	Events []event.Event
	// Packet is the events as a client has encoded them; nil if Events has them.
	Packet *frame.Packet
	// Producer and Sequence identify the request, so that a retry gets the same answer; both or neither are set. The
	// first sequence number of a producer is 1.
	Producer string
	Sequence uint64
	// Lease is that of a role without which nothing may be appended; its Role is empty where the caller named none.
	Lease frame.RoleLease
	Alone bool // one event that was not sent as a list: errors name no row
	// Reserve makes room for bytes that a packet decodes to, before they are.
	Reserve func(bytes int64) error

	allowed *event.Matcher // the types that the caller may publish; nil is all
	source  string         // see boundSource
}

// Published answers a publish: the state machine's result, and what follows from the caller's own events.
type Published struct {
	fsm.Result
	Hashes   []event.Hash  // one for each event; none for a packet
	Warnings []RowWarnings // in the order of their rows
}

// RowWarnings are the warnings of one event.
type RowWarnings struct {
	Row  int
	List []event.Warning // shared by rows with the same warnings
}

// A publish becomes a batch in one of three ways:
//
//	events, decoded       each is normalized, hashed and added to a new batch
//	a packet, first pass  its rows are checked in parallel; if the gate changes none, its body goes into the log as it is
//	a packet, second pass if the gate changes one, all rows are normalized and encoded again
//
// In each way the gate sees every event, so that what a client packed is checked like what it sent as JSON.

// Publish checks, normalises and hashes the events and appends all of them or none.
// It changes req.Events, and policy is what they were decoded with.
func (l *Log) Publish(ctx context.Context, policy *event.Policy, req PublishRequest) (Published, error) {
	// What is wrong with the request as a whole is refused before any event is looked at.
	if err := checkPublish(policy.Limits, &req); err != nil {
		return Published{}, err
	}
	if err := checkLease(req.Lease); err != nil {
		return Published{}, err
	}
	caller := access.Of(ctx)
	req.allowed, req.source = caller.Matcher(policy.Catalogue), l.boundSource(ctx)
	answer, batch, err := req.makeBatch(policy)
	if err != nil {
		return Published{}, err
	}
	// The state machine decides about duplicates, and about a sequence number that it knows already.
	command := frame.Publish{Producer: req.Producer, Sequence: req.Sequence, Count: batch.Len(),
		Lease: req.Lease}
	// ctx bounds the wait. What was proposed may still be decided after it.
	result, err := l.Propose(ctx, frame.Request{Command: command, Batch: batch})
	// A dedup id that was sent with other content is the fault of one event, which the error names.
	if refusal, ok := errors.AsType[*fsm.Refusal](err); ok && refusal.Code == fsm.Conflict && refusal.Field == "dedup_id" {
		return Published{}, req.errorOfRow(refusal.Row, withoutOffset(caller, refusal))
	}
	if err != nil && ToAPI(err).Code == api.OutcomeUnknown {
		return Published{}, req.outcomeUnknown(err)
	}
	// The events of a retry were appended when it was first sent.
	// First is 0 where everything was a duplicate.
	if err == nil && result.Replayed && result.First != 0 {
		result.Time = l.storedTime(ctx, result.First, result.Time)
	}
	// Only callers that may read learn the offset of the earlier event.
	if !caller.May(access.Subscribe) {
		result.Duplicates = slices.Clone(result.Duplicates)
		for i := range result.Duplicates {
			result.Duplicates[i].Offset = 0
		}
	}
	// Hashes and warnings are of this call's events, also where the result is an earlier one's.
	answer.Result = result
	return answer, err
}

// withoutOffset is the refusal of an event that repeats another one, without where that is if the caller reads nothing.
func withoutOffset(caller *access.Principal, r *fsm.Refusal) error {
	if caller.May(access.Subscribe) {
		return r
	}
	hidden := *r
	hidden.Offset, hidden.Message = 0, "the dedup_id was used for an event with other content"
	return &hidden
}

// outcomeUnknown adds to an error of that code how the request can be repeated.
func (r *PublishRequest) outcomeUnknown(err error) error {
	unknown := *ToAPI(err)
	unknown.Remedy = "repeat it with the same producer and sequence: what was appended is not appended again"
	if r.Producer == "" {
		unknown.Remedy = "repeat it within its dedup window: what was appended is a duplicate then, unless its dedup " +
			"is off; a request with a producer and a sequence can always be repeated"
	}
	return &unknown
}

// storedTime returns when an event was appended. It waits until this node has the event, and
// returns fallback for one that is trimmed.
func (l *Log) storedTime(ctx context.Context, offset uint64, fallback time.Time) time.Time {
	stored := l.Machine().Log()
	// A retry may reach a node that has not applied the first request yet.
	if _, err := waitLog(ctx, stored, offset); err != nil {
		return fallback
	}
	// Columns are cached and hold no payloads, so this is cheaper than reading the event.
	columns, err := stored.Columns(offset)
	if err != nil {
		return fallback
	}
	return columns.AppendedAt
}

// AppendedAt returns a function that says when an event of a publish was appended. A duplicate has the time of the
// event it duplicates, or where this node does not have that one, the time of the publish.
func (l *Log) AppendedAt(a *Published) func(fsm.Placement) time.Time {
	var block *log.Columns // of the duplicate before, most often the next one's too
	return func(p fsm.Placement) time.Time {
		// An event of this publish, or a duplicate of one before it in the same publish.
		if !p.Duplicate || (a.First != 0 && p.Offset >= a.First) {
			return a.Time
		}
		if block == nil || p.Offset < block.First || p.Offset > block.Last() {
			// Duplicates come in runs, so one block often answers for many of them.
			found, err := l.Machine().Log().Columns(p.Offset)
			if err != nil {
				return a.Time
			}
			block = found
		}
		return block.AppendedAt
	}
}

// errorOfRow makes err an error about event i, unless the event was not sent in a list.
func (r *PublishRequest) errorOfRow(i int, err error) error {
	if r.Alone {
		return err
	}
	return &rowError{i, err}
}

// checkPublish refuses a publish for what is wrong with it as a whole, before its events are looked at.
func checkPublish(limits event.Limits, req *PublishRequest) error {
	switch {
	case req.Rows() == 0:
		return api.Refuse(api.InvalidArgument, "events", "no event was sent", "send at least one")
	case req.Rows() > limits.RequestEvents:
		return CheckCount(limits, req.Rows())
	// Producer and sequence go together: without either there is nothing to recognize a retry by.
	case req.Producer == "" && req.Sequence != 0:
		return api.Refuse(api.InvalidArgument, "producer", "a sequence without a producer", "send both, or neither")
	case req.Producer != "" && req.Sequence == 0:
		return api.Refuse(api.InvalidArgument, "sequence",
			"a producer without a sequence",
			"send both; a producer's first sequence is 1")
	}
	// "" passes, which is a publish without a producer.
	return api.CheckName("producer", req.Producer, limits.NameBytes)
}

// CheckCount refuses more events than a request may have.
func CheckCount(limits event.Limits, events int) error {
	if events <= limits.RequestEvents {
		return nil
	}
	// The limit is a setting, so the remedy names it.
	return api.Refuse(api.TooLarge, "events",
		fmt.Sprintf("%d events, the limit for a request is %d", events, limits.RequestEvents),
		"send several requests, or raise limits.request_events")
}

// Rows is how many events the request has.
func (r *PublishRequest) Rows() int {
	if r.Packet != nil {
		return r.Packet.Rows
	}
	return len(r.Events)
}

// rowWeight is what a packet's row takes once it is decoded, with its hashes, beside its text.
const rowWeight = int64(unsafe.Sizeof(frame.Row{})) + 32

// makeBatch brings each event into the form in which it is stored and makes a batch.
func (r *PublishRequest) makeBatch(policy *event.Policy) (Published, *frame.Batch, error) {
	if r.Packet != nil {
		// The body claims a size, which decompressing holds it to.
		// Reserve refuses where too much is decoded at the same time.
		if err := r.Reserve(int64(frame.RawSize(r.Packet.Body)) + int64(r.Packet.Rows)*rowWeight +
			2*int64(len(r.Packet.Traces))); err != nil {
			return Published{}, nil, err
		}
		// The memory is reserved, so the packet may be decompressed.
		return r.batchOfPacket(policy)
	}
	answer, batch, gate := Published{Hashes: make([]event.Hash, len(r.Events))}, &frame.Batch{Policies: policy.Dedup},
		policy.Gate()
	defer gate.Close()
	// One gate serves all events of the request, and reuses its memory.
	for i := range r.Events {
		hash, err := r.normalize(gate, i, &r.Events[i], &answer.Warnings)
		if err != nil {
			return Published{}, nil, err
		}
		answer.Hashes[i] = hash
		batch.Add(&r.Events[i], hash)
	}
	return answer, batch, nil
}

// normalize passes one event through the gate, and adds its warnings to found.
func (r *PublishRequest) normalize(
	gate *event.Gate, row int, e *event.Event, found *[]RowWarnings,
) (event.Hash, error) {
	if err := bindSource(r.source, e); err != nil {
		return event.Hash{}, r.errorOfRow(row, err)
	}
	// The event is changed in place into the form in which it is stored.
	hash, warnings, err := gate.Normalize(e)
	if err != nil {
		return hash, r.errorOfRow(row, err)
	}
	// By its type as it is stored, whichever name of it was sent.
	if r.allowed != nil && !r.allowed.MatchType(string(e.Type)) {
		return hash, r.errorOfRow(row, outOfScope("type", "events of the type "+string(e.Type)))
	}
	if len(warnings) > 0 {
		*found = append(*found, RowWarnings{row, warnings})
	}
	return hash, nil
}

// errOtherForm ends the first pass over a packet.
var errOtherForm = errors.New("an event is not in the form in which it is stored")

// batchOfPacket takes the packet's body over where every event in it already has the
// form in which it is stored, and else makes a body of its own.
func (r *PublishRequest) batchOfPacket(policy *event.Policy) (Published, *frame.Batch, error) {
	opened, err := r.openPacket(policy.Limits)
	if err != nil {
		return Published{}, nil, err
	}
	// First pass: the body can go into the log unchanged if no event of it changes.
	whole := r.normalizeParts(policy, opened)
	answer, batch, err := Published{Warnings: whole.warnings}, whole.batch, whole.err
	// One does: every event is encoded again.
	if err == errOtherForm {
		// What the first pass found is of some rows only, and is dropped.
		answer, batch = Published{}, &frame.Batch{Policies: policy.Dedup}
		gate := policy.Gate()
		defer gate.Close()
		// What only the cluster may set is cleared, whatever the client packed.
		err = opened.Each(func(row int, e *event.Event) error {
			e.Original, e.Foreign = "", false
			hash, err := r.normalize(gate, row, e, &answer.Warnings)
			batch.Add(e, hash)
			return err
		})
	}
	if err != nil {
		return Published{}, nil, packetError(err)
	}
	return answer, batch, nil
}

// packetPart is the result of admitting some of a packet's rows.
type packetPart struct {
	// batch and warnings are of the rows up to err, if there is one.
	batch    *frame.Batch
	warnings []RowWarnings
	err      error
	panicked any // what normalizePart panicked with in its goroutine
}

// Bounds of working on a packet with several goroutines.
const (
	partRows  = 24 // rows that are worth a goroutine of their own
	mostParts = 4  // as each reads through the rows before its own
)

// normalizeParts looks at the parts of a packet at the same time, and returns the whole up to the first error.
func (r *PublishRequest) normalizeParts(policy *event.Policy, opened *frame.Opened) packetPart {
	// A small packet is not worth a second goroutine.
	n := 1
	if opened.Rows() >= 2*partRows {
		n = min(opened.Rows()/partRows, mostParts, runtime.GOMAXPROCS(0))
	}
	parts := make([]packetPart, n)
	// The parts differ by one row at most.
	begins := func(i int) int { return opened.Rows() * i / n }
	var others sync.WaitGroup
	defer others.Wait() // also after a panic: they read the request
	for i := range parts[1:] {
		others.Go(func() {
			// A panic in a goroutine of its own would end the program.
			defer func() { parts[i+1].panicked = recover() }()
			parts[i+1] = r.normalizePart(policy, opened, begins(i+1), begins(i+2))
		})
	}
	// This goroutine works as well, on the first part.
	parts[0] = r.normalizePart(policy, opened, 0, begins(1))
	others.Wait()
	whole := parts[0]
	for _, part := range parts[1:] {
		if part.panicked != nil {
			panic(part.panicked) // to the goroutine that answers the request
		}
		// After an error the parts that follow do not count, as if the rows had been checked in turn.
		if whole.err == nil {
			whole.batch.Join(part.batch)
			whole.warnings = append(whole.warnings, part.warnings...)
			whole.err = part.err
		}
	}
	return whole
}

// normalizePart is the gate for the rows [from, to).
func (r *PublishRequest) normalizePart(policy *event.Policy, opened *frame.Opened, from, to int) packetPart {
	room := to - from
	if from == 0 {
		room = opened.Rows() // the others join
	}
	part, gate := packetPart{batch: opened.Batch(room)}, policy.Gate()
	defer gate.Close()
	part.batch.Policies = policy.Dedup
	part.err = opened.Range(from, to, func(row int, e *event.Event) error {
		// It shares the payload with e, so SameForm sees whether that was replaced.
		sent := *e
		e.Original, e.Foreign = "", false // the cluster's to say
		hash, err := r.normalize(gate, row, e, &part.warnings)
		if err == nil && !e.SameForm(&sent) {
			err = errOtherForm
		}
		// Keep takes the row over as it is encoded.
		part.batch.Keep(e, hash)
		return err
	})
	return part
}

// openPacket decompresses the packet, which may take as much as a request.
func (r *PublishRequest) openPacket(limits event.Limits) (*frame.Opened, error) {
	limit := limits.RequestBytes
	if r.Packet.Rows == 1 { // its own limit follows, in canonical form
		limit = min(max(limit, 2*limits.EventBytes), frame.MaxBlockBytes)
	}
	// Open checks the form of the body, and that it is no larger than it says.
	opened, err := r.Packet.Open(limit)
	if errors.Is(err, frame.ErrTooLarge) {
		return nil, api.RequestTooLarge(limit)
	}
	return opened, packetError(err)
}

// packetError names what is wrong with a packet's bytes; other errors stay.
func packetError(err error) error {
	// Both mean that the bytes are not a packet of a version that this node knows.
	if errors.Is(err, frame.ErrCorrupt) || errors.Is(err, frame.ErrUnsupported) {
		return api.Refuse(api.InvalidArgument, "packet", err.Error(),
			"send events instead of a packet, or run the same version on both sides")
	}
	return err
}
