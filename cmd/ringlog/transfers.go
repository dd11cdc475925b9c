package main

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/internal/platform/transfers"
)

// transfersCommand is transfers: what is copied to which host.
func transfersCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "transfers", Usage: "list data syncs and model distributions, from request to completion",
		UsageText: shell.Examples("ringlog transfers", "ringlog transfers --host gpu-7 --state failed",
			"ringlog transfers --overdue"),
		Description: "Follows the events DATA_SYNC_*, MODEL_DISTRIBUTION_*, SYNC_* and others, see docs/transfers.md.\n" +
			"The oldest come first. Of a host, the open ones and the last 200 that ended are known.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "host", Usage: "only list those to `HOST`"},
			&cli.StringFlag{Name: "state", Usage: "only list those in `STATE`: " + strings.Join(transfers.States(), ", ")},
			&cli.BoolFlag{Name: "overdue", Usage: "only list open ones of which nothing was heard for too long"},
			&cli.IntFlag{Name: "limit", Usage: "list at most `N`; 0 lists all", Value: 1000},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			q := url.Values{}
			for _, name := range []string{"host", "state"} {
				if c.IsSet(name) {
					q.Set(name, c.String(name))
				}
			}
			if c.Bool("overdue") {
				q.Set("overdue", "true")
			}
			limit := c.Int("limit")
			// 0 becomes the largest number below: the pages end by themselves.
			if limit < 0 {
				return shell.Usagef("--limit %d: give 0 or more", limit)
			}
			return listTransfers(c.Context, sh, q, cmp.Or(limit, math.MaxInt))
		}),
	}
}

// listTransfers prints up to limit transfers.
func listTransfers(ctx context.Context, sh *shell.Shell, q url.Values, limit int) error {
	var list []api.Transfer
	next, missing := "", ""
	// The last page says whether there are more, and whether the node lacks events that were trimmed.
	err := upTo(ctx, sh, "/v1/transfers", q, limit, func(p *api.TransferPage) (int, string) {
		list = append(list, p.Transfers...)
		next, missing = p.Next, p.Incomplete
		return len(list), p.Next
	})
	if err != nil {
		return err
	}
	// The time shown is that of the step by which the transfer is in its state.
	header := table.Row{"kind", "name", "to", "from", "version", "state", "since", "bytes", "retries", "id", "error"}
	err = shell.EmitEach(sh, "transfer", list, header, func(x api.Transfer) table.Row {
		return table.Row{x.Kind, x.Name, x.Host, x.From, x.Version, transferState(&x), shell.Time(lastStep(&x).At),
			shell.Size(x.Bytes), x.Retries, x.ID, x.Error}
	})
	if err == nil && next != "" {
		sh.Say("there are more: --limit 0 lists all")
	}
	sayMissing(sh, missing)
	return err
}

// upTo goes through the pages of a list until add, which returns how many it has and the key of the next page, has
// limit of them.
func upTo[P any](ctx context.Context, sh *shell.Shell, path string, q url.Values, limit int,
	add func(*P) (int, string)) error {
	// A page has at most MaxLimit entries, so the last one may be smaller.
	for have, next := 0, "-"; have < limit && next != ""; {
		q.Set("limit", strconv.Itoa(min(limit-have, transfers.MaxLimit)))
		var page P
		if err := sh.Call(ctx, http.MethodGet, path, q, nil, &page); err != nil {
			return err
		}
		have, next = add(&page)
		q.Set("after", next)
	}
	return nil
}

// sayMissing says what is not in an answer; missing "" is nothing.
func sayMissing(sh *shell.Shell, missing string) {
	if missing != "" {
		sh.Say("%s: what they say is not in this list", missing)
	}
}

// transferState is the state of a transfer for people. One remark at most is added: what needs attention before
// what is known of the copy.
func transferState(x *api.Transfer) string {
	switch {
	case x.Overdue:
		return x.State + ", overdue"
	case x.Stalled != nil && x.Ended == nil:
		return x.State + ", stalled"
	case x.Checked != "":
		return x.State + ", " + x.Checked
	}
	return x.State
}

// lastStep is the step by which a transfer is in its state, zero if the answer has none.
func lastStep(x *api.Transfer) api.TransferStep {
	if step := cmp.Or(x.Ended, x.Stalled, x.Started, x.Requested); step != nil {
		return *step
	}
	return api.TransferStep{}
}

// whereCommand is where: which hosts have a dataset or model.
func whereCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "where", Usage: "list which hosts have a dataset or model, or what a host has", ArgsUsage: "[NAME]",
		UsageText: shell.Examples("ringlog where hex8_2p", "ringlog where --host gpu-7"),
		Description: "By the events that say so: a completed transfer, or DATABASE_CREATED. What was deleted since " +
			"without\nan event is still listed. Exit code 4 if there is no copy.",
		Flags: []cli.Flag{&cli.StringFlag{Name: "host", Usage: "list what `HOST` has, in place of NAME"}},
		Action: func(c *cli.Context) error {
			name, host := c.Args().First(), c.String("host")
			// Exactly one of the two.
			if c.Args().Len() > 1 || (name == "") == (host == "") {
				return shell.Usagef("give the name of a dataset or model, or --host")
			}
			if host != "" {
				return listCopies(c.Context, sh, "/v1/where", url.Values{"host": {host}},
					host+" has no copy that the log knows")
			}
			return listCopies(c.Context, sh, "/v1/where/"+url.PathEscape(name), url.Values{},
				fmt.Sprintf("no host has a copy of %q that the log knows", name))
		},
	}
}

// listCopies prints the copies that a route answers; none is said as it is given.
func listCopies(ctx context.Context, sh *shell.Shell, path string, q url.Values, none string) error {
	// All pages are read before anything is printed: an empty list is an error.
	var list []api.Copy
	missing := ""
	err := upTo(ctx, sh, path, q, math.MaxInt, func(p *api.CopyPage) (int, string) {
		list = append(list, p.Copies...)
		missing = p.Incomplete
		return len(list), p.Next
	})
	if err != nil {
		return err
	}
	sayMissing(sh, missing)
	// No copy has an exit code of its own, so that a script can ask whether there is one.
	if len(list) == 0 {
		return shell.NotFoundf("%s", none)
	}
	header := table.Row{"name", "kind", "host", "version", "bytes", "checked", "since", "from", "offset"}
	return shell.EmitEach(sh, "copy", list, header, func(x api.Copy) table.Row {
		host := x.Host
		if x.HostGone {
			host += " (terminated)"
		}
		return table.Row{x.Name, x.Kind, host, x.Version, shell.Size(x.Bytes), x.Checked, shell.Time(x.Since), x.From,
			x.Offset}
	})
}
