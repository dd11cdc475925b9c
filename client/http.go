package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/ringrift/ringlog/api"
)

// answerError is an error answer over plain HTTP.
type answerError struct {
	api    *api.Error
	header http.Header
}

// Error implements error.
func (e *answerError) Error() string { return e.api.Error() }

// maxAnswer bounds an answer that is kept in memory.
const maxAnswer = 256 << 20

// Body is a request body of any kind, for Do.
type Body struct {
	ContentType string
	Data        []byte
}

// Do makes one call of the HTTP interface, at whatever node can serve it. in is sent
// as JSON, a []byte, json.RawMessage or Body as it is, nil as no body; out is filled
// from the answer, a *[]byte with it as it is, nil is none. GET, PUT and DELETE are
// repeated where an answer was lost; for a POST the error then wraps
// ErrOutcomeUnknown.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	op := method + " " + path
	body, err := bodyOf(in)
	if err != nil {
		return fmt.Errorf("client: %s: %w", op, err)
	}
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()
	var answer []byte
	err = c.callPatiently(ctx, op, repeatable(method), func(ctx context.Context, e *endpoint) (http.Header, error) {
		var header http.Header
		answer, header, err = c.exchange(ctx, e, method, path, query, body)
		return header, err
	})
	if err == nil {
		err = fill(out, answer)
	}
	return named(op, err)
}

// DoAt is Do at one node, by its URL or host:port, and once.
func (c *Client) DoAt(ctx context.Context, node, method, path string, query url.Values, in, out any) error {
	op := method + " " + path + " at " + node
	body, err := bodyOf(in)
	if err != nil {
		return fmt.Errorf("client: %s: %w", op, err)
	}
	base, err := baseURL(node, "http")
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	ctx, cancel := c.whileOpen(ctx)
	defer cancel()
	ctx, cancelTime := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancelTime()
	e := &endpoint{url: base}
	if err := c.learn(ctx, e); err != nil {
		return &callError{op: op, err: err, ended: ErrUnreachable}
	}
	began := time.Now()
	guarded, stop := c.guard(ctx, e, func() time.Duration { return time.Since(began) })
	defer stop()
	watched, sent := traced(guarded)
	answer, _, err := c.exchange(watched, e, method, path, query, body)
	if err != nil {
		f := classify(err, sent.Load())
		told := &callError{op: op, err: f.err, answer: f.final, unknown: f.unknown && repeatable(method) != reading}
		if f.answer == nil {
			told.ended = cmp.Or(context.Cause(guarded), ErrUnreachable)
		}
		return told
	}
	return named(op, fill(out, answer))
}

// named gives an error that does not tell its call the call's name.
func named(op string, err error) error {
	var told *callError
	if err == nil || errors.As(err, &told) {
		return err
	}
	return fmt.Errorf("client: %s: %w", op, err)
}

// exchange makes a request at one node and reads the whole answer.
func (c *Client) exchange(ctx context.Context, e *endpoint, method, path string, query url.Values, body Body) ([]byte, http.Header, error) {
	resp, err := c.roundTrip(ctx, e, method, path, query, body)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return answer, resp.Header, err
}

// Download makes a GET whose answer is read as it comes, such as a backup. The
// caller closes it. It ends with ctx, or when the node shows no life, and is not begun
// anew when it is cut.
func (c *Client) Download(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	choosing, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	t := c.newTries("GET "+path, reading)
	for {
		e, err := t.next(choosing)
		if err != nil {
			return nil, err
		}
		d, err := c.download(ctx, e, path, query)
		if err == nil {
			return d, nil
		}
		if done, err := t.judge(choosing, e, classify(err, true)); done {
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

func (c *Client) download(ctx context.Context, e *endpoint, path string, query url.Values) (*download, error) {
	open, cancel := c.whileOpen(ctx)
	d := &download{}
	d.since.Store(time.Now().UnixNano())
	guarded, stop := c.guard(open, e, func() time.Duration { return silence(&d.since) })
	d.stop = func() {
		stop()
		cancel()
	}
	resp, err := c.roundTrip(guarded, e, http.MethodGet, path, query, Body{})
	if err != nil {
		d.stop()
		return nil, err
	}
	d.since.Store(0)
	d.body = resp.Body
	return d, nil
}

// Read implements io.Reader.
func (d *download) Read(p []byte) (int, error) {
	d.since.Store(time.Now().UnixNano())
	defer d.since.Store(0)
	return d.body.Read(p)
}

// Close implements io.Closer.
func (d *download) Close() error {
	d.stop()
	return d.body.Close()
}

func repeatable(method string) repeat {
	switch method {
	case http.MethodPost:
		return once
	case http.MethodGet:
		return reading
	}
	return anew
}

func bodyOf(in any) (Body, error) {
	const asJSON = "application/json"
	switch v := in.(type) {
	case nil:
		return Body{}, nil
	case Body:
		return v, nil
	case []byte:
		return Body{asJSON, v}, nil
	case json.RawMessage:
		return Body{asJSON, v}, nil
	}
	text, err := json.Marshal(in)
	return Body{asJSON, text}, err
}

func fill(out any, answer []byte) error {
	switch v := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*v = answer
		return nil
	}
	return json.Unmarshal(answer, out)
}

// callPatiently is call for what may take a node long: an attempt ends when the node
// shows no life, not after a time.
func (c *Client) callPatiently(ctx context.Context, op string, r repeat, try attempt) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	t := c.newTries(op, r)
	for {
		e, err := t.next(ctx)
		if err != nil {
			return err
		}
		began := time.Now()
		guarded, stop := c.guard(ctx, e, func() time.Duration { return time.Since(began) })
		watched, sent := traced(guarded)
		header, err := try(watched, e)
		stop()
		if err == nil {
			c.endpoints.worked(e, header.Get(leaderHeader))
			return nil
		}
		if done, err := t.judge(ctx, e, classify(err, sent.Load())); done {
			return err
		}
	}
}

// roundTrip makes a request at one node. Any status but of success is an error.
func (c *Client) roundTrip(ctx context.Context, e *endpoint, method, path string, query url.Values, body Body) (*http.Response, error) {
	target := e.url + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body.Data))
	if err != nil {
		return nil, err
	}
	if body.ContentType != "" {
		req.Header.Set("Content-Type", body.ContentType)
	}
	c.authorize(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, errorAnswer(resp)
}

// errorAnswer reads a node's error. What is not one, say a proxy's page, is made one
// by its status, unless a retry may help.
func errorAnswer(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	var envelope struct {
		Error *api.Error `json:"error"`
	}
	if json.Unmarshal(text, &envelope) == nil && envelope.Error != nil && envelope.Error.Code != "" {
		if envelope.Error.LeaderHTTP == "" {
			envelope.Error.LeaderHTTP = resp.Header.Get(leaderHeader)
		}
		return &answerError{envelope.Error, resp.Header}
	}
	foreign := errors.New(resp.Status + " without an error that ringlog sends")
	if resp.StatusCode >= 500 {
		return foreign
	}
	return &answerError{&api.Error{Code: api.NotImplemented, Message: foreign.Error(), Remedy: "check that the endpoint is a ringlog node"}, resp.Header}
}
