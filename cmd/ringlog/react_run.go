package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
	"github.com/ringrift/ringlog/router/sinks"
)

// ownGroupHolds is for how long the group of one run keeps events from retention, also
// where the run was killed and could not remove it.
const ownGroupHolds = time.Hour

// react gives events to the sink until ctx ends, or what the options say.
func react(ctx context.Context, sh *shell.Shell, o reactOptions, sink sinks.Sink) (err error) {
	// Closed last: acks, notices and the removal of the group need it.
	c, err := sh.DialReachable(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shell.CloseClient(c)) }()
	answers, err := o.answers(ctx, c)
	if err != nil {
		return err
	}
	maxDeliver, err := o.prepareGroup(ctx, sh, c)
	if err != nil {
		return err
	}
	// The group of one run ends with it, whatever the reason.
	if o.own {
		defer func() { err = errors.Join(err, o.removeGroup(ctx, c)) }()
	}
	// A failure is the last one of an event by the group's own limit.
	settings := o.settings(sh, c, sink)
	settings.MaxDeliver = maxDeliver
	settings.Answer = answers
	if o.untilEnd {
		settings.Settled, err = o.untilSettled(ctx, c)
		if err != nil {
			return err
		}
	}
	reactor, err := sinks.NewReactor(settings)
	if err != nil {
		return err
	}
	// Ctrl-C takes effect once what runs has finished, which without a notice looks as if it had none.
	defer context.AfterFunc(ctx, func() {
		if !sh.JSON {
			sh.Say("ending: what runs may finish within %s, the rest is given back", shell.Short(o.drain))
		}
	})()
	// The summary is printed for runs that failed, too.
	sum, err := reactor.Run(ctx)
	return errors.Join(err, printReacted(sh, sum), o.verdict(ctx, sum))
}

// prepareGroup creates the group if there is none, and returns how many deliveries it
// allows.
func (o *reactOptions) prepareGroup(ctx context.Context, sh *shell.Shell,
	c *client.Client) (maxDeliver uint64, err error) {
	// Zero takes the settings of the cluster.
	spec := client.GroupSpec{Filter: o.filter, AckWait: o.ackWait, MaxDeliver: o.maxDeliver}
	if o.from != nil {
		spec.From = *o.from
	}
	// A group of this run alone starts at the end, and holds nothing back for long.
	if o.own {
		spec.Policy = client.CursorPolicy{HoldFor: ownGroupHolds}
		if o.from == nil {
			spec.From = client.FromEnd()
		}
	}
	// A group that exists keeps its position; one that does not needs a filter to be created with.
	was, err := c.Cursor(ctx, o.group)
	var answer *api.Error
	switch {
	case err == nil && o.from != nil:
		sh.Say("the group %s exists and resumes after %d: --from applies to a new one (to move it: ringlog "+
			"cursor seek %s --to …)", o.group, was.Committed, o.group)
	case err != nil && (!errors.As(err, &answer) || answer.Code != api.NotFound):
		return 0, err
	case err != nil && o.filter.Empty():
		return 0, shell.NotFoundf("there is no group %q: to create it, say for which events with --type", o.group)
	}
	// Creating is idempotent, and refuses other settings than the group has.
	if !o.filter.Empty() {
		if _, err := c.CreateGroup(ctx, o.group, spec); err != nil {
			return 0, err
		}
	}
	// The node knows what the settings make of a group that names no limit.
	var view struct {
		Group struct {
			MaxDeliver uint64 `json:"max_deliver"`
		} `json:"group"`
	}
	err = c.Admin().Do(ctx, http.MethodGet, "/v1/groups/"+url.PathEscape(o.group), nil, nil, &view)
	return view.Group.MaxDeliver, err
}

// removeWithin bounds the removal of the group at the end.
const removeWithin = 5 * time.Second

// removeGroup removes the group of this run, also after Ctrl-C.
func (o *reactOptions) removeGroup(ctx context.Context, c *client.Client) error {
	// An interrupt has ended ctx, and the group is to be removed nonetheless.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	if err := c.DeleteCursor(ctx, o.group); err != nil {
		return fmt.Errorf("the group of this run was not removed (to remove it: ringlog group rm %s): %w", o.group, err)
	}
	return nil
}

// settings converts the options to those of the reactor.
func (o *reactOptions) settings(sh *shell.Shell, c *client.Client, sink sinks.Sink) sinks.Options {
	// The group exists by now, and running attempts extend their deliveries (AutoProgress).
	join := func(ctx context.Context, hold int) (sinks.Member, error) {
		m, err := c.JoinGroup(ctx, o.group, client.GroupOptions{NoCreate: true, Prefetch: hold, AutoProgress: true})
		if err != nil {
			return nil, err
		}
		return m, nil
	}
	// Failures are published with the same client, which retries them.
	publish := func(ctx context.Context, ev event.Event) error {
		_, err := c.Publish(ctx, ev)
		return err
	}
	return sinks.Options{Group: o.group, Join: join, Sink: sink, Where: o.where, Concurrency: o.concurrency,
		Timeout: o.timeout,
		Retries: o.retries, Backoff: o.backoff, Breaker: o.breaker, Drain: o.drain, Count: o.count,
		Publish: publish, Record: o.record,
		Source: processName(), OnOutcome: func(o sinks.Outcome) { printOutcome(sh, o) },
		Turned: printBreaker(sh, o.breaker.OrDefault().OpenFor),
		Logger: warningsTo(sh)}
}

// warningsTo returns a logger of warnings and errors to stderr, as JSON if all output is.
func warningsTo(sh *shell.Shell) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.LevelWarn}
	if sh.JSON {
		return slog.New(slog.NewJSONHandler(sh.Err, o))
	}
	return slog.New(slog.NewTextHandler(sh.Err, o))
}

// processName says who reacts.
func processName() string {
	// Host and pid distinguish the processes of a group in the events that they publish.
	host, err := os.Hostname()
	if err != nil {
		host = "react"
	}
	return fmt.Sprintf("%.200s:%d", host, os.Getpid())
}

// newOwnName returns a name that no other group has.
func newOwnName() string { return fmt.Sprintf("react-%d-%.8s", os.Getpid(), uuid.NewString()) }

// untilSettled returns a function that reports whether the group has committed all that is in the log now.
func (o *reactOptions) untilSettled(ctx context.Context,
	c *client.Client) (settled func(context.Context) (bool, error), err error) {
	// The end is fixed now: what is appended later is not waited for.
	end, err := router.OnClient(c).Last(ctx)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (bool, error) {
		info, err := c.Cursor(ctx, o.group)
		return err == nil && info.Committed >= end, err
	}, nil
}

// verdict returns an error if the run was limited by -n or --until-end and deliveries were not handled: dead ones,
// and with -n failed ones, too.
func (o *reactOptions) verdict(ctx context.Context, sum sinks.Summary) error {
	// A run until Ctrl-C has no verdict: failures are the group's to redeliver.
	failed := sum.Dead
	if o.count > 0 {
		failed += sum.Failed
	}
	if failed == 0 || ctx.Err() != nil || (o.count == 0 && !o.untilEnd) {
		return nil
	}
	return fmt.Errorf("react: %d of %d deliveries were not handled (dead letters: ringlog dlq ls)", failed,
		sum.Handled+sum.Failed+sum.Dead)
}
