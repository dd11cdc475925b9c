package server

import (
	"io"
	"net/http"
	"strings"
	"time"
)

// response bounds every write to a reader in time, and remembers what was answered.
type response struct {
	http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	status  int   // 0 until the header is sent
	stream  bool  // its duration is not measured
	bytes   int64 // of the body, sent so far
}

// Unwrap lets http.ResponseController find what is below.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.status = status
	}
	w.extendDeadline()
	w.ResponseWriter.WriteHeader(status)
}

func (w *response) Write(b []byte) (int, error) {
	// Without a call of WriteHeader the status is 200.
	if w.status == 0 {
		w.status = http.StatusOK
	}
	w.extendDeadline()
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher, which Connect asks for.
func (w *response) Flush() {
	w.extendDeadline()
	_ = w.control.Flush()
}

// extendDeadline gives the next write its time. A connection without deadlines, as in a test, is not bounded.
func (w *response) extendDeadline() { _ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) }

// body bounds the time in which a request's body must arrive and counts what it
// holds against the server's memory for requests.
type body struct {
	io.ReadCloser
	limit   int // in bytes, of the route; see bodyReader
	hold    *hold
	control *http.ResponseController
	pace    pace
}

// Read implements io.Reader. It reports missing room after the bytes it has read, which are counted.
func (b *body) Read(p []byte) (int, error) {
	// The deadline moves with each read, as bytes arrive.
	_ = b.control.SetReadDeadline(b.pace.deadline())
	n, err := b.ReadCloser.Read(p)
	b.pace.got += int64(n)
	if full := b.hold.receiveBody(n); full != nil && (err == nil || err == io.EOF) {
		err = full
	}
	if err == io.EOF { // a stream may last longer than its request
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// maxDiscard bounds, in bytes, how much of a refused body is read only to be dropped.
const maxDiscard = 64 << 20

// discardRest reads what is left of a refused body and holds none of it: a caller that writes all of its request
// before it reads would otherwise find the connection reset in place of the answer. A caller that waits for 100
// Continue has sent nothing yet, and over HTTP/2 the answer does not need the end of the connection. It reports
// whether the connection is fit for another request.
func (b *body) discardRest(r *http.Request) bool {
	// A caller that waits for 100 Continue sends nothing if it gets the answer instead.
	waits := strings.EqualFold(r.Header.Get("Expect"), "100-continue") && b.pace.got == 0
	switch {
	case r.ProtoMajor != 1:
		return true
	case waits || r.ContentLength > maxDiscard:
		return false
	}
	if _, err := io.CopyN(io.Discard, &paced{b}, maxDiscard); err != io.EOF {
		return false
	}
	_ = b.control.SetReadDeadline(time.Time{})
	return true
}

// paced reads a body within its time and does not count it in the hold.
type paced struct{ *body }

func (p *paced) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(p.pace.deadline())
	n, err := p.ReadCloser.Read(b)
	p.pace.got += int64(n)
	return n, err
}
