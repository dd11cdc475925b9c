package server

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// response bounds every write to a reader and remembers what was answered.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	status  int // 0 until the header is out
	bytes   int64
}

// Unwrap lets http.ResponseController find what is below.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extend()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher, which Connect asks for.
func (w *response) Flush() {
	w.extend()
	_ = w.control.Flush()
}

// extend gives the next write its time. Where the connection knows no deadlines, as
// in a test, nothing is bounded.
func (w *response) extend() { _ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) }

// body bounds the time in which a request's body must arrive and counts what it
// holds against the server's memory for bodies.
type body struct {
	io.ReadCloser
	server  *Server
	control *http.ResponseController
	held    int64
	timed   bool
	begun   bool // some of it was read
}

func (b *body) Read(p []byte) (int, error) {
	b.begin()
	n, err := b.ReadCloser.Read(p)
	b.begun = b.begun || n > 0
	b.held += int64(n)
	if b.server.bodies.Add(int64(n)) > b.server.cfg.MaxBodies && err == nil {
		err = errBodies()
	}
	if err == io.EOF { // a stream may go on for long after its request
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// begin starts the time for the body, once.
func (b *body) begin() {
	if !b.timed {
		b.timed = true
		_ = b.control.SetReadDeadline(time.Now().Add(b.server.cfg.BodyTimeout))
	}
}

// maxDiscard bounds what is read of a body for nothing.
const maxDiscard = 64 << 20

// discard reads what is left of a refused body, holding none of it: a caller that
// writes all of its request before it reads would else find the connection reset in
// place of the answer. One that waits to be told to go on has nothing on its way, and
// over HTTP/2 the answer does not need the connection's end. It reports whether the
// connection is fit for another request.
func (b *body) discard(r *http.Request) bool {
	waits := strings.EqualFold(r.Header.Get("Expect"), "100-continue") && !b.begun
	switch {
	case r.ProtoMajor != 1:
		return true
	case waits || r.ContentLength > maxDiscard:
		return false
	}
	b.begin()
	if _, err := io.CopyN(io.Discard, b.ReadCloser, maxDiscard); err != io.EOF {
		return false
	}
	_ = b.control.SetReadDeadline(time.Time{})
	return true
}

func (b *body) release() {
	b.server.bodies.Add(-b.held)
	b.held = 0
}
