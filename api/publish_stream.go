package api

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/proto"
)

// A publish stream is a connection of HTTP/1.1 that GET PublishStreamPath, with the header
// Upgrade: PublishStreamProtocol, has taken over (101):
//
//	client                                  node
//	length (4 bytes)  PublishRequest    ->
//	                                    <-  length (4 bytes)  PublishReply
//
// Lengths are big-endian and count the message alone. A client sends a request only after
// the reply to the one before. Either side ends the stream by closing the connection; a
// request that has no reply by then may have been done, as after a POST without an answer.
// The query's timeout, such as 3s, is for each request. A request of more than
// MaxPublishMessage bytes is refused, and ends the stream.
const (
	PublishStreamPath     = "/v1/publish"
	PublishStreamProtocol = "ringlog-publish"
	MaxPublishMessage     = 16 << 20
)

// publishHead is the size in bytes of the length that precedes each message of a publish stream.
const publishHead = 4

// AppendPublishMessage appends a message, preceded by its length, to b.
func AppendPublishMessage(b []byte, m proto.Message) ([]byte, error) {
	// The length is known only after encoding: leave room for it, then fill it in.
	start := len(b)
	b, err := proto.MarshalOptions{}.MarshalAppend(append(b, make([]byte, publishHead)...), m)
	if err != nil {
		return b[:start], fmt.Errorf("api: publish stream: %w", err)
	}
	// The message may have grown b, so the head is found by its index.
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-publishHead))
	return b, nil
}

// ReadPublishHead reads the length of the message that follows. It does not compare it with MaxPublishMessage: the
// server does, so it can answer a refusal. The error of a stream that ended between two messages is io.EOF.
func ReadPublishHead(from io.Reader) (int, error) {
	var head [publishHead]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > math.MaxInt32 {
		return 0, fmt.Errorf("api: publish stream: a message of %d bytes", length)
	}
	return int(length), nil
}
