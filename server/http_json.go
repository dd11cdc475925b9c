package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Whether a request may come without a body.
const (
	requiredBody = false
	optionalBody = true
)

// maxAdminBody bounds the bodies of everything but events and definitions.
const maxAdminBody = 256 << 10

// jsonWeight is what an object of an administrator's body takes at most.
const jsonWeight = 512

// readJSON reads an object into a struct. It is as strict as events are: no unknown
// or doubled key, nothing behind the object, and every complaint has its place.
func (s *Server) readJSON(r *http.Request, into any, optional bool) error {
	return s.readJSONUpTo(r, into, optional, maxAdminBody)
}

func (s *Server) readJSONUpTo(r *http.Request, into any, optional bool, limit int) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	read, err := s.readBody(r, limit, contentJSON)
	if err != nil {
		return err
	}
	defer s.putBuffer(read.buffer)
	text := bytes.TrimSpace(read.bytes)
	if len(text) == 0 {
		if optional {
			return nil
		}
		return &api.Error{Code: api.InvalidJSON, Field: "body", Message: "the body is empty", Remedy: "send a JSON object"}
	}
	if err := holdOf(r.Context()).take(weighJSON(text, jsonWeight)); err != nil {
		return err
	}
	canonical, err := event.Canonicalize(read.bytes, event.Limits{EventBytes: math.MaxInt, NameBytes: math.MaxInt})
	if err != nil {
		return bodyPath(err)
	}
	d := json.NewDecoder(bytes.NewReader(canonical))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return shapeError(err)
	}
	return nil
}

// bodyPath names the place of an error below the body instead of a payload.
func bodyPath(err error) error {
	in, ok := errors.AsType[*event.Error](err)
	if !ok {
		return err
	}
	out := *in
	out.Field = strings.TrimPrefix(strings.TrimPrefix(in.Field, "payload"), ".")
	if out.Reason == event.ReasonInvalidPayload {
		out.Message, out.Remedy = strings.ReplaceAll(out.Message, "payload", "body"), "send a JSON object"
	}
	return &out
}

// shapeError says what encoding/json found: a key or a kind of value that is not
// expected.
func shapeError(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &api.Error{Code: api.InvalidArgument, Field: kind.Field, Message: fmt.Sprintf("a JSON %s where %s is expected", kind.Value, kind.Type),
			Remedy: "see /openapi.json for the form"}
	}
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return &api.Error{Code: api.InvalidJSON, Field: strings.Trim(name, `"`), Message: "there is no key " + name + " here", Remedy: "see /openapi.json for the form"}
	}
	return &api.Error{Code: api.InvalidArgument, Field: "body", Message: err.Error(), Remedy: "see /openapi.json for the form"}
}
