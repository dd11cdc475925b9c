package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/ringrift/ringlog/client/internal/calls"
)

// Body is a request body of any kind, for Do.
type Body struct {
	ContentType string
	Data        []byte
}

// Do makes one call of the HTTP interface, at any node that can serve it. in is sent
// as JSON, a []byte, json.RawMessage or Body as it is, nil as no body; out is filled
// from the answer, a *[]byte with it as it is, nil is none. GET, PUT and DELETE are
// repeated if an answer was lost; for a POST the error then wraps
// ErrOutcomeUnknown.
func (a *Admin) Do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	return a.doAside(ctx, false, method, path, query, in, out)
}

// doAside is Do. With aside the leader is asked only if no other node answers.
func (a *Admin) doAside(
	ctx context.Context, aside bool, method, path string, query url.Values, in, out any,
) error {
	op := calls.Op{Name: method, Subject: path, Aside: aside}
	return a.do(ctx, op, method, path, query, in, out, func(ctx context.Context, attempt calls.AttemptFunc) error {
		return a.c.cluster.CallWhileAlive(ctx, op, repeatOf(method), attempt)
	})
}

// DoAt is Do at one node, by its URL or host:port, and once.
func (a *Admin) DoAt(ctx context.Context, node, method, path string, query url.Values, in, out any) error {
	op := calls.Op{Name: method, Subject: path + " at " + node}
	base, err := calls.BaseURL(node, "http")
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return a.do(ctx, op, method, path, query, in, out, func(ctx context.Context, attempt calls.AttemptFunc) error {
		return a.c.cluster.CallNode(ctx, base, op, repeatOf(method), attempt)
	})
}

// do encodes in, makes a call and decodes the answer.
func (a *Admin) do(ctx context.Context, op calls.Op, method, path string, query url.Values, in, out any,
	call func(context.Context, calls.AttemptFunc) error) error {
	body, err := bodyOf(in)
	if err != nil {
		return fmt.Errorf("client: %s: %w", op, err)
	}
	ctx, cancel := a.c.whileOpen(ctx)
	defer cancel()

	// The body is encoded once: all attempts send the same bytes.
	req := &calls.Request{Method: method, Path: path, Query: query, ContentType: body.ContentType, Body: body.Data}
	var answer []byte
	err = call(ctx, func(ctx context.Context, n *calls.Node) (header http.Header, err error) {
		answer, header, err = a.c.cluster.Exchange(ctx, n, req)
		return header, err
	})
	if err != nil {
		return err
	}
	if err := decodeAnswer(out, answer); err != nil {
		return fmt.Errorf("client: %s: %w", op, err)
	}
	return nil
}

// Download makes a GET whose answer is read as it comes, such as a backup. The
// caller closes it. It ends with ctx, or when the node shows no life, and is not repeated when
// it is cut.
func (a *Admin) Download(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	open, cancel := a.c.whileOpen(ctx)
	body, err := a.c.cluster.Download(open, &calls.Request{Method: http.MethodGet, Path: path, Query: query})
	if err != nil {
		cancel()
		return nil, err
	}
	return &download{body, cancel}, nil
}

// download is an answer on its way.
type download struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (d *download) Close() error {
	defer d.cancel()
	return d.ReadCloser.Close()
}

// repeatOf returns how far a call may be repeated after a lost answer: GET reads, PUT and
// DELETE may be made twice, POST may not.
func repeatOf(method string) calls.Repeat {
	switch method {
	case http.MethodPost:
		return calls.Once
	case http.MethodGet:
		return calls.Reading
	}
	return calls.Idempotent
}

// bodyOf encodes what Do was given.
func bodyOf(in any) (Body, error) {
	const asJSON = "application/json"

	// A body that is encoded already is sent as it is.
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

// decodeAnswer is the reverse of bodyOf.
func decodeAnswer(out any, answer []byte) error {
	switch v := out.(type) {
	case nil:
		return nil
	case *[]byte:
		*v = answer
		return nil
	}
	return json.Unmarshal(answer, out)
}
