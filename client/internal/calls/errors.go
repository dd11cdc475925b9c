package calls

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/ringrift/ringlog/api"
)

// Sentinels that package client exports under the same names.
var (
	ErrOutcomeUnknown = errors.New("outcome unknown: it may have happened")
	ErrUnreachable    = errors.New("no endpoint answered")
	ErrClosed         = errors.New("closed")
)

// Reasons why attempts end that no node has given.
var (
	errSilent  = errors.New("the node shows no life")
	errTooLate = fmt.Errorf("%s have passed since the first attempt, and nodes forget results", maxRepeat)
)

// Error is why a call failed in the end.
type Error struct {
	Op      string
	Unknown bool // an attempt was sent whose outcome no node reported
	// Without it Err may still be an answer: one after which another node was asked.
	Answer bool  // Err is a node's final answer, not the last of many attempts
	Tried  bool  // an attempt before the last one may have happened
	Err    error // the node's answer, or the error of the last attempt
	Ended  error // why the attempts ended, nil with an answer
}

// Error implements error.
func (e *Error) Error() string {
	s := "client: " + e.Op + ": "
	if e.Unknown {
		s += ErrOutcomeUnknown.Error() + ": "
	}
	switch {
	case e.Ended == nil:
		return s + e.Err.Error()
	case e.Err == nil:
		// It ended before anything was asked.
		return s + e.Ended.Error()
	}
	return fmt.Sprintf("%s%v, after: %v", s, e.Ended, e.Err)
}

// Unwrap gives errors.Is and errors.As everything that is known.
func (e *Error) Unwrap() []error {
	var all []error
	if e.Unknown {
		all = append(all, ErrOutcomeUnknown)
	}

	// Both causes are visible: why the attempts ended, and what the last of them met.
	for _, err := range []error{e.Ended, e.Err} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// Refusal returns the answer of a node that decided the call, and nil for other errors.
func (e *Error) Refusal() *api.Error {
	var refusal *api.Error
	if e.Answer && errors.As(e.Err, &refusal) {
		return refusal
	}
	return nil
}

// AnswerError is an error that a node answered without Connect's envelope.
type AnswerError struct {
	API    *api.Error
	Header http.Header
}

// Error implements error.
func (e *AnswerError) Error() string { return e.API.Error() }

// IsAnswer reports whether err is a node's answer with that code.
func IsAnswer(err error, code api.Code) bool {
	answer, ok := errors.AsType[*api.Error](err)
	return ok && answer.Code == code
}
