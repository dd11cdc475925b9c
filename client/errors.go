package client

import (
	"errors"
	"fmt"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Sentinels for errors.Is.
var (
	// ErrOutcomeUnknown says that a request was sent, that no node could tell what
	// became of it, and that it may have happened, at most once.
	ErrOutcomeUnknown = errors.New("outcome unknown: it may have happened")
	// ErrClosed says that the client, the cursor or the group's member was closed.
	ErrClosed = errors.New("closed")
	// ErrNotHeld says that a member of a group does not hold an event: it was not handed
	// out, it is settled, or the group took it back because its time to settle was over.
	ErrNotHeld = errors.New("the member does not hold the event")
	// ErrUnreachable says that no endpoint answered at all.
	ErrUnreachable = errors.New("no endpoint answered")
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

// callError is why a call failed in the end.
type callError struct {
	op      string
	unknown bool  // an attempt was sent whose outcome nobody told
	answer  bool  // err is a node's final word, not the last of many tries
	tried   bool  // an attempt before the last one may have happened
	err     error // the node's answer, or the last attempt's
	ended   error // why the tries ended, nil with an answer
}

// Error implements error.
func (e *callError) Error() string {
	s := "client: " + e.op + ": "
	if e.unknown {
		s += ErrOutcomeUnknown.Error() + ": "
	}
	switch {
	case e.ended == nil:
		return s + e.err.Error()
	case e.err == nil:
		return s + e.ended.Error()
	}
	return fmt.Sprintf("%s%v, after: %v", s, e.ended, e.err)
}

// Unwrap gives errors.Is and errors.As everything that is known.
func (e *callError) Unwrap() []error {
	var all []error
	if e.unknown {
		all = append(all, ErrOutcomeUnknown)
	}
	for _, err := range []error{e.ended, e.err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// refused reports the answer of a node that decided the call, and nil for others.
func (e *callError) refused() *api.Error {
	var refusal *api.Error
	if e.answer && errors.As(e.err, &refusal) {
		return refusal
	}
	return nil
}

// invalidError is input refused before it was sent, in the form a node would
// refuse it.
type invalidError struct {
	answer *api.Error
	cause  *event.Error
}

// Error implements error.
func (e *invalidError) Error() string { return e.answer.Error() }

// Unwrap implements errors.Unwrap.
func (e *invalidError) Unwrap() []error { return []error{e.answer, e.cause} }

func invalid(op string, err error) error {
	var cause *event.Error
	if !errors.As(err, &cause) {
		return fmt.Errorf("client: %s: %w", op, err)
	}
	code := api.InvalidArgument
	switch cause.Reason {
	case event.ReasonInvalidJSON, event.ReasonDuplicateKey, event.ReasonTrailingBytes, event.ReasonInvalidUTF8,
		event.ReasonLoneSurrogate, event.ReasonNotANumber, event.ReasonTooDeep:
		code = api.InvalidJSON
	}
	answer := &api.Error{Code: code, Message: cause.Message, Field: cause.Field, Remedy: cause.Remedy}
	return fmt.Errorf("client: %s: %w", op, &invalidError{answer, cause})
}
