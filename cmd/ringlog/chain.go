package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/platform/stages"
)

// chainCommand is chain: the events of one run against the flows. The node compares them, and
// judges deadlines by its own clock; this program prints the answer, or follows it.
func chainCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "chain", Usage: "show the stages of a run: their durations, and what is missing",
		ArgsUsage: "RUN",
		UsageText: shell.Examples(
			"ringlog chain run-42",
			"ringlog chain run-42 --flow training_pipeline --format mermaid",
		),
		Description: "Compares the events of one run with the flows, see ringlog flow ls. RUN is their correlation id.\n" +
			"Where a flow has run_by, RUN is what its payload fields name the run by, as in\n" +
			"config_key=hex8_2p,iteration=7. Such a run is looked for in the newest 1 000 000 events, unless --from\n" +
			"names another place than the start. If the events of a correlation id are of such runs, these are listed.\n" +
			"FILE sets deadlines of edges: {\"training_pipeline\": {\"TRAINING_STARTED->TRAINING_COMPLETED\": " +
			"\"6h\"}}. An edge that is\n" +
			"missing for longer is overdue, by the clock of the answering node. Without FILE the\n" +
			"setting chain.deadlines applies.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "flow", Usage: "only show the flow `NAME`"},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT`: text, json or mermaid", Value: "text"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "keep running and print changes"},
			&cli.StringFlag{Name: "from", Usage: "start reading the log at `WHERE`: " + api.PositionForms,
				Value: "start"},
			&cli.StringFlag{Name: "deadlines", Usage: "`FILE` with the deadlines of edges",
				EnvVars: []string{"RINGLOG_CHAIN_DEADLINES"}},
			&cli.BoolFlag{Name: "fail-overdue",
				Usage: "exit 1 if an edge is overdue; with --follow, as soon as one is"},
		},
		Action: shell.Args(1, "the id of a run", func(c *cli.Context) error {
			o, err := chainOptionsOf(sh, c)
			if err != nil {
				return err
			}
			if o.follow {
				return followChain(c.Context, sh, o)
			}
			return showChain(c.Context, sh, o)
		}),
	}
}

// chainOptions say which chain to print and how.
type chainOptions struct {
	id    string     // of the run
	query url.Values // of the route: where to begin, flow, deadlines
	// text, json or mermaid
	format stages.Format
	// print again what each new event changes
	follow bool
	// exit 1 if an edge is overdue
	failOverdue bool
}

// chainOptionsOf reads the flags.
func chainOptionsOf(sh *shell.Shell, c *cli.Context) (o chainOptions, err error) {
	o = chainOptions{id: c.Args().First(), query: url.Values{}, follow: c.Bool("follow"),
		failOverdue: c.Bool("fail-overdue")}
	// An empty argument, such as a variable that is not set, would ask for another route.
	if o.id == "" {
		return o, shell.Usagef("chain: the id of the run is empty")
	}
	o.format, err = stages.ParseFormat(c.String("format"))
	if err != nil {
		return o, shell.Usagef("--format %q: use text, json or mermaid", c.String("format"))
	}
	// The global --json means the format json, and contradicts any other.
	switch {
	case sh.JSON && c.IsSet("format") && o.format != stages.JSON:
		return o, shell.Usagef("--format %s and JSON output exclude each other", o.format)
	case sh.JSON:
		o.format = stages.JSON
	case o.follow && o.format == stages.Mermaid:
		return o, shell.Usagef("--follow prints text or json, not %s", o.format)
	}
	from, err := shell.ParsePosition("from", c.String("from"))
	if err != nil {
		return o, err
	}
	// In the query the position has its canonical text; ages are resolved by the node.
	o.query.Set("from", from.String())
	if name := c.String("flow"); name != "" {
		o.query.Set("flow", name)
	}
	// The node judges the deadlines: they travel in the query.
	d, err := readDeadlines(c.Context, sh, c.String("deadlines"))
	o.query["deadline"] = d.Texts()
	if err == nil && o.failOverdue && len(d) == 0 {
		err = shell.Usagef("--fail-overdue needs --deadlines: without them nothing is overdue")
	}
	return o, err
}

// readDeadlines reads the file of deadlines; without one there are none.
func readDeadlines(ctx context.Context, sh *shell.Shell, file string) (stages.Deadlines, error) {
	// The setting of the cluster applies then.
	if file == "" {
		return nil, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, shell.Usagef("--deadlines: %w", err)
	}
	// Checked here, so the error names the file; the node gets them as texts. Only a flow that this program lacks
	// makes it ask the cluster.
	d, err := stages.ReadDeadlines(event.Builtin(), raw)
	if errors.Is(err, stages.ErrNoFlow) {
		var known *event.Catalogue
		failed := sh.WithClient(ctx, func(ctx context.Context, c *client.Client) (err error) {
			known, err = clusterFlows(ctx, c)
			return err
		})
		if failed != nil {
			return nil, failed
		}
		d, err = stages.ReadDeadlines(known, raw)
	}
	if err != nil {
		return nil, shell.Usagef("--deadlines %s: %w", file, err)
	}
	return d, nil
}

// path is the route of the chain.
// An id may have any characters, slashes too.
func (o *chainOptions) path() string { return "/v1/chain/" + url.PathEscape(o.id) }

// out is where the chain is written: text fits a terminal, the other formats are for programs.
func (o *chainOptions) out(sh *shell.Shell) io.Writer {
	if o.format == stages.Text {
		return sh.Wrapped()
	}
	return sh.Out
}

// showChain prints the chain as it is now.
func showChain(ctx context.Context, sh *shell.Shell, o chainOptions) error {
	var chain stages.Chain
	// A chain without any event is an error of the node: not found.
	if err := sh.Call(ctx, http.MethodGet, o.path(), o.query, nil, &chain); err != nil {
		return err
	}
	if err := chain.Write(o.out(sh), o.format); err != nil {
		return err
	}
	return o.verdict(sh, &chain)
}

// verdict returns exit code 1 if --fail-overdue is set and an edge is overdue.
func (o *chainOptions) verdict(sh *shell.Shell, c *stages.Chain) error {
	if !o.failOverdue || c.Overdue == 0 {
		return nil
	}
	// Each overdue edge is named on stderr; the chain itself has been printed.
	for _, r := range c.Flows {
		for _, n := range r.Next {
			if n.Overdue {
				sh.Say("overdue: %s after %s, for %s; the deadline is %s", n.To, n.From,
					shell.Seconds(n.WaitingSeconds), shell.Seconds(n.DeadlineSeconds))
			}
		}
	}
	return shell.CodeError(shell.ExitFailed)
}

// followChain prints the chain, and again what changes with each new event and each
// deadline that passes, until it is interrupted.
func followChain(ctx context.Context, sh *shell.Shell, o chainOptions) (err error) {
	// A cluster that cannot be reached is an error at once, as for tail.
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// The end of whoever reads the output ends the following, also while no event comes.
	ctx, stop := sh.WhileRead(ctx)
	defer stop()
	// Events after what the node has now are news; the chain before is asked for as a whole.
	status, err := c.Admin().Status(ctx)
	if err != nil {
		return sh.ExplainTimeout(context.WithoutCancel(ctx), err)
	}
	// The flows of the cluster decide by which events a run may be named.
	known, err := clusterFlows(ctx, c)
	if err != nil {
		return err
	}
	// Reading is stopped by itself: run may end with an error while events still come.
	reading, stopReading := context.WithCancel(ctx)
	news := newsOf(reading, c, o.id, known.Flows(), status.LastOffset+1)
	// The reader of events is the last to be stopped and is waited for, so it uses no closed client.
	defer func() {
		stopReading()
		for range news { // until its reader has ended
		}
	}()
	f := chainFollower{sh: sh, options: o, client: c, seen: status.LastOffset}
	err = f.run(ctx, news)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // Ctrl-C, or nobody reading any more, is how it ends
	}
	return err
}

// link is a new event of a chain, or why there will be no more.
type link struct {
	// of the event; 0 with an error
	offset uint64
	// what ended the reading, or nil
	err error
}

// newsOf reports the events of a chain from an offset on. The channel is closed when ctx
// is over, or after an error.
func newsOf(ctx context.Context, c *client.Client, id string, flows []event.Flow, from uint64) <-chan link {
	// Of a run that payload fields may name, the stages of its flows are read. Only the node knows to which run a stage
	// belongs that names none: it is asked.
	flows = slices.DeleteFunc(slices.Clone(flows), func(f event.Flow) bool { return !f.MayName(id) })
	// Without such a flow the run is a correlation id, by which the node filters.
	filter := event.Filter{CorrelationIDs: []string{id}}
	if len(flows) > 0 {
		filter = event.FilterOf(flows)
	}
	ofRun := func(ev *event.Event) bool {
		if len(flows) == 0 {
			return true
		}
		// Flows that may name the same run name it by the same fields.
		named := flows[0].RunOf(ev.Payload)
		return named == id || (named == "" && ev.CorrelationID != "")
	}
	// The channel has no buffer: a follower that prints slowly slows the reading down, and loses nothing.
	news := make(chan link)
	go func() {
		defer close(news)
		// A tail that follows ends with ctx or with an error.
		for ev, err := range c.Tail(ctx, client.TailOptions{From: client.FromOffset(from), Filter: filter}) {
			if gap := (*client.GapError)(nil); errors.As(err, &gap) {
				continue // the chain says where the log begins
			}
			if err == nil && !ofRun(&ev) {
				continue
			}
			select {
			case news <- link{ev.Offset, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return news
}

// chainFollower prints a chain as it grows.
type chainFollower struct {
	sh      *shell.Shell
	options chainOptions // printNews sets min_offset in the query
	client  *client.Client
	seen    uint64 // an offset that the answering node must have
	printed uint64 // the newest offset printed
	overdue int    // as printed
	// begun is set once the chain, or that it has no event yet, has been printed.
	begun bool
}

// run prints news until the events end or fail.
func (f *chainFollower) run(ctx context.Context, news <-chan link) error {
	for {
		due, err := f.printNews(ctx)
		if err != nil {
			return err
		}
		// Wait for an event of the chain, or until the next edge is overdue.
		// A nil channel never fires: without a deadline only an event wakes the follower.
		var alarm <-chan time.Time
		// due is in the future, if only by a millisecond.
		if due > 0 {
			alarm = time.After(due)
		}
		select {
		case <-alarm:
		case n, more := <-news:
			if !more {
				return context.Cause(ctx)
			}
			if n.err != nil {
				return n.err
			}
			// The next answer has to come from a node that has this event.
			f.seen = max(f.seen, n.offset)
		}
	}
}

// printNews fetches the chain, prints what is new, and returns how long it is until the next edge is
// overdue; 0 is never.
func (f *chainFollower) printNews(ctx context.Context) (due time.Duration, err error) {
	// The node must have the event that is the reason to ask.
	f.options.query.Set("min_offset", strconv.FormatUint(f.seen, 10))
	// One question has a limit of its own; the following as a whole has none.
	asking, cancel := context.WithTimeout(ctx, f.sh.Timeout)
	defer cancel()
	var chain stages.Chain
	err = f.client.Admin().Do(asking, http.MethodGet, f.options.path(), f.options.query, nil, &chain)
	// A chain without events may still get some.
	if answer, ok := errors.AsType[*api.Error](err); ok && answer.Code == api.NotFound {
		if !f.begun {
			f.begun = true
			f.sh.Say("no event has the correlation id %s yet", f.options.id)
		}
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	// Printed before the verdict, so the reason for the exit code is on the screen.
	if err := f.print(&chain); err != nil {
		return 0, err
	}
	// The next deadline is when to ask again, even if no event arrives.
	if at := chain.NextDeadline(); !at.IsZero() {
		due = max(at.Sub(chain.Now), 0) + time.Millisecond // past it, not at it
	}
	return due, f.options.verdict(f.sh, &chain)
}

// print prints the whole chain the first time, and each time as JSON; else it prints only what is new.
func (f *chainFollower) print(c *stages.Chain) (err error) {
	// Without a new event, and without a newly overdue edge, there is nothing to print.
	// A chain has an event, or the node would have answered that it is not found.
	newest := c.Events[len(c.Events)-1].Offset
	switch {
	case newest <= f.printed && c.Overdue == f.overdue:
		return nil
	case f.printed == 0 || f.options.format == stages.JSON:
		err = c.Write(f.options.out(f.sh), f.options.format)
	default:
		_, err = fmt.Fprintln(f.sh.Out)
		if err == nil {
			err = c.WriteNews(f.options.out(f.sh), f.printed)
		}
	}
	// The lines are noted as printed even if printing failed: the error ends the run.
	f.printed, f.overdue, f.begun = cmp.Or(newest, f.printed), c.Overdue, true
	return err
}
