// Package emit holds one payload struct for each event type of the catalogue, named as the constant of the type,
// so a producer can misspell neither a type nor a field.
//
//	res, err := emit.Publish(ctx, c, emit.TrainingCompleted{ // c is a *client.Client, or anything that publishes
//		ConfigKey: "hex8_2p",
//		ModelPath: "models/hex8_2p.pth",
//		Extra:     emit.Extra{"gpu_hours": 3.5},
//	}, emit.WithSource("trainer-3"), emit.WithKey("hex8_2p"))
//
// and a reader gets it back with
//
//	p, err := emit.Decode[emit.TrainingCompleted](ev)
//
// It promises:
//
//   - A field that is not set is not sent. Strings (paths too) and times are values, and the empty one means not
//     set: to a reader it says no more than its absence. Integers, numbers and booleans are pointers, because 0 and
//     false do mean something: StallCount: new(int64(0)) is sent. A field whose type the catalogue does not know is
//     an any, and anything but nil is sent, 0, "" and false too.
//   - Members that the catalogue does not list are in Extra, in both directions: nothing of a payload is lost.
//     Extra may also name a listed field that is not set otherwise, to send null, "" or a value of another type.
//     Giving a field twice is an error.
//   - A payload without Extra passes a strict gate without a warning.
//
// Types that only the cluster emits (LEADER_*, QUORUM_*, …) have a payload to be read. The log refuses to publish
// them.
package emit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/ringrift/ringlog/event"
)

//go:generate go run ../internal/genemit

// Payload is implemented by the payload structs.
// They are structs, passed by value or by pointer.
type Payload interface {
	EventType() event.Type
}

// Extra holds the members of a payload that its struct does not list.
// A name that the struct lists is refused when it is encoded.
type Extra map[string]any

// MarshalJSON fails: encoding/json alone would put the members of Extra in the wrong place. Publish and Event do
// not use it.
func (Extra) MarshalJSON() ([]byte, error) {
	return nil, errors.New("emit: encoding/json cannot encode a payload with Extra; use emit.Publish or emit.Event")
}

// Publisher accepts events. R is its answer: client.Result for a *client.Client.
type Publisher[R any] interface {
	Publish(ctx context.Context, ev event.Event) (R, error)
}

// PublishFunc makes a Publisher of a function, such as one that calls a Publish with more arguments.
type PublishFunc[R any] func(ctx context.Context, ev event.Event) (R, error)

// Publish calls the function.
func (f PublishFunc[R]) Publish(ctx context.Context, ev event.Event) (R, error) { return f(ctx, ev) }

// Publish publishes a payload as an event of its type. A payload that cannot be encoded is refused here; all other
// errors are the publisher's.
func Publish[R any](ctx context.Context, to Publisher[R], p Payload, opts ...Option) (R, error) {
	ev, err := Event(p, opts...)
	if err != nil {
		var none R
		return none, err
	}
	return to.Publish(ctx, ev)
}

// Event returns the event that Publish publishes.
func Event(p Payload, opts ...Option) (event.Event, error) {
	// The payload is encoded here, so it may be changed afterwards.
	data, err := encode(p)
	if err != nil {
		return event.Event{}, fmt.Errorf("emit: encode %s: %w", p.EventType(), err)
	}
	ev := event.New(p.EventType(), json.RawMessage(data))
	// Options come after the payload, of which they change nothing.
	for _, o := range opts {
		o(&ev)
	}
	return ev, nil
}

// Option sets a field of the event other than its payload.
type Option func(*event.Event)

// WithSource names the producer.
func WithSource(source string) Option { return func(ev *event.Event) { ev.Source = source } }

// WithKey sets the key. Handlers keep the order of the events of a key.
func WithKey(key string) Option { return func(ev *event.Event) { ev.Key = key } }

// WithCorrelationID names the run that the event belongs to.
func WithCorrelationID(id string) Option { return func(ev *event.Event) { ev.CorrelationID = id } }

// WithCausationID names the cause of the event.
func WithCausationID(id string) Option { return func(ev *event.Event) { ev.CausationID = id } }

// WithDedupID makes the event a duplicate of any other with the same id within the dedup window.
func WithDedupID(id string) Option { return func(ev *event.Event) { ev.DedupID = id } }

// WithoutDedup appends the event even if the same content was accepted within the dedup window.
func WithoutDedup() Option { return func(ev *event.Event) { ev.NoDedup = true } }

// WithTime sets when it happened, by the producer's clock.
func WithTime(t time.Time) Option { return func(ev *event.Event) { ev.Time = t } }
