package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// waitCommand is wait, for scripts that need to know that consumers have handled an event. It exits 5 if they have
// not in time.
func waitCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "wait", Usage: "wait until cursors have committed an offset",
		UsageText: shell.Examples(
			"ringlog wait --offset 7 --cursors trainer",
			"ringlog wait --offset 7 --cursors trainer,evaluators --timeout 1m",
		),
		Description: "Waits up to --timeout, across changes of leaders; then exits 5 and reports how many offsets " +
			"each has\nleft. The offset may be one that is not appended yet.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "offset", Usage: "`OFFSET` that all cursors must have committed"},
			&cli.StringFlag{Name: "cursors", Usage: "comma-separated `NAMES` of the cursors"},
		},
		Action: shell.NoArgs(func(c *cli.Context) error {
			// Neither has a default that would be safe to wait for.
			if !c.IsSet("offset") || !c.IsSet("cursors") {
				return shell.Usagef("--offset N and --cursors NAMES are required")
			}
			offset, err := shell.ParseOffset(c.String("offset"))
			if err != nil {
				return err
			}
			return waitFor(c.Context, sh, offset, c.String("cursors"))
		}),
	}
}

// Bounds of one request of a wait.
const (
	pollFor  = 10 * time.Second       // how long a node waits at most before it answers that the offset is not reached
	pollOver = 500 * time.Millisecond // of the time that is left, for the answer to arrive
	pollLast = 50 * time.Millisecond  // with less time left, nobody is asked again

	repeatFor = 3 * time.Second // how much longer a request is repeated than a node waits
)

// waitFor asks until all cursors have committed the offset, or --timeout is over, which bounds all of it.
func waitFor(ctx context.Context, sh *shell.Shell, offset uint64, cursors string) (err error) {
	// One request takes longer than other calls: the node holds it until the offset is reached.
	deadline := time.Now().Add(sh.Timeout)
	waiting, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	c, err := sh.DialReachable(waiting, func(cfg *client.Config) { cfg.Timeout = pollFor + repeatFor })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// The first answer comes at once: if the time is over before a later one, it says who lags.
	last, err := askWait(waiting, c, offset, cursors, 0)
	// One request waits for a short time only, so a change of leaders is noticed; the loop waits for the rest.
	for err == nil && !last.Reached && time.Until(deadline) > pollLast {
		// What is left for the answer: half a second, or a quarter if there is less than two seconds left.
		left := time.Until(deadline)
		var w api.Wait
		w, err = askWait(waiting, c, offset, cursors, min(pollFor, left-min(pollOver, left/4)))
		if err == nil {
			last = w
		}
	}
	// If the time is over and one answer has come, it is printed in place of an error.
	err = sh.ExplainTimeout(context.WithoutCancel(ctx), err)
	if known := last.Cursors != nil; err != nil && (!known || shell.ExitCode(err) != shell.ExitTimeout) {
		return err
	}
	if err := printWaited(sh, last); err != nil || last.Reached {
		return err
	}
	// A node answers without a quorum as well, but nothing is committed then. ctx may have run out.
	asking, stop := context.WithTimeout(context.WithoutCancel(ctx), shell.NodeWithin)
	defer stop()
	if s, _, err := anyStatus(asking, sh); err == nil && (s.Outage != nil || s.Quorum.Margin < 0) {
		sh.Say("no quorum: see ringlog cluster outage")
	}
	return shell.CodeError(shell.ExitTimeout)
}

// askWait lets a node wait for poll, and returns where the cursors are then.
func askWait(ctx context.Context, c *client.Client, offset uint64, cursors string,
	poll time.Duration) (w api.Wait, err error) {
	// A node refuses a wait of 0.
	poll = max(poll, time.Millisecond)
	query := url.Values{"offset": {strconv.FormatUint(offset, 10)}, "cursors": {cursors}, "timeout": {poll.String()}}
	return w, c.Admin().Do(ctx, http.MethodGet, "/v1/wait", query, nil, &w)
}

// printWaited prints where the cursors are, and which have not committed the offset.
func printWaited(sh *shell.Shell, w api.Wait) error {
	err := sh.Emit(w, func() error {
		// All cursors are printed, those that have committed it, too.
		rows := make([]table.Row, len(w.Cursors))
		for i, c := range w.Cursors {
			rows[i] = table.Row{c.Name, c.Committed, c.Lag}
		}
		// The lag of a cursor counts only the events that match its filter.
		return sh.Table(table.Row{"name", "committed", "offsets left"}, rows)
	})
	if err != nil || w.Reached {
		return err
	}
	// Out of time: say who has not committed the offset, and whether the log has it at all.
	var missing []string
	for _, c := range w.Cursors {
		if !c.Reached {
			missing = append(missing, fmt.Sprintf("%s has committed %d, %s left", c.Name, c.Committed,
				shell.Count(c.Lag, "offset")))
		}
	}
	if w.LastOffset < w.Offset {
		missing = append(missing, fmt.Sprintf("the log ends at %d", w.LastOffset))
	}
	sh.Say("ringlog: not committed after %s: %s", shell.Short(sh.Timeout), strings.Join(missing, "; "))
	return nil
}
