package calls

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// Request is a request over plain HTTP.
type Request struct {
	Method, Path string
	Query        url.Values
	ContentType  string // "" is no body
	Body         []byte
	Header       http.Header // beside those of every call
}

// maxAnswer bounds an answer that is kept in memory.
const maxAnswer = 256 << 20

// Exchange makes a request at one node and reads the whole answer.
func (c *Cluster) Exchange(ctx context.Context, n *Node, r *Request) ([]byte, http.Header, error) {
	resp, err := c.roundTrip(ctx, n, r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(answer) > maxAnswer {
		err = fmt.Errorf("the answer of %s is over %d MiB: ask for less", n.URL, maxAnswer>>20)
	}
	return answer, resp.Header, err
}

// roundTrip makes a request at one node. Any status but of success is an error.
func (c *Cluster) roundTrip(ctx context.Context, n *Node, r *Request) (*http.Response, error) {
	target := n.URL + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(r.Body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.Header)
	if r.ContentType != "" {
		req.Header.Set("Content-Type", r.ContentType)
	}

	// The token and the cluster are those of every call.
	c.authorize(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	// The caller closes the body.
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, errorAnswer(resp)
}

// errorAnswer reads a node's error. An answer of another form, say a proxy's page, becomes an
// error by its status, unless a retry may help.
func errorAnswer(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	var envelope struct {
		Error *api.Error `json:"error"`
	}
	if json.Unmarshal(text, &envelope) == nil && envelope.Error != nil && envelope.Error.Code != "" {
		return &AnswerError{envelope.Error, resp.Header}
	}

	// A proxy may answer a 5xx while its nodes are away. Anything else is no node's.
	foreign := errors.New(resp.Status + " without an error that ringlog sends")
	if resp.StatusCode >= 500 && !foreignServer(resp) {
		return foreign
	}
	return &AnswerError{&api.Error{Code: api.NotImplemented, Message: foreign.Error(),
		Remedy: "check that the endpoint is a ringlog node"}, resp.Header}
}

// Upgrade asks a node to make a connection of HTTP/1.1 one of another protocol.
func (c *Cluster) Upgrade(ctx context.Context, n *Node, path, protocol string) (io.ReadWriteCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", protocol)
	c.authorize(req.Header)
	answer, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}

	// After 101 the body is the connection.
	conn, ok := answer.Body.(io.ReadWriteCloser)
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Upgrade") != protocol || !ok {
		return nil, errors.Join(fmt.Errorf("%s answered %s", n.URL, answer.Status), answer.Body.Close())
	}
	return conn, nil
}

// OffersStream reports whether n may be asked for a publish stream now.
// The zero value is long past.
func (n *Node) OffersStream() bool { return time.Now().UnixNano() > n.noStream.Load() }

// DenyStream notes that n is not to be asked for a publish stream for that long.
func (n *Node) DenyStream(d time.Duration) { n.noStream.Store(time.Now().Add(d).UnixNano()) }

// Download makes a GET whose answer is read as it comes. It ends with ctx, or when the node
// shows no life, and is not repeated when it is cut.
func (c *Cluster) Download(ctx context.Context, r *Request) (io.ReadCloser, error) {
	// It limits how long a node is looked for. The download ends with ctx.
	choosing, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	a := c.newAttempts(Op{Name: http.MethodGet, Subject: r.Path}, Reading)
	for {
		n, err := a.nextNode(choosing)
		if err != nil {
			return nil, err
		}
		d, err := c.downloadFrom(ctx, n, r)
		if err == nil {
			return d, nil
		}

		// Nothing was read yet, so another node may begin.
		if done, err := a.judge(choosing, n, classify(err, true)); done {
			return nil, err
		}
	}
}

// download is an answer on its way.
type download struct {
	body  io.ReadCloser
	since atomic.Int64 // when the node was last waited for, Unix nanoseconds; 0 while nobody waits
	stop  func()
}

// downloadFrom begins a download at one node. It is guarded until it is closed.
func (c *Cluster) downloadFrom(ctx context.Context, n *Node, r *Request) (*download, error) {
	d := &download{}
	d.since.Store(time.Now().UnixNano())

	// Only the time in which somebody waits for the node counts as silence, not that of a slow
	// reader.
	var guarded context.Context
	guarded, d.stop = c.guard(ctx, n, func() time.Duration { return quietTime(&d.since) })
	resp, err := c.roundTrip(guarded, n, r)
	if err != nil {
		d.stop()
		return nil, err
	}
	// Until the first Read nobody waits for the node.
	d.since.Store(0)
	d.body = resp.Body
	return d, nil
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	// The guard reads it from its own goroutine.
	d.since.Store(time.Now().UnixNano())
	defer d.since.Store(0)
	return d.body.Read(p)
}

// Close implements io.Closer.
func (d *download) Close() error {
	d.stop()
	return d.body.Close()
}
