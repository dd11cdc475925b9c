package emit

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// ErrOtherType reports that an event is not of the type of the payload struct.
var ErrOtherType = errors.New("the event is of another type")

// ErrNotSet reports that a field is not set.
var ErrNotSet = errors.New("the field is not set")

// MismatchError reports that fields of a payload are not of the type that the catalogue has for them. The log warns
// the producer of such an event and accepts it. All other fields were read, and Extra holds the values of these.
type MismatchError struct {
	Type   event.Type
	Fields []string // their names in JSON
}

// Error names the fields.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("emit: payload of %s: not of the catalogue's type: %s", e.Type, strings.Join(e.Fields, ", "))
}

// Decode reads the payload of an event, as in Decode[TrainingCompleted](ev). It reads null as not set and 3.0 as
// the integer 3; numbers in an any are a json.Number, so no digit is lost (see As). If the error is a
// *MismatchError, the payload is valid except for the fields that it names. An event of another type gives an error
// that wraps ErrOtherType.
//
// An event of a reserved type that is Foreign was sent by a client, and its payload may be anything.
func Decode[P Payload](ev event.Event) (P, error) {
	var p P
	want := p.EventType()
	// The event may have been decoded elsewhere and spell its type differently.
	if ev.Type != want {
		if known, _ := event.Builtin().Resolve(string(ev.Type)); known.Type != want {
			return p, fmt.Errorf("emit: decode %s: %w: %s", want, ErrOtherType, ev.Type)
		}
	}
	if len(ev.Payload) == 0 {
		return p, nil
	}
	// A mismatch comes with the payload, any other error without one.
	err := decode(ev.Payload, reflect.ValueOf(&p).Elem(), want)
	if mismatch, ok := errors.AsType[*MismatchError](err); ok {
		return p, mismatch
	}
	if err != nil {
		return p, fmt.Errorf("emit: decode %s: %w", want, err)
	}
	return p, nil
}

// As reads a field of type any, or a value of Extra, as a T, as encoding/json would:
//
//	elo, err := emit.As[float64](p.NewElo)
//	hosts, err := emit.As[[]string](p.TargetNodes)
//
// The error for nil wraps ErrNotSet.
func As[T any](v any) (T, error) {
	if t, ok := v.(T); ok {
		return t, nil
	}
	var t T
	if v == nil {
		return t, fmt.Errorf("emit: as %T: %w", t, ErrNotSet)
	}
	// Through JSON, so numbers, lists and objects become whatever T is.
	data, err := marshal(v)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, fmt.Errorf("emit: as %T: %w", t, err)
	}
	return t, nil
}
