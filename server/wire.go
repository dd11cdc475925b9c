package server

import (
	"io"
	"net/http"
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
}

func (b *body) Read(p []byte) (int, error) {
	if !b.timed {
		b.timed = true
		_ = b.control.SetReadDeadline(time.Now().Add(b.server.cfg.BodyTimeout))
	}
	n, err := b.ReadCloser.Read(p)
	b.held += int64(n)
	if b.server.bodies.Add(int64(n)) > b.server.cfg.MaxBodies && err == nil {
		err = errBodies()
	}
	if err == io.EOF { // a stream may go on for long after its request
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

func (b *body) release() {
	b.server.bodies.Add(-b.held)
	b.held = 0
}
