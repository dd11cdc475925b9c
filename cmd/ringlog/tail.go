package main

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

// tailOptions say what to read, from where, and when to stop.
type tailOptions struct {
	from     *api.Position // nil is not said
	filter   event.Filter  // empty passes all events
	where    *condition    // of --where; nil is none
	cursor   string        // "" reads the log without one
	noCommit bool          // with a cursor: its position stays
	count    uint64        // 0 is no limit
	untilEnd bool          // stop at the end that the log has now

	// Local if the tail follows: it gets later events anyway
	consistency client.Consistency
	minOffset   uint64 // that the node must have first; 0 is none
	local       bool   // only the first endpoint, whoever leads
	journal     bool   // what that node notes of an outage, too
}

// filterFlags choose events.
// They are those of all verbs that read or choose events.
func filterFlags() []cli.Flag {
	return []cli.Flag{
		// Types alone have patterns, and are resolved by the node.
		&cli.StringSliceFlag{Name: "type", Aliases: []string{"t"},
			Usage: "only these `TYPE`s: names, values, topics or patterns such as training.* (repeatable, or " +
				"comma-separated)"},
		&cli.StringSliceFlag{Name: "category", Usage: "only types of this `CATEGORY`"},
		// These are compared as they are.
		&cli.StringSliceFlag{Name: "source", Usage: "only events of this `SOURCE`"},
		&cli.StringSliceFlag{Name: "key", Usage: "only events with this `KEY`"},
		&cli.StringSliceFlag{Name: "correlation-id", Usage: "only events of this `CHAIN`"},
	}
}

// filterOf reads the filter flags. Types and categories have no commas in them.
func filterOf(c *cli.Context) (event.Filter, error) {
	// Several values in one flag are split; sources, keys and ids may have commas, so those are not.
	split := func(list []string) (out []string) {
		for _, s := range list {
			// Blanks separate as well: a list may be quoted.
			out = append(out, strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })...)
		}
		return out
	}
	// The node judges the names: its catalogue has types that this program does not know.
	f := event.Filter{Types: split(c.StringSlice("type")), Categories: split(c.StringSlice("category")),
		Sources: c.StringSlice("source"), Keys: c.StringSlice("key"), CorrelationIDs: c.StringSlice("correlation-id")}
	return f, f.Validate()
}

// tailCommand is tail. It reads the log itself, or with --cursor through a durable cursor; --local reads the first
// endpoint alone, with the records of its journal that the log does not have yet.
func tailCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "tail", Aliases: []string{"consume", "sub"},
		Usage: "print events, and follow as more are appended",
		UsageText: shell.Examples(
			"ringlog tail --from -3 --until-end",
			"ringlog tail --type training.progress --where 'payload.epoch > 3' --until-end",
			"ringlog tail --cursor trainer --until-end",
			"ringlog tail -f",
		),
		Description: "Starts at the end of the log by default, and with --until-end at its start. With --cursor " +
			"it resumes a durable cursor, which is\n" +
			"created at the start of the log if there is none; an event is committed once it is printed, or is not what " +
			"--where asks for.\n" +
			"Events trimmed before you read them are reported as a gap.\n" +
			"A terminal shows as much of a payload as fits its width; -o json, a pipe and ringlog get have all of it.\n" +
			"It follows until Ctrl-C, -n or --until-end; --timeout bounds each request, and timeout(1) the whole.\n" +
			"--local also prints what the node records of an ongoing outage, marked as local: such a record has no\n" +
			"offset and does not count for -n. The log's own QUORUM_LOST and QUORUM_RESTORED follow the recovery.",
		Flags: append(filterFlags(),
			whereFlag("print only events for which this `CEL` condition holds, such as 'payload.epoch > 3'"),
			// Where to begin, and through which cursor.
			&cli.StringFlag{Name: "from", Usage: "start at `WHERE`: " + api.PositionForms},
			&cli.StringFlag{Name: "cursor", Usage: "read through the durable cursor `NAME`"},
			&cli.BoolFlag{Name: "no-commit", Usage: "with --cursor: do not commit"},
			// When to end.
			&cli.Uint64Flag{Name: "n", Aliases: []string{"limit"},
				Usage: "stop after `COUNT` events, and wait for them; for the last 3: --from -3 --until-end"},
			&cli.BoolFlag{Name: "until-end", Usage: "stop at the current end of the log"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"},
				Usage: "follow as more are appended; this is the default"},
			// Which node is asked, and what it must have.
			&cli.Uint64Flag{Name: "min-offset", Usage: "wait until the node has this `OFFSET` first"},
			&cli.BoolFlag{Name: "local", Usage: "read only what the first endpoint has, and its journal of outages"},
		),
		Action: func(c *cli.Context) error {
			if c.NArg() > 0 {
				return shell.Usagef("tail takes no arguments, but got %q: name a cursor with --cursor, a type with --type",
					c.Args().First())
			}
			o, err := tailOptionsOf(sh, c)
			if err != nil {
				return err
			}
			return tail(c.Context, sh, o)
		},
	}
}

// tailOptionsOf reads the flags and refuses those that exclude each other.
func tailOptionsOf(sh *shell.Shell, c *cli.Context) (o tailOptions, err error) {
	o.filter, err = filterOf(c)
	if err != nil {
		return o, err
	}
	// Without --from a log may be read from its end, and a new cursor from the start: nil lets them differ.
	if c.IsSet("from") {
		from, err := shell.ParsePosition("from", c.String("from"))
		if err != nil {
			return o, err
		}
		o.from = &from
	}
	if compiled, err := whereOf(c); err != nil {
		return o, err
	} else if compiled != nil {
		o.where = &condition{sh: sh, where: compiled}
	}
	o.cursor, o.noCommit, o.count, o.untilEnd = c.String("cursor"), c.Bool("no-commit"), c.Uint64("n"),
		c.Bool("until-end")
	o.minOffset, o.local, o.journal = c.Uint64("min-offset"), c.Bool("local"), c.Bool("local")
	// The default is linearizable if the command ends by itself, as a script expects.
	said := c.IsSet("consistency")
	if said || (o.untilEnd && !o.local) { // a tail that follows gets later events anyway
		o.consistency = sh.Consistency()
	}
	if o.local && o.consistency == client.Linearizable {
		return o, shell.Usagef("--consistency linearizable and --local exclude each other")
	}
	// Flags that would be ignored silently are refused.
	switch {
	case c.Bool("follow") && o.untilEnd:
		return o, shell.Usagef("--follow and --until-end exclude each other")
	case c.IsSet("n") && o.count == 0:
		return o, shell.Usagef("-n 0: there is nothing to do")
	case o.noCommit && o.cursor == "":
		return o, shell.Usagef("--no-commit needs --cursor")
	case o.cursor != "" && (o.minOffset != 0 || said):
		return o, shell.Usagef("--consistency and --min-offset exclude --cursor: the node that serves a cursor " +
			"has everything acknowledged before it was opened")
	}
	return o, nil
}

// tail prints events until ctx ends, or what the options say.
func tail(ctx context.Context, sh *shell.Shell, o tailOptions) (err error) {
	if o.local {
		// Of the shell itself: what is reported about a failure is about this endpoint, too.
		sh.Endpoints = sh.Endpoints[:1]
	}
	// A cluster that cannot be reached is an error at once, not a tail that waits.
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	// The client is closed last: the readers use it to their end.
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	// The end of whoever reads the output ends the tail, also while no event comes.
	ctx, stop := sh.WhileRead(ctx)
	defer stop()
	p := shell.NewPrinter(sh)
	// The two readers differ in where the position is kept: here, or in the cluster.
	read := tailLog
	if o.cursor != "" {
		read = tailCursor
	}
	// With the journal the tail is local already: otherwise --local may be the remedy.
	if o.journal {
		err = withJournal(ctx, newJournalTail(sh, o, p), o.untilEnd,
			func(ctx context.Context) error { return read(ctx, c, o, p) })
	} else {
		err = sh.SuggestLocal(o.consistency == client.Linearizable, read(ctx, c, o, p))
	}
	// The buffer is printed in any case, also before an error.
	// It fails as the last write has, if the output has failed.
	if failed := p.Out.Flush(); !errors.Is(err, failed) {
		err = errors.Join(err, failed)
	}
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, syscall.EPIPE)) {
		return nil // Ctrl-C, or nobody reading any more, is how a tail ends
	}
	return err
}

// withJournal reads the log and the journal side by side. With untilEnd the journal's records
// come after the log's events: they are newer.
func withJournal(ctx context.Context, j *journalTail, untilEnd bool, read func(context.Context) error) error {
	// Up to the end of the log, the journal is read once, after it.
	if untilEnd {
		if err := read(ctx); err != nil {
			return err
		}
		return j.printUnrecorded(ctx)
	}
	// Following, both run until one of them fails.
	// Each stops the other: the reader of the log by stop, the journal by its failure.
	following, stop := context.WithCancel(ctx)
	// There is room for the result, so the goroutine ends even if reading the log fails first.
	failed := make(chan error, 1)
	go func() {
		err := j.follow(following)
		if err != nil {
			stop() // the output is gone, for the log's events too
		}
		failed <- err
	}()
	err := read(following)
	stop()
	if failure := <-failed; failure != nil {
		return failure
	}
	return err
}

// sayWaiting notes for a person that no event is there yet from an offset on; 0 is the end of the log.
func sayWaiting(ctx context.Context, sh *shell.Shell, c *client.Client, next uint64) {
	if !sh.ErrTerminal || sh.JSON {
		return
	}
	// The notice is a courtesy: what is wrong with the cluster, the reading itself reports.
	status, err := c.Admin().Status(ctx)
	if err != nil {
		return
	}
	// The end of the log is the offset of the next event.
	end := status.LastOffset + 1
	if next == 0 {
		next = end
	}
	if next >= end {
		sh.Say("waiting for events from offset %d (Ctrl-C ends)", next)
	}
}

// tailLog prints the events of the log. It returns at the end that the options name, or with an error, that of ctx
// included.
func tailLog(ctx context.Context, c *client.Client, o tailOptions, p *shell.Printer) error {
	// Without --from a tail shows what is appended from now on, or what is there.
	from := api.Position{Kind: api.AtEnd}
	if o.untilEnd {
		from.Kind = api.AtStart
	}
	if o.from != nil {
		from = *o.from
	}
	options := client.TailOptions{From: from, Filter: o.filter, NoFollow: o.untilEnd,
		Consistency: o.consistency, MinOffset: o.minOffset}
	// The node does not know the condition, so it cannot count the events that meet it.
	if o.where == nil {
		options.Limit = o.count
	}
	next := uint64(0) // from an age or a number of events back, the first one is not known here
	if from.Kind == api.AtOffset {
		next = from.Offset
	}
	// Only a person who waits at the end of the log reads that there is nothing yet.
	if !o.untilEnd && (from.Kind == api.AtEnd || next > 0) {
		sayWaiting(ctx, p.Sh, c, next)
	}
	printed := uint64(0)
	for ev, err := range c.Tail(ctx, options) {
		var gap *client.GapError
		switch {
		case err == nil && !o.where.met(&ev):
			continue
		// A gap is reported, and the reading continues after it.
		case errors.As(err, &gap):
			err = p.Gap(gap.Gap)
		case err == nil:
			err = p.Event(&ev)
			printed++
		}
		if err != nil || (o.count > 0 && printed == o.count) {
			return err
		}
	}
	return nil
}

// whereFlag is --where, a condition on events in CEL.
func whereFlag(usage string) cli.Flag { return &cli.StringFlag{Name: "where", Usage: usage} }

// whereOf compiles --where; nil is none. A condition that does not compile is wrong usage, and its error has the
// position.
func whereOf(c *cli.Context) (*where.Condition, error) {
	if !c.IsSet("where") {
		return nil, nil
	}
	compiled, err := where.Compile(c.String("where"))
	if err != nil {
		return nil, shell.Usagef("--%w", err)
	}
	return compiled, nil
}

// condition chooses among the events that pass the filter. It is evaluated here, whatever the nodes' version.
type condition struct {
	sh     *shell.Shell
	where  *where.Condition
	failed bool // it could not be evaluated for an event, which was said
}

// met reports whether an event meets the condition; all meet one that is nil. The first for which it cannot be
// evaluated is named on stderr: a condition that fails for each looks like a log without such events.
func (c *condition) met(ev *event.Event) bool {
	if c == nil {
		return true
	}
	ok, err := c.where.Match(ev)
	if err != nil && !c.failed {
		c.failed = true
		c.sh.Say("--where could not be evaluated for event %d, which is passed over like all others of the kind: %v",
			ev.Offset, err)
	}
	return ok
}
