package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/incident"
)

// rowError is an error about one event of a request. The publish of a batch returns it for an event that is
// refused.
type rowError struct {
	row int   // of the event in the request, from 0
	err error // of that event
}

// Error implements error. A caller gets the row as part of the field instead.
func (e *rowError) Error() string { return fmt.Sprintf("event %d: %v", e.row, e.err) }
func (e *rowError) Unwrap() error { return e.err }

// ErrStopping ends streams when the server closes.
var ErrStopping = errors.New("the server is stopping")

// An error is translated by the first of these that fits:
//
//	*rowError       what it wraps, with the row in front of the field
//	*api.Error      as it is
//	*fsm.Refusal    by its code
//	*event.Error    by its reason
//	log, fsm        trimmed, past the tail, no such hash or letter
//	nodeErrors      by errors.Is, the more specific first
//	memberErrors    refused changes of members
//	contexts        Timeout
//	anything else   Internal, which is a fault of this node and logged

// ToAPI returns any error of the packages below in the form that callers get.
func ToAPI(err error) *api.Error {
	// The error of one event names the event's place in the request.
	if row, ok := errors.AsType[*rowError](err); ok {
		e := *ToAPI(row.err)
		e.Field = strings.TrimSuffix(fmt.Sprintf("events[%d].%s", row.row, e.Field), ".")
		return &e
	}
	// An error in the API's form stays as it is. An internal one does not where it hides that the outcome is unknown.
	own, ok := errors.AsType[*api.Error](err)
	hidesOutcome := ok && own.Code == api.Internal && errors.Is(err, raftnode.ErrOutcomeUnknown)
	if ok && !hidesOutcome {
		return own
	}
	// What the state machine refused, and what package event found wrong in the input.
	if refusal, ok := errors.AsType[*fsm.Refusal](err); ok {
		return fromRefusal(refusal)
	}
	if input, ok := errors.AsType[*event.Error](err); ok {
		return fromInput(input)
	}
	return fromBelow(err)
}

// fromBelow translates what the log and the state machine do not have; fromNode does the rest.
func fromBelow(err error) *api.Error {
	// The first two name the offsets that the answer shows.
	if trimmed, ok := errors.AsType[*log.TrimmedError](err); ok {
		return &api.Error{
			Code:    api.Trimmed,
			Field:   "offset",
			Offset:  trimmed.First,
			Message: fmt.Sprintf("offset %d is trimmed; the first kept is %d", trimmed.Offset, trimmed.First),
			Remedy:  "read from start, or from the first offset that is kept",
		}
	}
	if ahead, ok := errors.AsType[*log.PastTailError](err); ok {
		return api.BeyondTail("offset", ahead.Offset, ahead.Tail,
			"ask for an offset up to the tail, or again when more was appended")
	}
	// The others are sentinels.
	switch {
	case errors.Is(err, fsm.ErrUnknownHash):
		return api.Refuse(api.NotFound, "hash",
			"no event that is kept has that content hash",
			"check the 64 hex digits; the event may be trimmed")
	case errors.Is(err, fsm.ErrNoLetter):
		return api.Refuse(api.NotFound, "id", fsm.ErrNoLetter.Error(), "list them: GET /v1/dlq?limit=100, or ringlog dlq ls")
	}
	return fromNode(err)
}

// nodeError is an error of the node, and what a caller gets for it.
type nodeError struct {
	is      error // a sentinel of a package below
	code    api.Code
	message string // that of the sentinel may say more
	remedy  string
}

// nodeErrors are the node's errors, the more specific ones first: an unknown outcome may also wrap the reason that
// made it so.
var nodeErrors = []nodeError{
	{
		raftnode.ErrFeatureLevel,
		api.Unavailable,
		raftnode.ErrFeatureLevel.Error(),
		"run this version on all nodes first: GET /v1/members, or ringlog cluster members, shows theirs",
	},
	{
		raftnode.ErrOutcomeUnknown, api.OutcomeUnknown, "it may or may not have happened",
		"look whether it has happened, or repeat it",
	},
	{
		// Nothing was proposed: a retry is safe.
		raftnode.ErrNoQuorum, api.NoQuorum, "too few voters can be reached to decide anything",
		"bring voters back: GET /v1/cluster/outage, or ringlog cluster outage, shows what each node sees; a retry is safe",
	},
	{
		raftnode.ErrNoLeader, api.NoLeader, "nobody leads the cluster at the moment",
		"retry in a second; nothing was appended",
	},
	{raftnode.ErrNotLeader, api.NoLeader, "this node does not lead", "ask the leader, or retry in a second"},
	{
		raftnode.ErrOverloaded, api.Overloaded, "too many requests are waiting",
		"retry later, with fewer at the same time or larger batches",
	},
	{
		// Only appends are refused, so what frees space still works.
		raftnode.ErrDiskFull, api.DiskFull, "the disk is nearly full: appends are refused",
		"free space, or trim the log: POST /v1/compact, or ringlog compact; commits and trims still work",
	},
	{raftnode.ErrTooLarge, api.TooLarge, "the request is too large", "send fewer events in one request"},
	{
		// The node serves nobody until its folder is replaced.
		raftnode.ErrDiverged, api.Unavailable,
		"this node's state differs from the majority's, it serves nobody",
		"ask another node; remove this one, empty its data folder and let it join again",
	},
	// Three errors for one reason: node, server or state machine is closed.
	{raftnode.ErrClosed, api.Unavailable, "this node is stopping", "ask another node"},
	{ErrStopping, api.Unavailable, "this node is stopping", "ask another node"},
	{fsm.ErrClosed, api.Unavailable, "this node is stopping", "ask another node"},
}

// fromNode translates the errors of the node, of its members and of contexts; any other error is internal. It never
// returns nil.
func fromNode(err error) *api.Error {
	// A cluster that has not formed yet has no leader either, but waiting is no remedy.
	if forming, ok := errors.AsType[*raftnode.NotFormedError](err); ok {
		return &api.Error{Code: api.NoLeader, Reason: api.ReasonNotFormed, Message: forming.Error(),
			Remedy: "start the nodes that are missing, each with this node's cluster token and --bootstrap-expect, and " +
				"with --join URLs of the others"}
	}
	// Forwarding errors are found by their code, and most nodes without a leader were not removed: so it has no row.
	if errors.Is(err, raftnode.ErrRemovedNode) {
		return &api.Error{Code: api.NoLeader, Reason: api.ReasonRemoved,
			Message: "this node was removed from the cluster; nothing was appended",
			Remedy: "ask another node; to admit this one again: POST /v1/members there, or ringlog cluster add URL; " +
				"or start it with an empty data folder and --join"}
	}
	for _, known := range nodeErrors {
		if errors.Is(err, known.is) {
			e := &api.Error{Code: known.code, Message: known.message, Remedy: known.remedy}
			if known.is == raftnode.ErrFeatureLevel {
				e.Reason, e.Field = api.ReasonFeatureLevel, "feature_level"
			}
			// The error may add details to the fixed message.
			if text := err.Error(); text != known.is.Error() {
				e.Message += " (" + text + ")"
			}
			return e
		}
	}
	// Changes of members have errors of their own.
	if e := fromMembership(err); e != nil {
		return e
	}
	if gone, ok := errors.AsType[*incident.NotKeptError](err); ok {
		return &api.Error{Code: api.Trimmed, Reason: api.ReasonNotKept, Field: "from", Offset: gone.Offset,
			Message: gone.Error(), Remedy: "ask for from=start, which is the oldest that is kept, or ask another node"}
	}
	// An outcome that is unknown because the time was up was found above, so here nothing was proposed.
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, ErrStreamTime) {
		return api.Refuse(api.Timeout, "timeout",
			"the time for the request was up before anything was proposed",
			"retry, or give it more time")
	}
	return &api.Error{Code: api.Internal, Message: err.Error(), Remedy: "see the node's own log"}
}

// memberErrors are why a change of members is refused, or any change of an incident. Another node recognizes them by
// their reason.
var memberErrors = []struct {
	is                    error
	code                  api.Code
	reason, field, remedy string
}{
	// Who the node is.
	{raftnode.ErrUnknownMember, api.NotFound, "", "id", "list them: GET /v1/members, or ringlog cluster members"},
	{
		raftnode.ErrForeignFolder, api.Conflict, api.ReasonForeignFolder, "cluster_id",
		"start the node with an empty data folder, after DELETE /v1/members/ID, or ringlog cluster remove ID, if the " +
			"cluster lists its id",
	},
	{
		raftnode.ErrOtherIncarnation, api.Conflict, api.ReasonOtherIncarnation, "id",
		"remove it if its folder is lost: DELETE /v1/members/ID, or ringlog cluster remove ID; else start this node " +
			"with another --id",
	},
	{
		raftnode.ErrDuplicateAddress, api.Conflict, api.ReasonDuplicateAddress, "raft",
		"give each node an address of its own",
	},
	{raftnode.ErrLastVoter, api.Conflict, api.ReasonLastVoter, "id", "add another voter first"},
	{
		raftnode.ErrBreaksQuorum, api.Conflict, api.ReasonBreaksQuorum, "id",
		"bring the voters back that do not answer, or remove those first: GET /v1/cluster, or ringlog cluster status",
	},
	{
		raftnode.ErrNotVoter, api.Conflict, api.ReasonNotVoter, "to",
		"name a voter, or promote it first: POST /v1/members/ID/promote, or ringlog cluster promote ID",
	},
	{raftnode.ErrTooManyVoters, api.Conflict, api.ReasonTooManyVoters, "voter", "add it as a non-voter, or with force"},
	{raftnode.ErrNotCaughtUp, api.Conflict, api.ReasonNotCaughtUp, "id", "wait until it has caught up and try again"},
	{raftnode.ErrTooOld, api.Conflict, api.ReasonTooOld, "feature_level", "start it with the program that the others run"},
	{raftnode.ErrNoTarget, api.Conflict, api.ReasonNoTarget, "to",
		"name another voter, or wait until one has caught up"},
	{raftnode.ErrSealed, api.Forbidden, api.ReasonSealed, "",
		"do it on the cluster, or continue the incident: POST /v1/incident/step, or ringlog incident step"},
}

// fromMembership translates the refusal of a change of members; it returns nil for any other error.
func fromMembership(err error) *api.Error {
	for _, known := range memberErrors {
		if !errors.Is(err, known.is) {
			continue
		}
		e := &api.Error{
			Code:    known.code,
			Reason:  known.reason,
			Field:   known.field,
			Message: known.is.Error(),
			Remedy:  known.remedy,
		}
		// These errors name the voters.
		switch known.is {
		case raftnode.ErrBreaksQuorum, raftnode.ErrNotVoter, raftnode.ErrNoTarget:
			e.Message = err.Error()
		}
		return e
	}
	return nil
}

// fromRefusal translates a refusal of the state machine. Codes that callers do not know become internal.
func fromRefusal(r *fsm.Refusal) *api.Error {
	// The state machine's own sentences are shown as they are.
	e := &api.Error{
		Code:    api.Internal,
		Reason:  r.Reason,
		Message: r.Message,
		Field:   r.Field,
		Remedy:  r.Remedy,
		Offset:  cmp.Or(r.Offset, r.Expected),
	}
	// Codes that are the same on both sides are passed on.
	switch r.Code {
	case fsm.Invalid:
		e.Code = api.InvalidArgument
	case fsm.Conflict, fsm.PastTail, fsm.Fenced, fsm.NotFound, fsm.Exists, fsm.OutOfSequence, fsm.UnknownProducer,
		fsm.Overloaded:
		e.Code = api.Code(r.Code)
	}
	return e
}

// fromInput translates what package event found wrong in what a caller sent.
func fromInput(in *event.Error) *api.Error {
	// The reason decides the code, and the remedy where the error has none of its own.
	code, remedy := inputCode(in.Reason)
	e := &api.Error{
		Code:    code,
		Reason:  in.Reason,
		Message: cmp.Or(in.Message, in.Reason),
		Field:   cmp.Or(in.Field, "body"),
		Remedy:  cmp.Or(in.Remedy, remedy),
	}
	// The position is in the text as it was sent.
	if in.Position >= 0 {
		e.Message += fmt.Sprintf(" (at byte %d)", in.Position)
	}
	return e
}

// inputCode returns the code of a reason, and the remedy for an error that has none of its own.
func inputCode(reason string) (code api.Code, remedy string) {
	// A remedy that the error itself has wins over these.
	switch reason {
	case event.ReasonEmpty:
		return api.InvalidJSON, "send an event object, an array of them, or NDJSON"
	case event.ReasonInvalidJSON:
		return api.InvalidJSON, "send well-formed JSON; the position is where it stops making sense"
	case event.ReasonDuplicateKey:
		return api.InvalidJSON, "send each key once"
	case event.ReasonUnknownKey:
		return api.InvalidJSON, "leave it out"
	case event.ReasonTooDeep:
		return api.InvalidJSON, "flatten it; the setting is limits.depth"
	case event.ReasonTrailingBytes:
		return api.InvalidJSON, "send one JSON value, or one a line with Content-Type: application/x-ndjson"
	case event.ReasonInvalidUTF8:
		return api.InvalidJSON, "encode text as UTF-8"
	case event.ReasonLoneSurrogate:
		return api.InvalidJSON, "send both halves of the pair, or the character itself"
	case event.ReasonNotANumber:
		return api.InvalidJSON, "send null or a string"
	// The JSON is sound, and not what the event needs.
	case event.ReasonInvalidPayload:
		return api.InvalidArgument, `send an object: {"value": …}`
	case event.ReasonTooLarge:
		return api.TooLarge, "send less, or raise the setting limits.event_bytes or limits.name_bytes"
	case event.ReasonUnknownType:
		return api.UnknownType, "list the types: GET /v1/catalogue, or ringlog catalogue ls"
	case event.ReasonReservedType:
		return api.Reserved, "choose another type"
	default:
		return api.InvalidArgument, "send what the message asks for"
	}
}

// NodeError returns the node's error that ToAPI made e of, perhaps on another node; nil if there is none. It is for a
// follower: it acts on the leader's answer as on an error of its own.
func NodeError(e *api.Error) error {
	// A reason identifies one error, while a code is shared by several.
	for _, known := range memberErrors {
		if known.reason != "" && known.reason == e.Reason {
			return known.is
		}
	}
	if e.Reason == api.ReasonFeatureLevel {
		return raftnode.ErrFeatureLevel
	}
	// The first error that has the code is returned, except for Unavailable, whose first one is ErrFeatureLevel:
	// that was found by its reason.
	code := e.Code
	for _, known := range nodeErrors {
		if known.code == code && code != api.Unavailable {
			return known.is
		}
	}
	if code == api.Unavailable {
		return raftnode.ErrClosed
	}
	return nil
}
