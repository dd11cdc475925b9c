package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/ringrift/ringlog/api"
)

// View is a view as the node that answers has it.
type View = api.View

// ViewRows are rows of a view, all as of one offset.
type ViewRows = api.ViewRows

// ViewChange is a row that has changed, as it is at an offset.
type ViewChange = api.ViewChange

// DefineView defines a view, or defines it otherwise: all nodes then fold the log again, from its beginning. The
// declaration is JSON, see docs/views.md. The same declaration again changes nothing.
func (a *Admin) DefineView(ctx context.Context, name string, declaration []byte) (View, error) {
	var v View
	err := a.Do(ctx, http.MethodPut, viewPath(name), nil, json.RawMessage(declaration), &v)
	return v, err
}

// Views returns all views, by name, as far as the node that answers has folded them.
func (a *Admin) Views(ctx context.Context) ([]View, error) {
	var all api.Views
	err := a.Do(ctx, http.MethodGet, "/v1/views", nil, nil, &all)
	return all.Views, err
}

// View returns one view with its declaration.
func (a *Admin) View(ctx context.Context, name string) (View, error) {
	var v View
	err := a.Do(ctx, http.MethodGet, viewPath(name), nil, nil, &v)
	return v, err
}

// RemoveView removes a view and returns it as it was.
func (a *Admin) RemoveView(ctx context.Context, name string) (View, error) {
	var v View
	err := a.Do(ctx, http.MethodDelete, viewPath(name), nil, nil, &v)
	return v, err
}

// ViewRead says as of which offset rows are read. The zero value reads what the node that answers has folded.
type ViewRead struct {
	At        uint64 // as of this offset exactly, which may be past; 0 is now
	MinOffset uint64 // as of this offset or a later one
	// Linearizable reads rows into which all that was acknowledged before the call is folded.
	Linearizable bool
}

// query has the parameters of a read.
func (r ViewRead) query() url.Values {
	q := url.Values{}
	if r.At > 0 {
		q.Set("at", strconv.FormatUint(r.At, 10))
	}
	if r.MinOffset > 0 {
		q.Set("min_offset", strconv.FormatUint(r.MinOffset, 10))
	}
	if r.Linearizable {
		q.Set("consistency", "linearizable")
	}
	return q
}

// ViewRow returns the row of a key, as JSON, and the offset as of which it is. The error's code is not_found if there
// is none, and trimmed if the row has changed since and what it was folded from is gone.
func (a *Admin) ViewRow(ctx context.Context, name, key string, read ViewRead) (json.RawMessage, uint64, error) {
	q := read.query()
	q.Set("key", key)
	var rows ViewRows
	if err := a.Do(ctx, http.MethodGet, viewPath(name)+"/rows", q, nil, &rows); err != nil {
		return nil, 0, err
	}

	// A node answers not_found for a key without a row, so anything else is a fault.
	if len(rows.Rows) != 1 {
		return nil, 0, fmt.Errorf("client: row %q of view %q: %d rows in the answer", key, name, len(rows.Rows))
	}
	return rows.Rows[0], rows.At, nil
}

// ViewRows goes through the rows of a view, as JSON, in the order of their keys. Pages are read one after the other:
// with At in read all of them are as of that offset, otherwise each is as of its own. An error is the
// last that it yields.
func (a *Admin) ViewRows(ctx context.Context, name string, read ViewRead) iter.Seq2[json.RawMessage, error] {
	open := func(p *ViewRows) ([]json.RawMessage, string) { return p.Rows, p.Next }
	return eachOfPages(ctx, a, viewPath(name)+"/rows", read.query(), open)
}

// WatchView yields the rows of a view, and then each that changes, as the node that answers folds the log; changes of a
// row that follow each other quickly are one. With keys it yields those rows alone. It ends with ctx, with the view,
// and when the connection is lost: the error is the last that it yields, and another call begins with all rows again.
func (a *Admin) WatchView(ctx context.Context, name string, keys ...string) iter.Seq2[ViewChange, error] {
	return func(yield func(ViewChange, error) bool) {
		body, err := a.Download(ctx, viewPath(name)+"/watch", url.Values{"key": keys})
		if err != nil {
			yield(ViewChange{}, err)
			return
		}
		defer body.Close()
		lines := bufio.NewReader(body)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF // the last line is its end
				}
				yield(ViewChange{}, fmt.Errorf("client: watch view %q: %w", name, err))
				return
			}
			// A blank line says that the node is there.
			if len(line) == 1 {
				continue
			}
			var got struct {
				ViewChange
				End *struct {
					Reason string     `json:"reason"`
					Error  *api.Error `json:"error"`
				} `json:"end"`
			}
			if err := json.Unmarshal(line, &got); err != nil {
				yield(ViewChange{}, fmt.Errorf("client: watch view %q: %w", name, err))
				return
			}
			// The last line says why there are no more.
			if got.End != nil {
				err := fmt.Errorf("client: watch view %q: it has ended: %s", name, got.End.Reason)
				if got.End.Error != nil {
					err = got.End.Error
				}
				yield(ViewChange{}, err)
				return
			}
			if !yield(got.ViewChange, nil) {
				return
			}
		}
	}
}

// viewPath is the route of a view.
func viewPath(name string) string { return "/v1/views/" + url.PathEscape(name) }
