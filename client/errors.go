package client

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// Sentinels for errors.Is.
var (
	// ErrOutcomeUnknown says that a request was sent, that no node could tell what
	// became of it, and that it may have happened, at most once.
	ErrOutcomeUnknown = calls.ErrOutcomeUnknown
	// ErrClosed says that the client, the cursor or the group's member was closed.
	ErrClosed = calls.ErrClosed
	// ErrNotHeld says that a member of a group does not hold an event: it was not handed
	// out, it is settled, or the group took it back because its time to settle was over.
	ErrNotHeld = errors.New("the member does not hold the event")
	// ErrUnreachable says that no endpoint answered at all.
	ErrUnreachable = calls.ErrUnreachable
)

// GapError tells a reader what it can not get any more. Reading goes on behind it.
type GapError struct{ Gap Gap }

// Gap is a range of offsets that was trimmed before it was read.
type Gap struct {
	From      uint64            `json:"from"`
	To        uint64            `json:"to"` // the last offset missing
	Reason    string            `json:"reason"`
	Types     map[string]uint64 `json:"types,omitempty"`     // how many of each type the reader's filter would have passed
	Uncounted uint64            `json:"uncounted,omitempty"` // events too many to look at
}

// Error implements error.
func (e *GapError) Error() string {
	return fmt.Sprintf("client: offsets %d to %d are missing: %s", e.Gap.From, e.Gap.To, e.Gap.Reason)
}

// RefusedError tells which acks and nacks of a group's member came too late: the group
// had taken the events back, and they are handled again.
type RefusedError struct {
	Group   string
	Offsets []uint64 // at most 4096 of them
	More    uint64   // how many others
}

// Error implements error.
func (e *RefusedError) Error() string {
	s := fmt.Sprintf("client: group %s: %d acks and nacks came too late, the first of offset %d", e.Group, uint64(len(e.Offsets))+e.More, e.Offsets[0])
	return s + ": raise ack_wait, or tell Progress, if handling takes so long"
}
