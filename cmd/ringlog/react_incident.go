package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/cmd/ringlog/internal/replay"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/router/sinks"
)

// refuseWithIncident refuses the flags that would touch a cluster: react --incident FILE has none.
func refuseWithIncident(c *cli.Context) error {
	for _, name := range []string{"ack-wait", "answer", "reply", "record", "pass-token", "until-end", "max-deliver"} {
		if c.IsSet(name) {
			return shell.Usagef("--%s is about a cluster, and --incident has none", name)
		}
	}
	return nil
}

// reactToIncident gives the events of an incident to the sink, and changes nothing. Those of its slice are taken, or
// from --from on; with --group those that were left to the group when the slice began.
func reactToIncident(ctx context.Context, sh *shell.Shell, o reactOptions) (err error) {
	past, err := replay.OpenFile(ctx, sh, o.incident, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, past.Close()) }()
	// The past is at its beginning: the first event of the slice comes after the last offset, and a group's
	// position is the one that it had then.
	first := past.Place().LastOffset + 1
	group, before := past.Machine().Cursor(o.group)
	if before {
		first = group.Committed + 1
	}
	// From here on the past has all events up to the end, so that they can be read.
	if err := past.To(ctx, o.until); err != nil {
		return err
	}
	// A group that was created meanwhile has a filter, too.
	if group, there := past.Machine().Cursor(o.group); there && o.filter.Empty() {
		o.filter = group.Filter
	} else if !there && !before && o.filter.Empty() {
		return shell.NotFoundf("the incident has no group or cursor %q: say for which events with --type", o.group)
	}
	// Ages count back from the time of the past, not from now.
	if o.from != nil {
		first, err = o.from.Resolve(past.Machine().Log(), past.Machine().Time())
		if err != nil {
			return err
		}
	}
	// What the command asks of its endpoints it asks of the past.
	sink, closeSink, err := o.sink(past.Shell)
	if err != nil {
		return err
	}
	defer closeSink()
	member := past.Events(first, o.filter)
	// The reactor is the one of react. What it would ask of a cluster it asks of member, which records nothing.
	reactor, err := sinks.NewReactor(sinks.Options{
		Group: o.group, Sink: sink, Where: o.where, Concurrency: o.concurrency, Timeout: o.timeout, Retries: o.retries,
		Backoff: o.backoff, Breaker: o.breaker, Drain: o.drain, Count: o.count, MaxDeliver: 1,
		Join:      func(context.Context, int) (sinks.Member, error) { return member, nil },
		Settled:   member.Settled,
		OnOutcome: func(o sinks.Outcome) { printOutcome(sh, o) },
		Turned:    printBreaker(sh, o.breaker.OrDefault().OpenFor),
		Logger:    warningsTo(sh),
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() {
		if !sh.JSON {
			sh.Say("ending: what runs may finish within %s", shell.Short(o.drain))
		}
	})()
	sum, err := reactor.Run(ctx)
	return errors.Join(err, printReacted(sh, sum), incidentVerdict(sum))
}

// incidentVerdict is an error if an event could not be handled.
func incidentVerdict(sum sinks.Summary) error {
	if failed := sum.Failed + sum.Dead; failed > 0 {
		return fmt.Errorf("react: %d of %d events of the incident were not handled", failed, sum.Handled+failed)
	}
	return nil
}
