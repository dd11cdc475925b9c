package api

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/proto"
)

// A publishing line is a connection of HTTP/1.1 that GET LinePath, with the header
// Upgrade: LineProtocol, has taken over (101). On it a client sends PublishRequests, each
// after the PublishReply to the one before; every message has its length in front, in 4
// bytes, the highest first. Either side ends the line by closing the connection. A
// request that has no reply by then may have been done, as after a POST without answer.
// The query's timeout, such as 3s, is for each request. One of more than MaxLineMessage
// bytes is refused, and ends the line.
const (
	LinePath       = "/v1/publish"
	LineProtocol   = "ringlog-publish"
	MaxLineMessage = 16 << 20
)

// LineHead is how many bytes stand in front of a line's message.
const LineHead = 4

// AppendLineMessage appends a message as it goes over a line.
func AppendLineMessage(b []byte, m proto.Message) ([]byte, error) {
	start := len(b)
	b, err := proto.MarshalOptions{}.MarshalAppend(append(b, make([]byte, LineHead)...), m)
	if err != nil {
		return b[:start], fmt.Errorf("api: line: %w", err)
	}
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-LineHead))
	return b, nil
}

// ReadLineHead reads the length of the message that follows.
func ReadLineHead(from io.Reader) (int, error) {
	var head [LineHead]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > math.MaxInt32 {
		return 0, fmt.Errorf("api: line: a message of %d bytes", length)
	}
	return int(length), nil
}
