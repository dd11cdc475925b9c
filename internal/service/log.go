package service

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/access"
	"github.com/ringrift/ringlog/internal/frame"
)

// Log holds the operations on the log itself: publish, read, wait, trim, explain a duplicate, extend the catalogue.
type Log struct{ *core }

// Event returns the event at offset. linearizable waits until this node has what was acknowledged before, and minOffset
// until it has that. An event of a type that is not the caller's is none.
func (l *Log) Event(ctx context.Context, offset uint64, linearizable bool, minOffset uint64) (event.Event, error) {
	if linearizable {
		if err := l.node.ReadBarrier(ctx); err != nil {
			return event.Event{}, err
		}
	}
	// Offset 0 asks for no wait.
	if err := waitFor(ctx, l.Machine().Log(), minOffset); err != nil {
		return event.Event{}, err
	}
	e, err := l.Machine().Log().Get(offset)
	if err == nil && !l.allowed(ctx)(e.Type) {
		return event.Event{}, l.noSuchEvent(offset)
	}
	return e, err
}

// Register adds event types to the catalogue of every node and returns their names.
func (l *Log) Register(ctx context.Context, definitions []byte, dryRun bool) ([]event.Type, error) {
	// What is malformed is refused before anything is compared with the catalogue.
	defs, err := event.ParseDefinitions(definitions)
	if err != nil {
		return nil, err
	}
	// What this catalogue refuses, the state machine would refuse too; a dry run ends with this check.
	if _, err := l.Machine().Catalogue().With(defs...); err != nil {
		return nil, err
	}
	names := make([]event.Type, len(defs))
	for i, d := range defs {
		names[i] = d.Name
	}
	// A dry run has found nothing wrong.
	if dryRun {
		return names, nil
	}
	_, err = l.proposeAndApply(ctx, frame.Register{Definitions: definitions})
	return names, err
}

// Compact trims, or with DryRun says what it would do. What cursors hold is kept unless it is forced.
func (l *Log) Compact(ctx context.Context, c api.Compaction) (api.TrimResult, error) {
	// What a cursor has not seen is lost to it.
	if c.Force && !access.Of(ctx).May(access.Administer) {
		return api.TrimResult{}, &api.Error{Code: api.Forbidden, Reason: api.ReasonPermission, Field: "force",
			Message: "a forced compaction takes events from cursors, and needs a token of the role admin",
			Remedy:  "leave force out, which trims up to the first cursor that holds events"}
	}
	// What is asked for is relative to the tail, so a node that lags must not resolve it.
	if err := l.node.ReadBarrier(ctx); err != nil {
		return api.TrimResult{}, err
	}
	// Which offset to trim before, from whichever condition was sent.
	trim, err := l.trimOf(c)
	if err != nil {
		return api.TrimResult{}, err
	}
	var done fsm.TrimResult
	// Both ways take the same decision; only the command changes anything.
	// The barrier has brought this node's state up to date, so its plan is the cluster's.
	if c.DryRun {
		done, err = l.Machine().PlanTrim(trim)
	} else {
		result, failed := l.proposeAndApply(ctx, trim)
		if result.Trim != nil {
			done = *result.Trim
		}
		err = failed
	}
	if err != nil {
		return api.TrimResult{}, err
	}
	return api.TrimResult{
		First:   done.First,
		Removed: done.Removed,
		HeldBy:  done.HeldBy,
		Passed:  done.Passed,
		DryRun:  c.DryRun,
	}, nil
}

// trimOf returns the command for a compaction: up to which offset it trims, or that the retention settings say so.
// Offsets are resolved on this node.
func (l *Log) trimOf(c api.Compaction) (frame.Trim, error) {
	// Each condition that is given counts, so that two of them are noticed.
	first, last := l.Machine().Log().Bounds()
	trim := frame.Trim{Force: c.Force}
	// At most one of the following may be given.
	given := 0
	if c.Before != nil {
		given++
		trim.Before = *c.Before
		if trim.Before > last+1 {
			return trim, api.BeyondTail(
				"before", trim.Before, last,
				fmt.Sprintf("send %d at most, which trims everything", last+1),
			)
		}
	}
	// Keeping more than there is trims nothing.
	if c.Keep != nil {
		given++
		// The offset of the first event to keep.
		trim.Before = max(first, last+1-min(*c.Keep, last))
	}
	// The age counts back from this node's clock, as a caller means it, not from replicated time.
	if c.OlderThan != "" {
		given++
		age, err := api.ParseAge("older_than", c.OlderThan)
		if err != nil {
			return trim, err
		}
		// The first event that is young enough is the first one to keep.
		trim.Before, err = l.Machine().Log().OffsetAt(time.Now().Add(-age))
		if err != nil {
			return trim, err
		}
	}
	// The conditions cannot be combined; without any, the retention settings apply.
	switch {
	case given > 1:
		return trim, api.Refuse(api.InvalidArgument, "body",
			"before, older_than and keep say different things",
			"send one of them, or none to apply the retention settings")
	case given == 0:
		trim.Retention = true
	}
	return trim, nil
}

// ExplainOffset says what deduplication did with the event at an offset.
func (l *Log) ExplainOffset(ctx context.Context, offset uint64) (api.Explanation, error) {
	if offset == 0 {
		return api.Explanation{}, api.BadValue("offset", "0", "an offset from 1, or a content hash")
	}
	// The state machine keeps a receipt of each suppressed event for a while.
	x, err := l.Machine().Explain(ctx, offset)
	if err == nil && !l.allowed(ctx)(event.Type(x.Type)) {
		return api.Explanation{}, l.noSuchEvent(offset)
	}
	return l.explanationOf(x), err
}

// ExplainHash says what deduplication did with the events of a content hash, 64 hex digits.
func (l *Log) ExplainHash(ctx context.Context, text string) (api.Explanation, error) {
	// People paste hashes in capitals as well.
	hash, err := event.ParseHash(strings.ToLower(text))
	if err != nil {
		return api.Explanation{}, err
	}
	x, err := l.Machine().ExplainHash(ctx, hash)
	// As of a hash that the log does not have.
	if err == nil && !l.allowed(ctx)(event.Type(x.Type)) {
		return api.Explanation{}, fmt.Errorf("explain %s: %w", hash, fsm.ErrUnknownHash)
	}
	return l.explanationOf(x), err
}

// explanationOf is an explanation as callers see it.
func (l *Log) explanationOf(x fsm.Explanation) api.Explanation {
	decided := "default"
	switch {
	case x.ByPolicy:
		decided = "policy"
	case x.Kind != string(event.DedupContent):
		// Without the content as its key, an event has said itself what it is compared by.
		decided = "event"
	}
	v := api.Explanation{
		Offset:     x.Offset,
		Type:       x.Type,
		Hash:       x.Hash,
		DedupID:    x.DedupID,
		Kind:       x.Kind,
		DecidedBy:  decided,
		Policy:     l.dedupPolicy(x.Type),
		Source:     x.Source,
		AppendedAt: x.AppendedAt,
		Suppressed: x.Suppressed,
		First:      x.First,
		Last:       x.Last,
		InWindow:   x.InWindow,
		Until:      x.Until,
		Others:     x.Others,
	}
	// JSON leaves out an empty list, so it may stay nil.
	for _, one := range x.Sources {
		v.Sources = append(v.Sources, api.SourceCount(one))
	}
	return v
}
