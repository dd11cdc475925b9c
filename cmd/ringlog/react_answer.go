package main

import (
	"context"
	"strings"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
	"github.com/ringrift/ringlog/event"
)

// The values of --answer.
const (
	answerAll      = "all"
	answerFailures = "failures"
)

// answers returns which type answers an event of another; nil without --answer. The flows are those that the cluster
// has now.
func (o *reactOptions) answers(ctx context.Context, c *client.Client) (func(event.Type, bool) event.Type, error) {
	if o.answer == "" {
		return nil, nil
	}
	known, err := clusterFlows(ctx, c)
	if err != nil {
		return nil, err
	}
	answer := func(t event.Type, success bool) event.Type {
		// The first type that a flow names is the reply. A failure that no flow names is HANDLER_FAILED, a success
		// nothing.
		replies := known.RepliesTo(t)
		switch {
		case success && o.answer == answerFailures:
			return ""
		case success && o.reply != "":
			return o.reply
		case success && len(replies.Success) == 0:
			return ""
		case success:
			return replies.Success[0]
		case len(replies.Failure) == 0:
			return event.HandlerFailed
		}
		return replies.Failure[0]
	}
	// A type that is named, and that nothing could answer, is a mistake; a pattern may have some of these.
	for _, t := range o.filter.Types {
		if o.answer == answerAll && !strings.ContainsAny(t, "*?") && answer(event.Type(t), true) == "" {
			return nil, shell.Usagef("--answer all: no flow names a reply to %s: name it with --reply TYPE, or "+
				"register a flow (ringlog flow register)", t)
		}
	}
	return answer, nil
}
