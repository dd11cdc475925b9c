package emit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/ringrift/ringlog/event"
)

// ErrOtherType says that an event is not of the type that a payload struct is for.
var ErrOtherType = errors.New("the event is of another type")

// ErrNotSet says that a field holds nothing.
var ErrNotSet = errors.New("the field is not set")

// MismatchError says that fields of a payload are not of the type that the catalogue has for them, which the log
// warns their producer of and does not refuse. The rest was read, and Extra holds their values as they came.
type MismatchError struct {
	Type   event.Type
	Fields []string // their names in JSON
}

// Error names the fields.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("emit: payload of %s: not of the catalogue's type: %s", e.Type, strings.Join(e.Fields, ", "))
}

// Decode reads the payload of an event, as in Decode[TrainingCompletedPayload](ev). null is read as not set, 3.0 as
// the integer 3; numbers in an any are a json.Number, so that no digit is lost (see As). Where the error is a
// *MismatchError the payload is good but for the fields it names; ErrOtherType is told by errors.Is.
//
// An event of a reserved type that is Foreign came from a client, and its payload is whatever that sent.
func Decode[P any, PP interface {
	*P
	Payload
}](ev event.Event) (P, error) {
	var p P
	want := PP(&p).EventType()
	if ev.Type != want {
		if known, _ := event.Builtin().Resolve(string(ev.Type)); known.Type != want {
			return p, fmt.Errorf("emit: decode %s: %w: %s", want, ErrOtherType, ev.Type)
		}
	}
	if len(ev.Payload) == 0 {
		return p, nil
	}
	err := json.Unmarshal(ev.Payload, PP(&p))
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
// ErrNotSet is told by errors.Is.
func As[T any](v any) (T, error) {
	if t, ok := v.(T); ok {
		return t, nil
	}
	var t T
	if v == nil {
		return t, fmt.Errorf("emit: as %T: %w", t, ErrNotSet)
	}
	data, err := marshal(v)
	if err = cmp.Or(err, json.Unmarshal(data, &t)); err != nil {
		return t, fmt.Errorf("emit: as %T: %w", t, err)
	}
	return t, nil
}
