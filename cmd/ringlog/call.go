package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// callCommand is call: publish an event, and wait for the outcome of the run that it starts.
func callCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "call", Usage: "publish an event and wait for the outcome of its run",
		ArgsUsage: "TYPE [PAYLOAD]",
		UsageText: shell.Examples(
			`ringlog call TRAINING_STARTED '{"config_key": "hex8_2p"}' --wait=false`,
		),
		Description: "The outcome is the first event of the run, found by its correlation id or by payload fields (run_by " +
			"of a flow),\n" +
			"that the flows name as an effect of TYPE, or that says that it has failed: TRAINING_COMPLETED or " +
			"TRAINING_FAILED\n" +
			"for TRAINING_STARTED. A duplicate waits for the outcome of the original. It waits up to --timeout, across " +
			"changes of\n" +
			"leaders. Exit codes: 0 success, 1 the run has failed, 5 no outcome in time. ringlog react --answer " +
			"publishes the\n" +
			"outcome of a command as the reply.",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "wait", Usage: "wait for the outcome; with --wait=false print the offset alone",
				Value: true},
			&cli.StringFlag{Name: "reply", Usage: "comma-separated `TYPES`, any of which is the outcome",
				DefaultText: "what the flows name"},
			&cli.StringFlag{Name: "failure",
				Usage:       "comma-separated `TYPES`, any of which says that the run has failed",
				DefaultText: "what the flows and the catalogue name"},
			&cli.StringFlag{Name: "source", Usage: "`NAME` of the event's source, such as a host or a program"},
			&cli.StringFlag{Name: "key", Usage: "ordering `KEY`, such as hex8_2p"},
			&cli.StringFlag{Name: "correlation-id", Usage: "`ID` of the run", DefaultText: "a new one"},
			&cli.StringFlag{Name: "dedup-id", Usage: "deduplicate by this `ID` instead of by content"},
			&cli.BoolFlag{Name: "no-dedup", Usage: "append the event even if it is a duplicate"},
		},
		Action: func(c *cli.Context) error {
			if n := c.Args().Len(); n < 1 || n > 2 {
				return shell.Usagef("call needs an event type, and may have a payload as JSON|@FILE|-")
			}
			o := publishOptions{kind: c.Args().First(), payload: c.Args().Get(1), source: c.String("source"),
				key: c.String("key"), correlationID: c.String("correlation-id"), dedupID: c.String("dedup-id"),
				noDedup: c.Bool("no-dedup")}
			// A command of react publishes in the run of the event that it handles.
			ctx := causedByReaction(c.Context, sh)
			if !c.Bool("wait") {
				if c.IsSet("reply") || c.IsSet("failure") {
					return shell.Usagef("--reply and --failure need --wait")
				}
				// Without an outcome the event still begins a run, which ringlog chain can show.
				if o.correlationID == "" {
					ctx = inRun(ctx)
				}
				return publish(ctx, sh, o)
			}
			// What is not named here the client takes from the flows of the cluster.
			var answers client.CallOptions
			var err error
			if answers.Replies, err = typesOf(c, "reply"); err != nil {
				return err
			}
			if answers.Failures, err = typesOf(c, "failure"); err != nil {
				return err
			}
			return call(ctx, sh, o, answers)
		},
	}
}

// inRun gives what is published a correlation id, unless the event that react runs this program for has one.
func inRun(ctx context.Context) context.Context {
	// The client gives an event what it inherits from its cause, unless it has one of its own.
	if event.Inherit(ctx, event.Event{}).CorrelationID != "" {
		return ctx
	}
	return event.CausedBy(ctx, &event.Event{CorrelationID: uuid.NewString(), Trace: event.TraceOf(ctx)})
}

// typesOf reads a flag that lists types; nil if it is not given.
func typesOf(c *cli.Context, flag string) (types []event.Type, err error) {
	if !c.IsSet(flag) {
		return nil, nil
	}
	for name := range strings.SplitSeq(c.String(flag), ",") {
		name = strings.TrimSpace(name)
		// The client compares types with those that arrive: a pattern would match none.
		if name == "" || strings.ContainsAny(name, "*?") {
			return nil, shell.Usagef("--%s %q: name types, without patterns, as in --%s A_DONE,B_DONE", flag,
				c.String(flag), flag)
		}
		types = append(types, event.Type(name))
	}
	// The filter checks the names as the tail that waits for them does.
	return types, (event.Filter{Types: texts(types)}).Validate()
}

// texts returns types as strings. The filter has strings, since it may have patterns.
func texts(types []event.Type) []string {
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = string(t)
	}
	return names
}

// called is what call prints.
type called struct {
	Success         bool         `json:"success"`          // of the run, not of the call
	Error           string       `json:"error,omitempty"`  // of the reply, if it says why the run has failed
	DurationSeconds float64      `json:"duration_seconds"` // between the two events, as the log has appended them
	Offset          uint64       `json:"offset"`           // of the event, or of the original if it is a duplicate
	Duplicate       bool         `json:"duplicate"`
	CorrelationID   string       `json:"correlation_id"`
	ReplyOffset     uint64       `json:"reply_offset"`
	Reply           *event.Event `json:"reply"` // the whole event
}

// call publishes the event, and prints the outcome of its run.
func call(ctx context.Context, sh *shell.Shell, o publishOptions, answers client.CallOptions) error {
	payload, err := readPayload(sh, o.payload)
	if err != nil {
		return err
	}
	ev := event.New(event.Type(o.kind), payload)
	// Source, key and ids, as publish sets them.
	o.stamp(&ev)
	return sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		r, err := c.Call(ctx, ev, answers)
		if errors.Is(err, client.ErrNoReply) {
			return noReplyError(o.kind)
		}
		if err != nil {
			return err
		}
		// The outcome is printed in both cases. Of a run that has failed the exit code says so, too.
		if err := printCalled(sh, r); err != nil || r.Success {
			return err
		}
		return shell.CodeError(shell.ExitFailed)
	})
}

// noReplyError says how to name an outcome, with the types whose outcome is known that are spelt alike.
func noReplyError(kind string) error {
	// Twenty near types, of which those are named that a flow has a reply to.
	catalogue := event.Builtin()
	near := slices.DeleteFunc(catalogue.Nearest(kind, 20), func(name string) bool {
		return len(catalogue.RepliesTo(event.Type(name)).Success) == 0
	})
	hint := ""
	if len(near) > 0 {
		hint = "; nearest types with a reply: " + strings.Join(near[:min(3, len(near))], ", ")
	}
	return shell.Usagef("no flow names a reply to %s: name it with --reply TYPE, or register a flow that does with "+
		"ringlog flow register%s", kind, hint)
}

// printCalled prints the outcome.
func printCalled(sh *shell.Shell, r client.CallResult) error {
	out := called{Success: r.Success, Error: r.Error, DurationSeconds: r.Duration.Seconds(), Offset: r.Offset,
		Duplicate: r.Duplicate, CorrelationID: r.CorrelationID, ReplyOffset: r.Reply.Offset, Reply: &r.Reply}
	return sh.Emit(out, func() error {
		// The outcome is that of the original's run then.
		if r.Duplicate {
			sh.Say("duplicate of %d; not appended", r.Offset)
		}
		facts := []any{"outcome", map[bool]string{true: "success", false: "failure"}[r.Success]}
		if !r.Success {
			facts = append(facts, "error", oneLine(r.Error))
		}
		return sh.Facts(append(facts, "duration", shell.Short(r.Duration), "event", r.Offset,
			"reply", fmt.Sprintf("%s at %d", r.Reply.Type, r.Reply.Offset), "run", r.CorrelationID)...)
	})
}
