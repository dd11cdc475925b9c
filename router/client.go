package router

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/event"
)

// OnClient makes a client the log of a router, which keeps its dead letters too. Closing
// the router leaves the client open.
func OnClient(c *client.Client) Log { return clientLog{c} }

// clientLog is a client as Log, Flows, DeadLetters, LiveLetters and Registrar.
type clientLog struct{ c *client.Client }

// Publish implements Log. A single event shares its request with others.
func (l clientLog) Publish(ctx context.Context, events []event.Event) ([]client.Result, error) {
	// A batch is all or nothing, so it needs a request of its own.
	if len(events) == 1 {
		res, err := l.c.Publish(ctx, events[0])
		if err != nil {
			return nil, markFinal(err)
		}
		return []client.Result{res}, nil
	}
	results, err := l.c.PublishBatch(ctx, events)
	return results, markFinal(err)
}

// Last implements Log: the answer to a read past any tail names the tail.
func (l clientLog) Last(ctx context.Context) (uint64, error) {
	_, err := l.c.Get(ctx, math.MaxUint64)
	var answer *api.Error
	if errors.As(err, &answer) && answer.Code == api.PastTail {
		return answer.Offset, nil
	}
	return 0, markFinal(err)
}

// Tail implements Log.
func (l clientLog) Tail(ctx context.Context, o client.TailOptions) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for ev, err := range l.c.Tail(ctx, o) {
			if !yield(ev, markFinal(err)) {
				return
			}
		}
	}
}

// Flows implements Flows.
func (l clientLog) Flows(ctx context.Context) ([]event.Flow, error) {
	flows, err := l.c.Admin().Flows(ctx)
	return flows, markFinal(err)
}

// OpenCursor implements Log.
func (l clientLog) OpenCursor(ctx context.Context, name string, o client.CursorOptions) (LogCursor, error) {
	cur, err := l.c.OpenCursor(ctx, name, o)
	var answer *api.Error

	// A filter that differs is refused, and the error names the option that allows it.
	if errors.As(err, &answer) && answer.Code == api.Exists {
		return nil, fmt.Errorf("%w; or let the subscription take it over, from its commit on: Subscription.Change",
			markFinal(err))
	}
	if err != nil {
		return nil, markFinal(err)
	}
	return clientCursor{cur}, nil
}

// Put implements DeadLetters: the node takes the event's copy from its own log.
func (l clientLog) Put(ctx context.Context, letter DeadLetter) error {
	failure := client.Failure{Handler: letter.Handler, Error: letter.Error, Attempts: uint64(letter.Attempts),
		FirstFailed: letter.First}
	return markGone(l.c.Admin().PutDeadLetter(ctx, letter.Cursor, letter.Generation, letter.Event.Offset, failure))
}

// Keep implements LiveLetters.
func (l clientLog) Keep(ctx context.Context, letter DeadLetter, id string) error {
	failure := client.KeptFailure{ID: id, Source: letter.Source, Cursor: letter.Cursor, Failure: client.Failure{
		Handler: letter.Handler, Error: letter.Error, Attempts: uint64(letter.Attempts), FirstFailed: letter.First}}
	err := l.c.Admin().KeepDeadLetter(ctx, &letter.Event, failure)

	// Members that do not know such letters yet are upgraded while events fail.
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Reason == api.ReasonFeatureLevel {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return markGone(err)
}

// HasCursor implements LiveLetters.
func (l clientLog) HasCursor(ctx context.Context, name string) (bool, error) {
	_, err := l.c.Cursor(ctx, name)
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
		return false, nil
	}
	return err == nil, markFinal(err)
}

// markGone marks an error that says that there can be no letter of this event any more, and as markFinal does.
func markGone(err error) error {
	answer, ok := errors.AsType[*api.Error](err)
	if ok && !errors.Is(err, client.ErrOutcomeUnknown) {
		switch answer.Code {
		case api.Trimmed, api.Conflict:
			return fmt.Errorf("%w: %w", ErrGone, err)
		}
	}
	return markFinal(err)
}

// clientCursor is a client's cursor whose errors are marked final.
type clientCursor struct{ *client.Cursor }

// NextBatch implements LogCursor.
func (c clientCursor) NextBatch(ctx context.Context) ([]event.Event, error) {
	events, err := c.Cursor.NextBatch(ctx)
	return events, markFinal(err)
}

// Commit implements LogCursor.
func (c clientCursor) Commit(ctx context.Context, offset uint64) error {
	return markFinal(c.Cursor.Commit(ctx, offset))
}

// markFinal marks an error that no repetition can help.
func markFinal(err error) error {
	if err == nil {
		return nil
	}

	// A client that was closed does not come back.
	if errors.Is(err, client.ErrClosed) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	var answer *api.Error
	if !errors.As(err, &answer) || errors.Is(err, client.ErrOutcomeUnknown) {
		return err
	}

	// The other codes may pass: the log is asked again.
	switch answer.Code {
	case api.Fenced:
		return fmt.Errorf("%w: %w", ErrFenced, err)
	case api.InvalidArgument, api.InvalidJSON, api.UnknownType, api.Unauthenticated, api.Reserved, api.NotFound,
		api.MethodNotAllowed, api.Conflict, api.Exists, api.TooLarge, api.UnsupportedMedia, api.PastTail,
		api.NotImplemented:
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return err
}
