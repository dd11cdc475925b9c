package service

import (
	"context"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/platform/transfers"
	"github.com/ringrift/ringlog/internal/view/engine"
)

// Transfers holds the operations on transfers and on the copies that they leave. They are rows of a built-in view,
// which every node folds for itself.
type Transfers struct {
	*core
	engine *engine.Engine
}

// List returns a page of transfers. With current, all that the log of this node has is in it. All of a page is as of
// one offset.
func (t *Transfers) List(ctx context.Context, q transfers.Query, current bool) (page api.TransferPage, err error) {
	// Replicated time does not advance while nothing is appended, and a transfer gets overdue all the same.
	q.Now = time.Now().UTC()
	if replicated := t.Machine().Time(); replicated.After(q.Now) {
		q.Now = replicated
	}
	err = t.read(ctx, current, func(r *engine.Reader) error {
		page, err = transfers.List(r.Stored(), q)
		page.Offset, page.Incomplete, page.Time = r.At, incomplete(&r.Status), q.Now
		return err
	})
	return page, err
}

// Where returns a page of the copies of a dataset or model.
func (t *Transfers) Where(ctx context.Context, name, after string, limit int, current bool) (api.CopyPage, error) {
	return t.copies(ctx, name, after, limit, current, transfers.Where)
}

// Held returns a page of the copies that a host has.
func (t *Transfers) Held(ctx context.Context, host, after string, limit int, current bool) (api.CopyPage, error) {
	return t.copies(ctx, host, after, limit, current, transfers.Held)
}

// copies returns a page of copies, by what they are of.
func (t *Transfers) copies(ctx context.Context, of, after string, limit int, current bool,
	list transfers.CopyList) (page api.CopyPage, err error) {
	err = t.read(ctx, current, func(r *engine.Reader) error {
		page, err = list(r.Stored(), of, after, limit)
		page.Offset, page.Incomplete = r.At, incomplete(&r.Status)
		return err
	})
	return page, err
}

// read calls use with the rows of the view. With current it waits until the view has folded what this node's log has
// now. Errors are those of viewError.
func (t *Transfers) read(ctx context.Context, current bool, use func(*engine.Reader) error) error {
	// Else the page is as far as the view is, which is in it.
	if current {
		_, last := t.Machine().Log().Bounds()
		if err := t.engine.Wait(ctx, transfers.Name, last); err != nil {
			return viewError("transfers", err)
		}
	}
	if err := t.engine.Read(transfers.Name, use); err != nil {
		return viewError("transfers", err)
	}
	return nil
}
