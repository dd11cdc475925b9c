// Package emit holds one payload struct and one method for each event type of the catalogue, so that a
// producer can misspell neither a type nor a field.
//
//	e := emit.New(c, emit.WithSource("trainer-3")) // c is a *client.Client, or anything that publishes
//	res, err := e.TrainingCompleted(ctx, emit.TrainingCompletedPayload{
//		ConfigKey: "hex8_2p",
//		ModelPath: "models/hex8_2p.pth",
//		Extra:     map[string]any{"gpu_hours": 3.5},
//	}, emit.WithKey("hex8_2p"))
//
// and a reader gets it back with
//
//	p, err := emit.Decode[emit.TrainingCompletedPayload](ev)
//
// It promises:
//
//   - A field that is not set is not sent. Strings (paths too) and times are values, of which the empty
//     one is not set: it tells a reader nothing that its absence does not. Integers, numbers and booleans
//     are pointers, because 0 and false do tell something: StallCount: new(int64(0)) is sent. A field
//     whose type the catalogue does not know is an any, and anything but nil is sent, 0, "" and false too.
//   - What the catalogue does not list is in Extra, in both directions: nothing of a payload is lost.
//     Extra may also name a listed field that is not set otherwise, to send null, "" or a value of another
//     type; to give a field twice is an error.
//   - A payload without Extra passes a strict gate without a warning.
//
// Types that only the cluster emits (LEADER_*, QUORUM_*, …) have a payload to read, and no method.
package emit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/ringrift/ringlog/event"
)

//go:generate go run ../internal/genemit

// Publisher is where events go. R is what it answers: client.Result for a *client.Client.
type Publisher[R any] interface {
	Publish(ctx context.Context, ev event.Event) (R, error)
}

// PublishFunc makes a Publisher of a function, such as one that calls a Publish with more arguments.
type PublishFunc[R any] func(ctx context.Context, ev event.Event) (R, error)

// Publish calls the function.
func (f PublishFunc[R]) Publish(ctx context.Context, ev event.Event) (R, error) { return f(ctx, ev) }

// Payload is implemented by the pointers to the payload structs.
type Payload interface {
	EventType() event.Type
	json.Marshaler
	json.Unmarshaler
}

// Emitter has a method for each type that a client may publish. It is as safe for concurrent use as its publisher.
type Emitter[R any] struct {
	to      Publisher[R]
	options []Option
}

// New returns an emitter. The options hold for every event, those of a call come after them.
func New[R any](to Publisher[R], opts ...Option) *Emitter[R] {
	return &Emitter[R]{to: to, options: slices.Clone(opts)}
}

// With returns an emitter with more options for every event; e stays as it is.
func (e *Emitter[R]) With(opts ...Option) *Emitter[R] {
	return &Emitter[R]{to: e.to, options: slices.Concat(e.options, opts)}
}

// publish sends a payload. What can not be encoded is refused here; all other errors are the publisher's.
func (e *Emitter[R]) publish(ctx context.Context, p Payload, opts []Option) (R, error) {
	data, err := p.MarshalJSON()
	if err != nil {
		var none R
		return none, fmt.Errorf("emit: encode %s: %w", p.EventType(), err)
	}
	ev := event.New(p.EventType(), json.RawMessage(data))
	for _, o := range e.options {
		o(&ev)
	}
	for _, o := range opts {
		o(&ev)
	}
	return e.to.Publish(ctx, ev)
}

// Option sets a field of the event beside its payload.
type Option func(*event.Event)

// WithSource names the producer.
func WithSource(source string) Option { return func(ev *event.Event) { ev.Source = source } }

// WithKey sets the key, within which handlers keep the order.
func WithKey(key string) Option { return func(ev *event.Event) { ev.Key = key } }

// WithCorrelationID names the run that the event belongs to.
func WithCorrelationID(id string) Option { return func(ev *event.Event) { ev.CorrelationID = id } }

// WithCausationID names what caused the event.
func WithCausationID(id string) Option { return func(ev *event.Event) { ev.CausationID = id } }

// WithDedupID makes the event one with any other of the same id within the dedup window.
func WithDedupID(id string) Option { return func(ev *event.Event) { ev.DedupID = id } }

// WithoutDedup has the event appended even where the same content was accepted a moment ago.
func WithoutDedup() Option { return func(ev *event.Event) { ev.NoDedup = true } }

// WithTime sets when it happened, by the producer's clock.
func WithTime(t time.Time) Option { return func(ev *event.Event) { ev.Time = t } }
