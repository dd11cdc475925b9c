package sinks

import (
	"context"
	"errors"
	"time"

	"github.com/ringrift/ringlog/client"
)

// Sink does something with an event.
type Sink interface {
	// Handle returns nil once the event is handled. When ctx ends it returns soon, and
	// leaves nothing running. It is called by many goroutines at once. An error may be a
	// *Error.
	Handle(ctx context.Context, d client.Delivery) error
}

// Error is an error that says more than its text.
type Error struct {
	Err error
	// Dead says that no other attempt can succeed.
	Dead bool
	// Event says that the event is at fault, not the sink: the breaker does not count it.
	Event bool
	// After is how long the sink asks to be left alone.
	After time.Duration
}

// Error implements error.
func (f *Error) Error() string { return f.Err.Error() }

// Unwrap implements errors.Unwrap.
func (f *Error) Unwrap() error { return f.Err }

// ErrTimeout is the cause of the end of an attempt's context when its time is over.
var ErrTimeout = errors.New("timed out")

// failureOf is what is known of an error.
func failureOf(err error) Error {
	if f, ok := errors.AsType[*Error](err); ok {
		return *f
	}
	return Error{Err: err}
}

// harmless are errors that the breaker does not count.
func harmless(err error) bool { return failureOf(err).Event || errors.Is(err, errCutOff) }

// errCutOff ends attempts when this process has no time left for them.
var errCutOff = errors.New("cut off: the process ends")
