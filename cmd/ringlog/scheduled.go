package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// ringlog publish --at makes a schedule, with publishAt. The cluster keeps it, and publishes the event at its time
// whatever becomes of this process. The verbs here show and remove schedules.

// scheduledCommand is scheduled and its verbs: the events that are published at a time.
func scheduledCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "scheduled", Usage: "show and remove the events that are to be published at a time",
		UsageText: shell.Examples("ringlog scheduled ls", "ringlog scheduled rm nightly-sync"),
		Subcommands: []*cli.Command{
			{Name: "ls", Usage: "list what waits for its time, and what was published lately",
				UsageText: shell.Examples("ringlog scheduled ls"), Action: shell.Bare(sh, listScheduled)},
			{Name: "info", Usage: "show a scheduled event, or where it was published", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog scheduled info nightly-sync"),
				Action:    shell.Named(sh, aSchedule, showScheduled)},
			{Name: "rm", Usage: "remove an event that was not published yet", ArgsUsage: "ID",
				UsageText: shell.Examples("ringlog scheduled rm nightly-sync"),
				Action:    shell.Named(sh, aSchedule, removeScheduled)},
		},
	}
}

// aSchedule is the argument of the verbs.
const aSchedule = "the id of a schedule (to list them: ringlog scheduled ls)"

// timeOf reads the time that a flag gives: one without a zone is local, and +DURATION is after now.
func timeOf(flag, text string) (time.Time, error) {
	// The clock of this machine counts, as it does for a time without a zone.
	if after, relative := strings.CutPrefix(text, "+"); relative {
		d, err := shell.ParseAge(flag, after)
		return time.Now().Add(d), err
	}
	at, err := shell.ParseTime(flag, text)
	if err != nil {
		err = fmt.Errorf("%w, or +AGE such as +90s or +2h from now", err)
	}
	return at, err
}

// publishAt schedules an event and prints the id of its schedule. With an id the call may be repeated: the same
// event and time change nothing. "" is a random id.
func publishAt(ctx context.Context, sh *shell.Shell, c *client.Client, id string, at time.Time, ev event.Event) error {
	one, err := c.PublishAt(ctx, id, at, ev)
	if err != nil {
		return err
	}
	// Warnings are about the event, which is scheduled all the same.
	for _, w := range one.Warnings {
		sh.Say("warning: %s: %s", w.Field, w.Message)
	}
	return sh.Emit(one, func() error {
		// Standard output has the id alone, by which a script removes the schedule.
		if one.State == api.ScheduleWaiting {
			sh.Say("to be published at %s", shell.Moment(one.At))
		} else {
			sh.Say("was published at offset %d", one.Offset)
		}
		_, err := fmt.Fprintln(sh.Out, one.ID)
		return err
	})
}

// listScheduled prints what is scheduled, by id.
func listScheduled(ctx context.Context, sh *shell.Shell) error {
	return sh.WithClient(ctx, func(ctx context.Context, c *client.Client) error {
		var list []client.Scheduled
		// The client reads the pages. A list that was not read to its end is not printed.
		for one, err := range c.Admin().Scheduled(ctx) {
			if err != nil {
				return err
			}
			list = append(list, one)
		}
		header := table.Row{"id", "at", "type", "key", "state", "offset"}
		return shell.EmitEach(sh, "scheduled event", list, header, func(one client.Scheduled) table.Row {
			offset := any("-")
			// An event that waits has no offset yet.
			if one.Offset != 0 {
				offset = one.Offset
			}
			return table.Row{one.ID, shell.Moment(one.At), one.Type, one.Key, one.State, offset}
		})
	})
}

// showScheduled prints one schedule, with its event while that waits.
func showScheduled(ctx context.Context, sh *shell.Shell, id string) error {
	var one api.Scheduled
	if err := sh.Fetch(ctx, scheduledPath(id), &one); err != nil {
		return err
	}
	return sh.Emit(one, func() error { return printScheduled(sh, one) })
}

// scheduledPath is the route of a schedule.
func scheduledPath(id string) string { return "/v1/scheduled/" + url.PathEscape(id) }

// printScheduled prints a schedule for people.
func printScheduled(sh *shell.Shell, one api.Scheduled) error {
	facts := []any{"id", one.ID, "at", shell.Moment(one.At), "state", one.State, "made", shell.Moment(one.Made),
		"type", one.Type}
	// Only facts that there are: the payload while the event waits, the offset once it was published.
	if one.Key != "" {
		facts = append(facts, "key", one.Key)
	}
	if one.Event != nil {
		facts = append(facts, "payload", string(one.Event.Payload))
	}
	if one.Offset != 0 {
		facts = append(facts, "published", shell.Moment(one.Published), "offset", one.Offset)
	}
	if one.Duplicate {
		facts = append(facts, "duplicate", "it repeats the event at that offset, and was not appended")
	}
	return sh.Facts(facts...)
}

// removeScheduled removes an event that was not published yet.
func removeScheduled(ctx context.Context, sh *shell.Shell, id string) error {
	var one api.Scheduled
	if err := sh.Call(ctx, http.MethodDelete, scheduledPath(id), nil, nil, &one); err != nil {
		return err
	}
	return sh.Emit(one, func() error {
		_, err := fmt.Fprintln(sh.Out, "removed", one.ID)
		return err
	})
}
