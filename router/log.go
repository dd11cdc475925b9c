package router

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router/breaker"
)

// Log is the event log as a router uses it. OnClient makes one of a client. It is safe
// for concurrent use. One that is a DeadLetters too takes the events that are abandoned,
// unless Options.DeadLetters says otherwise. Its errors wrap ErrRefused if the same call can never succeed.
type Log interface {
	// Publish appends events as one request, all of them or none, and answers for each.
	Publish(ctx context.Context, events []event.Event) ([]client.Result, error)
	// Last returns the offset of the last event that was acknowledged before the call, 0
	// in an empty log.
	Last(ctx context.Context) (uint64, error)
	// Tail reads as client.Client.Tail does.
	Tail(ctx context.Context, o client.TailOptions) iter.Seq2[event.Event, error]
	// OpenCursor opens a cursor as client.Client.OpenCursor does.
	OpenCursor(ctx context.Context, name string, o client.CursorOptions) (LogCursor, error)
}

// Flows is a Log that knows the flows of its catalogue, built in and registered.
type Flows interface {
	// Flows returns those that the log has at the time of the call.
	Flows(ctx context.Context) ([]event.Flow, error)
}

// LogCursor is an open cursor. One goroutine calls NextBatch; the others may be called from
// any. Errors wrap ErrFenced once somebody else has opened it.
type LogCursor interface {
	// Info is the cursor as it was opened.
	Info() client.CursorInfo
	// NextBatch waits for events and returns all that are there, at least one, or a
	// *client.GapError, after which reading continues. Any other error but one of ctx is
	// the end.
	NextBatch(ctx context.Context) ([]event.Event, error)
	// Commit says that everything up to offset is handled, durably once it returns.
	Commit(ctx context.Context, offset uint64) error
	// Close ends reading. The log keeps what was committed, and the cursor can be opened again.
	Close() error
}

// DeadLetters takes the events that were abandoned.
type DeadLetters interface {
	// Put stores a letter and moves its cursor to the letter's offset, both or neither.
	// When it is called everything before that offset is settled. It is repeated
	// until it succeeds, or wraps ErrFenced, ErrRefused or ErrGone; the same letter may
	// come twice.
	Put(ctx context.Context, l DeadLetter) error
}

// LiveLetters is a Log that keeps dead letters of subscriptions without a cursor of their own. OnClient is one.
type LiveLetters interface {
	// Keep stores a letter that moves no cursor; letters may come in any order. id is unique to the failure: the same
	// may come twice. It is repeated until it succeeds, or wraps ErrRefused or ErrGone.
	Keep(ctx context.Context, l DeadLetter, id string) error
	// HasCursor reports whether there is a cursor of that name.
	HasCursor(ctx context.Context, name string) (bool, error)
}

// DeadLetter is an event that its handler could not handle.
type DeadLetter struct {
	Cursor     string // the subscription's, or the one that its letters are redriven to
	Generation uint64 // of the cursor
	Handler    string // the subscription that abandoned it
	Source     string // the process: Options.Source
	Event      event.Event
	Error      string    // of the last attempt
	Attempts   int       // of this process, at least 1
	First      time.Time // when the first attempt failed
	Last       time.Time // when it was abandoned
}

// Sentinels for errors.Is.
var (
	// ErrRefused says that the log has refused a call for good.
	ErrRefused = errors.New("refused by the log")
	// ErrFenced says that somebody else has opened the cursor.
	ErrFenced = errors.New("the cursor was opened elsewhere")
	// ErrGone says that there can be no letter: the log does not keep the event any more, or
	// its cursor was moved past it on purpose.
	ErrGone = errors.New("the event is not there to be dead-lettered")
	// ErrClosed says that the router, the subscription or the client was closed.
	ErrClosed = client.ErrClosed
	// ErrTimeout says that a handler took longer than it may.
	ErrTimeout = errors.New("handler timed out")
	// ErrBreakerOpen says that the subscription's circuit breaker lets nothing through.
	ErrBreakerOpen = breaker.ErrOpen
	// ErrOverloaded says that a subscription's queue had no room.
	ErrOverloaded = errors.New("too many events are waiting for the handler")
	// ErrNotAttached says that a subscription has no connection to the log.
	ErrNotAttached = errors.New("not attached to the log")
)
