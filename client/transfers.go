package client

import (
	"context"
	"iter"
	"net/url"

	"github.com/ringrift/ringlog/api"
)

// Transfer is a copy of a dataset, model or games to a host, as the log has it.
type Transfer = api.Transfer

// Copy is a dataset, model or games on a host, as the log has it.
type Copy = api.Copy

// TransferFilter chooses transfers. Conditions must all hold; the zero value of one allows all.
type TransferFilter struct {
	Host    string
	State   string // as in Transfer
	Overdue bool
}

// Transfers goes through the transfers that a filter chooses, the oldest first; with Overdue and without a host, those
// first that were due first. What was acknowledged before the call is among them. An error is the last that it yields.
func (a *Admin) Transfers(ctx context.Context, f TransferFilter) iter.Seq2[Transfer, error] {
	q := url.Values{"consistency": {"linearizable"}}
	if f.Host != "" {
		q.Set("host", f.Host)
	}
	if f.State != "" {
		q.Set("state", f.State)
	}
	if f.Overdue {
		q.Set("overdue", "true")
	}
	open := func(p *api.TransferPage) ([]Transfer, string) { return p.Transfers, p.Next }
	return eachOfPages(ctx, a, "/v1/transfers", q, open)
}

// Where goes through the copies of a dataset or model, by kind and host. What was acknowledged before the call is among
// them. An error is the last that it yields.
func (a *Admin) Where(ctx context.Context, name string) iter.Seq2[Copy, error] {
	return a.copies(ctx, "/v1/where/"+url.PathEscape(name), url.Values{})
}

// Held goes through the copies that a host has, by name and kind, as Where does.
func (a *Admin) Held(ctx context.Context, host string) iter.Seq2[Copy, error] {
	return a.copies(ctx, "/v1/where", url.Values{"host": {host}})
}

// copies goes through the copies that a route answers.
func (a *Admin) copies(ctx context.Context, path string, q url.Values) iter.Seq2[Copy, error] {
	q.Set("consistency", "linearizable")
	open := func(p *api.CopyPage) ([]Copy, string) { return p.Copies, p.Next }
	return eachOfPages(ctx, a, path, q, open)
}
