package server

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// jsonCodec reads and writes the messages of Connect calls in JSON as Connect's own codec does. Its errors describe
// the message; Connect's own name the Go type that is decoded into.
type jsonCodec struct{ name string }

// Name implements connect.Codec.
func (c jsonCodec) Name() string { return c.name }

// Marshal implements connect.Codec.
func (jsonCodec) Marshal(message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return protojson.Marshal(m)
}

// Unmarshal implements connect.Codec. Unknown fields are ignored, so a client may be newer than the node.
func (jsonCodec) Unmarshal(text []byte, message any) error {
	m, err := protoMessage(message)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return errors.New("an empty body is not a JSON object")
	}
	return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(text, m)
}

// protoCodec reads and writes the messages of Connect calls as Connect's own binary codec does, with such errors, too.
type protoCodec struct{}

// Name implements connect.Codec.
func (protoCodec) Name() string { return "proto" }

// Marshal implements connect.Codec.
func (c protoCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend lets Connect encode into a buffer of its own.
func (protoCodec) MarshalAppend(b []byte, message any) ([]byte, error) {
	m, err := protoMessage(message)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(b, m)
}

// Unmarshal implements connect.Codec.
func (protoCodec) Unmarshal(data []byte, message any) error {
	m, err := protoMessage(message)
	if err != nil {
		return err
	}
	return proto.Unmarshal(data, m)
}

// protoMessage is what Connect gives a codec. Its error is a fault of this build, which no caller can cause.
func protoMessage(message any) (proto.Message, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a protobuf message", message)
	}
	return m, nil
}
