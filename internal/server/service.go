package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// service is what callers can ask for, in the project's own types; the codecs of
// both protocols stand on it.
type service struct {
	node      Node
	peers     raftnode.Peers // nil for a node that is alone
	heartbeat time.Duration
	groups    *coordinators
}

func (s *service) machine() *fsm.Machine { return s.node.Machine() }

// publishRequest is the events of one request, or a packet of them. Producer is
// empty where the caller gave none.
type publishRequest struct {
	events   []event.Event
	packet   *frame.Packet
	producer string
	sequence uint64
	alone    bool // one event that was not sent as a list: errors name no row
}

// published answers a publish: the state machine's result and what only the
// caller's own events tell.
type published struct {
	fsm.Result
	hashes   []event.Hash  // one for each event; none for a packet
	warnings []rowWarnings // rising rows
}

type rowWarnings struct {
	row  int
	list []event.Warning // shared by rows that are told the same
}

// publish checks, normalises and hashes the events and appends all of them or none.
// It changes req.events, and policy is what they were decoded with.
func (s *service) publish(ctx context.Context, policy *event.Policy, req publishRequest) (published, error) {
	if err := checkPublish(policy.Limits, &req); err != nil {
		return published{}, err
	}
	answer, batch, err := req.admit(ctx, policy)
	if err != nil {
		return published{}, err
	}
	command := frame.Publish{Producer: req.producer, Sequence: req.sequence, Count: batch.Len()}
	result, err := s.propose(ctx, frame.Request{Command: command, Batch: batch})
	if refusal, ok := errors.AsType[*fsm.Refusal](err); ok && refusal.Code == fsm.Conflict && refusal.Field == "dedup_id" {
		return published{}, req.row(refusal.Row, err)
	}
	if err == nil && result.Replayed && result.First != 0 {
		result.Time = s.storedTime(ctx, result.First, result.Time)
	}
	answer.Result = result
	return answer, err
}

// storedTime returns when an event was appended. It waits until this node has the event, and
// returns fallback for one that is trimmed.
func (s *service) storedTime(ctx context.Context, offset uint64, fallback time.Time) time.Time {
	l := s.machine().Log()
	if _, err := waitLog(ctx, l, offset); err != nil {
		return fallback
	}
	columns, err := l.Columns(offset)
	if err != nil {
		return fallback
	}
	return columns.AppendedAt
}

// appendedAt returns when each of a publish's events was appended: a duplicate when
// the first of it was, as far as this node has that.
func (s *service) appendedAt(a *published) func(fsm.Placement) time.Time {
	var block *log.Columns // of the duplicate before, most often the next one's too
	return func(p fsm.Placement) time.Time {
		if !p.Duplicate || a.First != 0 && p.Offset >= a.First {
			return a.Time
		}
		if block == nil || p.Offset < block.First || p.Offset > block.Last() {
			found, err := s.machine().Log().Columns(p.Offset)
			if err != nil {
				return a.Time
			}
			block = found
		}
		return block.AppendedAt
	}
}

func (r *publishRequest) row(i int, err error) error {
	if r.alone {
		return err
	}
	return &rowError{i, err}
}

func checkPublish(limits event.Limits, req *publishRequest) error {
	switch {
	case req.rows() == 0:
		return &api.Error{Code: api.InvalidArgument, Field: "events", Message: "no event was sent", Remedy: "send at least one"}
	case req.rows() > limits.RequestEvents:
		return checkCount(limits, req.rows())
	case req.producer == "" && req.sequence != 0:
		return &api.Error{Code: api.InvalidArgument, Field: "producer", Message: "a sequence without a producer", Remedy: "send both, or neither"}
	case req.producer != "" && req.sequence == 0:
		return &api.Error{Code: api.InvalidArgument, Field: "sequence", Message: "a producer without a sequence", Remedy: "send both; a producer's first sequence is 1"}
	}
	return checkName("producer", req.producer, limits.NameBytes)
}

// checkName refuses what can not be the name of a cursor or a producer.
func checkName(field, name string, limit int) error {
	if len(name) > limit {
		return &api.Error{Code: api.TooLarge, Field: field, Message: fmt.Sprintf("%d bytes, the limit for a name is %d", len(name), limit), Remedy: "use a shorter name"}
	}
	if strings.ToValidUTF8(name, "") != name || strings.ContainsFunc(name, unicode.IsControl) {
		return &api.Error{Code: api.InvalidArgument, Field: field, Message: fmt.Sprintf("%q has a control character or is not UTF-8", name), Remedy: "use printable characters"}
	}
	return nil
}

// propose gets one command decided. A refusal comes as the error.
func (s *service) propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	result, err := s.node.Propose(ctx, r)
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return result, err
}

// command gets a command without events decided, and waits a little for this node to
// have applied it, so that a caller who asks the same node next finds it done.
func (s *service) command(ctx context.Context, c frame.Command) (fsm.Result, error) {
	result, err := s.propose(ctx, frame.Request{Command: c})
	if err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownWriteWait)
	defer cancel()
	_ = s.machine().WaitApplied(ctx, result.Index) // it is decided in any case
	return result, nil
}

// ownWriteWait bounds how long an answer waits for a node that is behind.
const ownWriteWait = time.Second

// explainOffset and explainHash tell what deduplication did.
func (s *service) explainOffset(ctx context.Context, offset uint64) (fsm.Explanation, error) {
	if offset == 0 {
		return fsm.Explanation{}, badParam("offset", "0", "an offset from 1, or a content hash")
	}
	return s.machine().Explain(ctx, offset)
}

func (s *service) explainHash(ctx context.Context, text string) (fsm.Explanation, error) {
	hash, err := event.ParseHash(strings.ToLower(text))
	if err != nil {
		return fsm.Explanation{}, err
	}
	return s.machine().ExplainHash(ctx, hash)
}

// setting returns one setting in force.
func (s *service) setting(key string) (fsm.Setting, error) {
	for _, one := range s.machine().ListSettings() {
		if one.Key == key {
			return one, nil
		}
	}
	return fsm.Setting{}, &api.Error{Code: api.NotFound, Field: "key", Message: fmt.Sprintf("there is no setting %q", key), Remedy: "list them: ringlog settings ls"}
}

// checkFilter refuses what no event can match: above what Filter.Validate does, a
// category that is none. A node that has not heard of it yet catches up first.
func (s *service) checkFilter(ctx context.Context, f event.Filter) error {
	if err := f.Validate(); err != nil || s.unknownCategory(f) == nil {
		return err
	}
	if err := s.node.ReadBarrier(ctx); err != nil {
		return err
	}
	if err := s.unknownCategory(f); err != nil {
		return err
	}
	return nil
}

// unknownCategory tells of the first category that the catalogue here does not have;
// nil is none.
func (s *service) unknownCategory(f event.Filter) *api.Error {
	if len(f.Categories) == 0 {
		return nil
	}
	known := s.machine().Catalogue().Categories()
	for i, name := range f.Categories {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			return &api.Error{Code: api.InvalidArgument, Field: fmt.Sprintf("categories[%d]", i), Message: fmt.Sprintf("there is no category %q", name),
				Remedy: "the categories are " + strings.Join(slices.DeleteFunc(known, func(k string) bool { return k == "" }), ", ")}
		}
	}
	return nil
}

// compaction says what to trim: below Before, or what is older than OlderThan, or
// all but the newest Keep; none of them applies the retention settings.
type compaction struct {
	Before    *uint64 `json:"before"`
	OlderThan string  `json:"older_than"`
	Keep      *uint64 `json:"keep"`
	DryRun    bool    `json:"dry_run"`
	Force     bool    `json:"force"` // past cursors that still hold events
}

// compact trims, or with DryRun tells what it would do.
func (s *service) compact(ctx context.Context, c compaction) (fsm.TrimResult, error) {
	// What is asked for is relative to the tail, so a node that lags must not resolve it.
	if err := s.node.ReadBarrier(ctx); err != nil {
		return fsm.TrimResult{}, err
	}
	trim, err := s.trimOf(c)
	if err != nil {
		return fsm.TrimResult{}, err
	}
	if c.DryRun {
		return s.machine().PlanTrim(trim)
	}
	result, err := s.command(ctx, trim)
	if err != nil || result.Trim == nil {
		return fsm.TrimResult{}, err
	}
	return *result.Trim, nil
}

func (s *service) trimOf(c compaction) (frame.Trim, error) {
	first, last := s.machine().Log().Bounds()
	trim := frame.Trim{Force: c.Force}
	given := 0
	if c.Before != nil {
		given++
		trim.Before = *c.Before
		if trim.Before > last+1 {
			return trim, pastTail("before", trim.Before, last, fmt.Sprintf("send %d at most, which trims everything", last+1))
		}
	}
	if c.Keep != nil {
		given++
		trim.Before = max(first, last+1-min(*c.Keep, last))
	}
	if c.OlderThan != "" {
		given++
		age, err := api.ParseAge("older_than", c.OlderThan)
		if err != nil {
			return trim, err
		}
		if trim.Before, err = s.machine().Log().OffsetAt(time.Now().Add(-age)); err != nil {
			return trim, err
		}
	}
	switch {
	case given > 1:
		return trim, &api.Error{Code: api.InvalidArgument, Field: "body", Message: "before, older_than and keep say different things", Remedy: "send one of them, or none to apply the retention settings"}
	case given == 0:
		trim.Retention = true
	}
	return trim, nil
}

// event returns the event at offset.
func (s *service) event(ctx context.Context, offset uint64, linearizable bool, minOffset uint64) (event.Event, error) {
	if linearizable {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return event.Event{}, err
		}
	}
	if err := waitFor(ctx, s.machine().Log(), minOffset); err != nil {
		return event.Event{}, err
	}
	e, err := s.machine().Log().Get(offset)
	if ahead, ok := errors.AsType[*log.PastTailError](err); ok {
		return e, pastTail("offset", offset, ahead.Tail, fmt.Sprintf("ask for one up to the tail, or wait for it with min_offset=%d", offset))
	}
	return e, err
}

// register adds event types to the catalogue of every node and returns their names.
func (s *service) register(ctx context.Context, definitions []byte, dryRun bool) ([]event.Type, error) {
	defs, err := event.ParseDefinitions(definitions)
	if err != nil {
		return nil, err
	}
	if _, err := s.machine().Catalogue().With(defs...); err != nil {
		return nil, err
	}
	names := make([]event.Type, len(defs))
	for i, d := range defs {
		names[i] = d.Name
	}
	if dryRun {
		return names, nil
	}
	_, err = s.command(ctx, frame.Register{Definitions: definitions})
	return names, err
}
