package client

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client/internal/calls"
)

// Sentinels for errors.Is.
var (
	// ErrOutcomeUnknown says that a request was sent, that no node could report its
	// outcome, and that it may have happened, at most once.
	ErrOutcomeUnknown = calls.ErrOutcomeUnknown
	// ErrClosed says that the client, the cursor or the group's member was closed.
	ErrClosed = calls.ErrClosed
	// ErrNotHeld says that a member of a group does not hold an event: it was not handed
	// out, it is settled, or the group took it back because its ack deadline has passed.
	ErrNotHeld = errors.New("the member does not hold the event")
	// ErrUnreachable says that no endpoint answered at all.
	ErrUnreachable = calls.ErrUnreachable
)

// GapError reports events that are no longer available. Reading continues after them.
type GapError struct{ Gap Gap }

// Gap is a range of offsets that was trimmed before it was read.
type Gap = api.Gap

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("client: offsets %d to %d are missing: %s", e.Gap.From, e.Gap.To, e.Gap.Reason)
}

// WhereError reports the first event for which TailOptions.Where could not be evaluated, such as one without the field
// that it names. It is passed over, and so are all others of the kind, without another error.
type WhereError struct {
	Offset uint64
	Err    error
}

// Error implements error.
func (e *WhereError) Error() string {
	return fmt.Sprintf("client: the condition could not be evaluated for event %d: %v", e.Offset, e.Err)
}

// Unwrap implements errors.Unwrap.
func (e *WhereError) Unwrap() error { return e.Err }

// RefusedError lists the acks and nacks of a group's member that came too late: the group
// had taken the events back, and they are handled again.
type RefusedError struct {
	Group   string
	Offsets []uint64 // at most 4096 of them
	More    uint64   // how many others
}

// Error implements error.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("client: group %s: %d acks and nacks came too late, the first of offset %d",
		e.Group, uint64(len(e.Offsets))+e.More, e.Offsets[0]) +
		": raise ack_wait, or call Progress, if handling takes that long"
}
