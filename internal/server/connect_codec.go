package server

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec reads and writes the messages of Connect calls in JSON as Connect's own codec does. Its errors are those
// of the message alone: Connect's name the Go type that is decoded into.
type jsonCodec struct{ name string }

// Name implements connect.Codec.
func (c jsonCodec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return protojson.Marshal(m)
}

// Unmarshal implements connect.Codec. Unknown fields are ignored, so that a client may be newer than the node.
func (jsonCodec) Unmarshal(text []byte, message any) error {
	m, ok := message.(proto.Message)
	switch {
	case !ok:
		return fmt.Errorf("%T is not a protobuf message", message)
	case len(text) == 0:
		return errors.New("an empty body is not a JSON object")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
}
