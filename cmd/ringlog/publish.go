package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// publishOptions are the flags: one event, or what all events of the input get.
// With stdin the flags fill in what an event of the input leaves out.
type publishOptions struct {
	kind    string // the event type
	payload string // JSON, @FILE or -
	stdin   bool   // NDJSON events instead

	// fields of the event; "" leaves them out
	source, key, correlationID, causationID, dedupID string
	noDedup                                          bool // append it even if it is a duplicate

	lease client.Lease // of a role; its zero value is none

	at         time.Time // when it is published; the zero time is now
	scheduleID string    // of that; "" is a random one
}

// publishCommand is publish: one event from the flags, or many from the standard input.
func publishCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "publish", Aliases: []string{"pub", "produce"}, Usage: "publish an event, or many with --stdin",
		ArgsUsage: "TYPE | --stdin",
		UsageText: shell.Examples(
			`ringlog publish TRAINING_COMPLETED --payload '{"config_key": "hex8_2p"}'`,
			"ringlog publish TRAINING_STARTED --source trainer-3 --key hex8_2p",
			`echo '{"type": "TRAINING_STARTED", "payload": {}}' | ringlog publish --stdin`,
			"ringlog publish DATA_SYNC_STARTED --at +10m",
		),
		Description: "TYPE is a name, value, alias or dotted topic of the catalogue, in any case; unknown ones " +
			"are accepted\n" +
			"unless validation is strict. --stdin reads events as NDJSON, one per line, in the form that\n" +
			"ringlog tail -o json prints, and keeps their order. If lines are refused, the others are appended\n" +
			"nonetheless, and the exit code is that of the first refusal. In a command of ringlog react, events\n" +
			"inherit the correlation id of its event, and name that as their cause. TRACEPARENT of the environment\n" +
			"is the trace of events that have none.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "payload", Aliases: []string{"p"},
				Usage: "payload, a JSON object: `JSON|@FILE|-`", DefaultText: "{}"},
			&cli.BoolFlag{Name: "stdin", Usage: "read events as NDJSON from the standard input"},
			&cli.StringFlag{Name: "source", Usage: "`NAME` of the event's source, such as a host or a program"},
			&cli.StringFlag{Name: "key", Usage: "ordering `KEY`, such as hex8_2p"},
			&cli.StringFlag{Name: "correlation-id", Usage: "`ID` of the chain that the event belongs to"},
			&cli.StringFlag{Name: "causation-id", Usage: "`ID` of what caused the event"},
			&cli.StringFlag{Name: "dedup-id", Usage: "deduplicate by this `ID` instead of by content"},
			&cli.BoolFlag{Name: "no-dedup", Usage: "append the event even if it is a duplicate"},
			&cli.StringFlag{Name: "at",
				Usage: "have the cluster publish the event at this `TIME`, or after a duration as +10m; " +
					"see ringlog scheduled"},
			&cli.StringFlag{Name: "schedule-id",
				Usage: "with --at: `ID` of the schedule, so that the same command schedules once"},
		}, leaseFlags()...),
		Action: func(c *cli.Context) error {
			// The two ways share the flags that stamp uses.
			o := publishOptions{kind: c.Args().First(), payload: c.String("payload"), stdin: c.Bool("stdin"),
				source: c.String("source"), key: c.String("key"), correlationID: c.String("correlation-id"),
				causationID: c.String("causation-id"), dedupID: c.String("dedup-id"), noDedup: c.Bool("no-dedup")}
			var err error
			o.lease, err = leaseOf(c)
			if err != nil {
				return err
			}
			ctx := causedByReaction(c.Context, sh)
			// A flag that would do nothing is refused.
			if !c.IsSet("at") && c.IsSet("schedule-id") {
				return shell.Usagef("--schedule-id is for --at")
			}
			if c.IsSet("at") {
				// The cluster publishes it later, when no lease of today may be held any more.
				if o.stdin || o.lease.Role != "" {
					return shell.Usagef("--at is for one event, without --stdin and --role")
				}
				o.scheduleID = c.String("schedule-id")
				if o.at, err = timeOf("at", c.String("at")); err != nil {
					return err
				}
			}
			// With --stdin the type comes from the input, so there is no argument.
			if o.stdin {
				if err := shell.Exactly(c, 0, ""); err != nil {
					return err
				}
				return publishStream(ctx, sh, o)
			}
			if err := shell.Exactly(c, 1, "an event type, or --stdin (a payload is given with --payload)"); err != nil {
				return err
			}
			return publish(ctx, sh, o)
		},
	}
}

// published is what publish prints: the answer of POST /v1/events for one event.
type published struct {
	Offset    uint64 `json:"offset"` // of a duplicate that of the event that was kept
	Duplicate bool   `json:"duplicate"`
	// the content hash, in hex
	Hash       string          `json:"hash"`
	AppendedAt time.Time       `json:"appended_at"`
	Warnings   []event.Warning `json:"warnings,omitempty"`
}

// publishedOf converts a result to the form in which it is printed.
func publishedOf(r client.Result) published {
	return published{Offset: r.Offset, Duplicate: r.Duplicate, Hash: r.Hash().String(), AppendedAt: r.AppendedAt,
		Warnings: r.Warnings}
}

// causedByReaction has what is published inherit from the event for which ringlog react runs this command, if it does,
// and otherwise be of the trace that the environment names.
// A daemon that a command has started has the variables of its event for as long as it runs, and handles it no more.
// Without RINGLOG_REACTOR it cannot be known who runs the command, and the other variables count.
func causedByReaction(ctx context.Context, sh *shell.Shell) context.Context {
	offset, err := strconv.ParseUint(sh.Getenv("RINGLOG_OFFSET"), 10, 64)
	reactor, none := strconv.Atoi(sh.Getenv("RINGLOG_REACTOR"))
	if none == nil && !descendsFrom(reactor) {
		return ctx
	}
	// Whatever runs this program may have set it: one that cannot be read is ignored.
	var cause event.Event
	cause.Trace, _ = event.ParseTrace(sh.Getenv("TRACEPARENT"))
	if err == nil {
		cause.Offset, cause.CorrelationID = offset, sh.Getenv("RINGLOG_CORRELATION_ID")
	}
	return event.CausedBy(ctx, &cause)
}

// descendsFrom reports whether a process is the parent of this one, or its parent, and so on. Where the system does not
// say, it does.
func descendsFrom(pid int) bool {
	// The way up ends at the first process, whose parent is 0.
	for p := os.Getppid(); p != pid; {
		rest, err := processStat(p)
		if err != nil {
			// If there is a /proc, the process has ended; else nothing is known.
			_, none := os.Stat("/proc/self/stat")
			return none != nil
		}
		p, err = strconv.Atoi(rest[statParent])
		if err != nil || p == 0 {
			return false
		}
	}
	return true
}

// Places in what processStat returns.
const (
	statParent  = 1
	statStarted = 19 // in clock ticks since the machine was started
)

// processStat returns what the system says of a process: the fields of proc_pid_stat(5) after the name of its program.
func processStat(pid int) ([]string, error) {
	name := fmt.Sprintf("/proc/%d/stat", pid)
	stat, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	// The name of the program is in parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= statStarted {
		return nil, fmt.Errorf("%s has %d fields", name, len(fields))
	}
	return fields, nil
}

// publish publishes one event and prints its offset.
func publish(ctx context.Context, sh *shell.Shell, o publishOptions) error {
	// Before the cluster is asked: a payload that is wrong is wrong without it, too.
	payload, err := readPayload(sh, o.payload)
	if err != nil {
		return err
	}
	// The node resolves the type, whatever spelling it has.
	ev := event.New(event.Type(o.kind), payload)
	o.stamp(&ev)
	return sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		if !o.at.IsZero() {
			return publishAt(ctx, sh, c, o.scheduleID, o.at, ev)
		}
		// The client repeats it under its sequence, so it is appended once.
		res, err := o.send(ctx, c, ev)
		if err != nil {
			return err
		}
		// Warnings are notices: a program that reads the offset does not see them.
		for _, w := range res.Warnings {
			sh.Say("warning: %s: %s", w.Field, w.Message)
		}
		return sh.Emit(publishedOf(res), func() error {
			// A script takes the offset, which of a duplicate is that of the first one.
			_, err := fmt.Fprintln(sh.Out, res.Offset)
			if res.Duplicate {
				sh.Say("duplicate of %d; not appended", res.Offset)
			}
			return err
		})
	})
}

// send publishes the event, under the lease if there is one. A lease that is over makes it an error, and nothing is
// appended.
func (o publishOptions) send(ctx context.Context, c *client.Client, ev event.Event) (client.Result, error) {
	if o.lease.Role == "" {
		return c.Publish(ctx, ev)
	}
	list, err := c.PublishUnder(ctx, o.lease, ev)
	if err != nil {
		return client.Result{}, err
	}
	return list[0], nil
}

// stamp sets what the flags say, if the event does not say it itself.
func (o publishOptions) stamp(ev *event.Event) {
	// With --stdin an event of the input says most of it itself.
	ev.Source = cmp.Or(ev.Source, o.source)
	ev.Key = cmp.Or(ev.Key, o.key)
	ev.CorrelationID = cmp.Or(ev.CorrelationID, o.correlationID)
	ev.CausationID = cmp.Or(ev.CausationID, o.causationID)
	ev.DedupID = cmp.Or(ev.DedupID, o.dedupID)
	ev.NoDedup = ev.NoDedup || o.noDedup
}

// readPayload reads JSON, @FILE or -, which is the standard input. It returns canonical JSON, or an error that
// names the flag.
func readPayload(sh *shell.Shell, spec string) (json.RawMessage, error) {
	var raw []byte
	var err error
	switch {
	// No payload is an empty object.
	case spec == "":
		return json.RawMessage("{}"), nil
	case spec == "-" && sh.InTerminal:
		return nil, shell.Usagef("--payload - reads the standard input, which is a terminal: pipe the payload " +
			"in, or give it as JSON or @FILE")
	case spec == "-":
		raw, err = io.ReadAll(io.LimitReader(sh.In, maxPayload+1))
	case strings.HasPrefix(spec, "@"):
		raw, err = readFileBounded(spec[1:])
	default:
		raw = []byte(spec)
	}
	if err != nil {
		return nil, shell.Usagef("--payload %s: %w", spec, err)
	}
	// The cluster's limit is lower and is its own to report.
	if len(raw) > maxPayload {
		return nil, shell.Usagef("--payload is larger than %d bytes", maxPayload)
	}
	// Errors of the payload name the flag, not the request that would have been made.
	// What is sent is canonical, so the hash of the answer is that of what was given.
	canonical, err := event.Canonicalize(raw, event.Limits{EventBytes: maxPayload, RequestBytes: maxPayload})
	if err != nil {
		return nil, fmt.Errorf("--payload: %w", err)
	}
	return canonical, nil
}

// maxPayload bounds what is read before the cluster's own limit is known.
const maxPayload = 16 << 20

// readFileBounded reads a file of at most maxPayload bytes.
func readFileBounded(name string) (raw []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	// One byte more than maxPayload is read, by which callers notice a longer file.
	defer func() { err = errors.Join(err, f.Close()) }()
	return io.ReadAll(io.LimitReader(f, maxPayload+1))
}
