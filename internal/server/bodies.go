package server

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/ringrift/ringlog/api"
)

// requestBody is a body as it was sent. It is valid until buffer is handed to putBuffer.
type requestBody struct {
	contentType string // the first of the types where the request names none
	bytes       []byte
	buffer      *[]byte // the memory of bytes, for putBuffer
}

// bodyReader reads bodies of requests, and keeps their memory for the next ones. The zero value is ready. It is safe
// for concurrent use.
type bodyReader struct {
	buffers sync.Pool // of *[]byte
}

// readBody reads a body of one of the content types, up to the limit of its route. A request without Content-Type
// has the first of them. If it succeeds, the caller must call putBuffer.
func (b *bodyReader) readBody(r *http.Request, types ...string) (requestBody, error) {
	read := requestBody{contentType: types[0]}
	if text := r.Header.Get("Content-Type"); text != "" {
		// Only UTF-8 is JSON.
		kind, parameters, err := mime.ParseMediaType(text)
		charset := parameters["charset"]
		readable := charset == "" || strings.EqualFold(charset, "utf-8")
		if err != nil || !readable || !slices.Contains(types, kind) {
			return read, errUnsupported("Content-Type", text, types)
		}
		read.contentType = kind
	}
	// Bodies are taken as they are: decompressing them could take more than was declared.
	if coding := r.Header.Get("Content-Encoding"); coding != "" && coding != "identity" {
		return read, errUnsupported("Content-Encoding", coding, []string{"identity"})
	}
	// A body that declares itself too large is refused unread.
	limit := limitOf(r)
	if r.ContentLength > int64(limit) {
		return read, api.RequestTooLarge(limit)
	}
	read.buffer = b.getBuffer()
	var err error
	read.bytes, err = readAll(r.Body, *read.buffer, limit, int(r.ContentLength))
	// The pool gets the memory as it has grown.
	*read.buffer = read.bytes[:0]
	if err != nil {
		b.putBuffer(read.buffer)
	}
	return read, err
}

// limitOf returns how many bytes the body of a request may have; 0 for a request without a body.
func limitOf(r *http.Request) int {
	b, ok := r.Body.(*body)
	if !ok {
		return 0
	}
	return b.limit
}

// errUnsupported refuses the value of a header, and names those that are taken.
func errUnsupported(header, got string, want []string) *api.Error {
	return api.Refuse(api.UnsupportedMedia, header,
		fmt.Sprintf("%s: %q is not taken here", header, got),
		"send "+header+": "+strings.Join(want, " or "))
}

// readAll reads up to limit bytes into the memory of buffer and returns them, also with an error. A declared
// length is believed up to firstRead; beyond that the memory grows with what arrives. A length of -1 is unknown.
func readAll(from io.Reader, buffer []byte, limit, length int) ([]byte, error) {
	// One more byte than declared lets Read report the end without growing the buffer.
	b := slices.Grow(buffer[:0], min(max(length+1, 512), firstRead))
	for {
		// The buffer doubles, as far as bytes arrive.
		if len(b) == cap(b) {
			b = slices.Grow(b, len(b))
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		// The bound holds for what arrives, whatever was declared.
		case len(b) > limit:
			return b, api.RequestTooLarge(limit)
		case err == io.EOF:
			return b, nil
		case err != nil:
			return b, bodyError(err, len(b))
		}
	}
}

// firstRead bounds what is allocated before any of a body has arrived.
const firstRead = 64 << 10

// bodyError returns an error of reading a body: this server's own refusal as it is, and anything else as a body
// that broke off after got bytes.
func bodyError(err error, got int) error {
	// A refusal for want of memory.
	if own, ok := errors.AsType[*api.Error](err); ok {
		return own
	}
	return api.Refuse(api.Timeout, "body",
		fmt.Sprintf("the body broke off after %d bytes: %v", got, err),
		"send it again, in time")
}

// keptBuffer bounds the buffers that are kept for the next request.
const keptBuffer = 1 << 20

// getBuffer returns an empty buffer, which may have the memory of an earlier request.
func (b *bodyReader) getBuffer() *[]byte {
	if kept, ok := b.buffers.Get().(*[]byte); ok {
		return kept
	}
	return new([]byte)
}

// putBuffer keeps a buffer for another request, unless it has grown past keptBuffer.
func (b *bodyReader) putBuffer(buffer *[]byte) {
	if cap(*buffer) <= keptBuffer {
		b.buffers.Put(buffer)
	}
}
