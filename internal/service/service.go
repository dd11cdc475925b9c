package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/log"
	"github.com/ringrift/ringlog/raftnode"
)

// Node is the node whose log a service serves. *raftnode.Node is one.
type Node interface {
	// Propose gets a command decided. Its errors are those of package raftnode, a *fsm.Refusal, or the
	// context's where nothing was proposed. It does not keep what it is given.
	Propose(ctx context.Context, r frame.Request) (fsm.Result, error)
	// Machine is the local state.
	Machine() *fsm.Machine
	// ReadBarrier returns once the local state has all that was acknowledged before the call.
	ReadBarrier(ctx context.Context) error
	Status() raftnode.Status
	// LeadingTerm is the term in which the node leads and takes requests; 0 where it does not lead. The
	// state then has all that was committed before that term.
	LeadingTerm() uint64
	// Diverged reports that the node's state is not the majority's: it serves nobody.
	Diverged() bool
}

// Service is the operations on a node's log, by subject. What callers ask for and what they get are the
// project's own types. It is safe for concurrent use.
type Service struct {
	*core
	Log      *Log
	Cursors  *Cursors
	Groups   *Groups
	Letters  *Letters
	Clients  *Clients
	Settings *Settings
	Reports  *Reports
	engine   *engine.Engine
	duties   sync.WaitGroup // chains and the cursor scanner
}

// core is what the operations of all subjects need: the node, and the ways to propose, check and read.
type core struct {
	node      Node
	logger    hclog.Logger
	heartbeat time.Duration // a read that finds nothing returns once in each
}

// Log holds the operations on the log itself: publish, read, wait, trim, explain a duplicate, extend the catalogue.
type Log struct{ *core }

// Cursors holds the operations on durable cursors. A group's cursor is one too, so what they show of it
// comes from the engine.
type Cursors struct {
	*core
	engine *engine.Engine
}

// Groups holds the operations on groups of members that share a cursor.
type Groups struct {
	*core
	cursors *Cursors
	engine  *engine.Engine
}

// Letters holds the operations on dead letters.
type Letters struct {
	*core
	cursors *Cursors
}

// Clients holds the operations on registered clients and their subscriptions.
type Clients struct{ *core }

// Settings holds the operations on the cluster's settings.
type Settings struct{ *core }

// Reports holds what is computed from the events in the log: audit, chains of a run, history.
type Reports struct {
	*core
	log    *Log
	chains *chainWatch
}

// New returns the operations on a node's log, and starts the duties that fall to a leader. Both end with ctx. A read
// that finds nothing returns once in a heartbeat.
func New(ctx context.Context, node Node, heartbeat time.Duration, logger hclog.Logger) *Service {
	c := &core{node: node, logger: logger, heartbeat: heartbeat}
	s := &Service{core: c, Log: &Log{c}, Clients: &Clients{c}, Settings: &Settings{c}}
	s.Cursors = &Cursors{core: c}
	s.Letters = &Letters{core: c, cursors: s.Cursors}
	// The engine stores dead letters through s.Letters.
	s.engine = engine.New(ctx, s.Letters, logger)
	s.Cursors.engine = s.engine
	s.Groups = &Groups{core: c, cursors: s.Cursors, engine: s.engine}
	s.Reports = &Reports{core: c, log: s.Log, chains: newChainWatch(c)}
	// The duties run on every node; each checks itself whether the node leads.
	s.duties.Go(func() { s.Reports.chains.run(ctx) })
	s.duties.Go(func() { newCursorScanner(c).run(ctx) })
	return s
}

// Wait returns when the duties and the groups have ended, as they do with the service's context.
func (s *Service) Wait() {
	s.duties.Wait()
	s.engine.Wait()
}

// Machine is the node's state.
func (s *core) Machine() *fsm.Machine { return s.node.Machine() }

// LeadingTerm is the term in which the node leads; 0 where it does not.
func (s *core) LeadingTerm() uint64 { return s.node.LeadingTerm() }

// Overdue is what this node knows of runs that are overdue.
func (s *Reports) Overdue() *api.OverdueRuns { return s.chains.view.Load() }

// PublishRequest is the events of one request, or a packet of them. Producer is
// empty where the caller gave none.
type PublishRequest struct {
	Events   []event.Event
	Packet   *frame.Packet
	Producer string
	Sequence uint64
	Alone    bool // one event that was not sent as a list: errors name no row
	// Reserve makes room for bytes that a packet decodes to, before they are.
	Reserve func(bytes int64) error
}

// Published answers a publish: the state machine's result, and what follows from the caller's own events.
type Published struct {
	fsm.Result
	Hashes   []event.Hash  // one for each event; none for a packet
	Warnings []RowWarnings // in the order of their rows
}

// RowWarnings are the warnings of one event.
type RowWarnings struct {
	Row  int
	List []event.Warning // shared by rows with the same warnings
}

// Publish checks, normalises and hashes the events and appends all of them or none.
// It changes req.events, and policy is what they were decoded with.
func (s *Log) Publish(ctx context.Context, policy *event.Policy, req PublishRequest) (Published, error) {
	if err := checkPublish(policy.Limits, &req); err != nil {
		return Published{}, err
	}
	answer, batch, err := req.admit(policy)
	if err != nil {
		return Published{}, err
	}
	command := frame.Publish{Producer: req.Producer, Sequence: req.Sequence, Count: batch.Len()}
	result, err := s.Propose(ctx, frame.Request{Command: command, Batch: batch})
	// A dedup id that was sent with other content is the fault of one event, which the error names.
	if refusal, ok := errors.AsType[*fsm.Refusal](err); ok && refusal.Code == fsm.Conflict && refusal.Field == "dedup_id" {
		return Published{}, req.row(refusal.Row, err)
	}
	// The events of a retry were appended when it was first sent.
	if err == nil && result.Replayed && result.First != 0 {
		result.Time = s.storedTime(ctx, result.First, result.Time)
	}
	answer.Result = result
	return answer, err
}

// storedTime returns when an event was appended. It waits until this node has the event, and
// returns fallback for one that is trimmed.
func (s *Log) storedTime(ctx context.Context, offset uint64, fallback time.Time) time.Time {
	l := s.Machine().Log()
	if _, err := waitLog(ctx, l, offset); err != nil {
		return fallback
	}
	columns, err := l.Columns(offset)
	if err != nil {
		return fallback
	}
	return columns.AppendedAt
}

// AppendedAt returns a function that says when an event of a publish was appended. A duplicate has the time of the
// event it duplicates, or where this node does not have that one, the time of the publish.
func (s *Log) AppendedAt(a *Published) func(fsm.Placement) time.Time {
	var block *log.Columns // of the duplicate before, most often the next one's too
	return func(p fsm.Placement) time.Time {
		if !p.Duplicate || a.First != 0 && p.Offset >= a.First {
			return a.Time
		}
		if block == nil || p.Offset < block.First || p.Offset > block.Last() {
			found, err := s.Machine().Log().Columns(p.Offset)
			if err != nil {
				return a.Time
			}
			block = found
		}
		return block.AppendedAt
	}
}

// row makes err an error about event i, unless the event was not sent in a list.
func (r *PublishRequest) row(i int, err error) error {
	if r.Alone {
		return err
	}
	return &rowError{i, err}
}

// checkPublish refuses a publish for what is wrong with it as a whole, before its events are looked at.
func checkPublish(limits event.Limits, req *PublishRequest) error {
	switch {
	case req.Rows() == 0:
		return &api.Error{Code: api.InvalidArgument, Field: "events", Message: "no event was sent", Remedy: "send at least one"}
	case req.Rows() > limits.RequestEvents:
		return CheckCount(limits, req.Rows())
	case req.Producer == "" && req.Sequence != 0:
		return &api.Error{Code: api.InvalidArgument, Field: "producer", Message: "a sequence without a producer", Remedy: "send both, or neither"}
	case req.Producer != "" && req.Sequence == 0:
		return &api.Error{Code: api.InvalidArgument, Field: "sequence", Message: "a producer without a sequence", Remedy: "send both; a producer's first sequence is 1"}
	}
	return checkName("producer", req.Producer, limits.NameBytes)
}

// CheckCount refuses more events than a request may have.
func CheckCount(limits event.Limits, events int) error {
	if events <= limits.RequestEvents {
		return nil
	}
	return &api.Error{Code: api.TooLarge, Field: "events", Message: fmt.Sprintf("%d events, the limit for a request is %d", events, limits.RequestEvents),
		Remedy: "send several requests, or raise limits.request_events"}
}

// checkName refuses what cannot be the name of a cursor or a producer.
func checkName(field, name string, limit int) error {
	if len(name) > limit {
		return &api.Error{Code: api.TooLarge, Field: field, Message: fmt.Sprintf("%d bytes, the limit for a name is %d", len(name), limit), Remedy: "use a shorter name"}
	}
	if strings.ToValidUTF8(name, "") != name || strings.ContainsFunc(name, unicode.IsControl) {
		return &api.Error{Code: api.InvalidArgument, Field: field, Message: fmt.Sprintf("%q has a control character or is not UTF-8", name), Remedy: "use printable characters"}
	}
	return nil
}

// Propose gets one command decided. A refusal comes as the error.
func (s *core) Propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	result, err := s.node.Propose(ctx, r)
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return result, err
}

// command gets a command without events decided, and waits up to ownWriteWait until this node
// has applied it, so that a caller who asks the same node next finds it done.
func (s *core) command(ctx context.Context, c frame.Command) (fsm.Result, error) {
	result, err := s.Propose(ctx, frame.Request{Command: c})
	if err != nil {
		return result, err
	}
	ctx, cancel := context.WithTimeout(ctx, ownWriteWait)
	defer cancel()
	_ = s.Machine().WaitApplied(ctx, result.Index) // it is decided in any case
	return result, nil
}

// ownWriteWait bounds how long an answer waits for this node to apply what was decided.
const ownWriteWait = time.Second

// ExplainOffset says what deduplication did with the event at an offset.
func (s *Log) ExplainOffset(ctx context.Context, offset uint64) (api.Explanation, error) {
	if offset == 0 {
		return api.Explanation{}, api.BadValue("offset", "0", "an offset from 1, or a content hash")
	}
	x, err := s.Machine().Explain(ctx, offset)
	return explanationOf(x), err
}

// ExplainHash says what deduplication did with the events of a content hash, 64 hex digits.
func (s *Log) ExplainHash(ctx context.Context, text string) (api.Explanation, error) {
	hash, err := event.ParseHash(strings.ToLower(text))
	if err != nil {
		return api.Explanation{}, err
	}
	x, err := s.Machine().ExplainHash(ctx, hash)
	return explanationOf(x), err
}

// explanationOf is an explanation as callers see it.
func explanationOf(x fsm.Explanation) api.Explanation {
	v := api.Explanation{
		Offset:     x.Offset,
		Type:       x.Type,
		Hash:       x.Hash,
		DedupID:    x.DedupID,
		Kind:       x.Kind,
		Source:     x.Source,
		AppendedAt: x.AppendedAt,
		Suppressed: x.Suppressed,
		First:      x.First,
		Last:       x.Last,
		InWindow:   x.InWindow,
		Until:      x.Until,
		Others:     x.Others,
	}
	for _, one := range x.Sources {
		v.Sources = append(v.Sources, api.SourceCount(one))
	}
	return v
}

// List returns all settings in force, by key.
func (s *Settings) List() (list []api.Setting) {
	for _, one := range s.Machine().ListSettings() {
		list = append(list, api.Setting(one))
	}
	return list
}

// Get returns one setting in force.
func (s *Settings) Get(key string) (api.Setting, error) {
	for _, one := range s.List() {
		if one.Key == key {
			return one, nil
		}
	}
	return api.Setting{}, &api.Error{Code: api.NotFound, Field: "key", Message: fmt.Sprintf("there is no setting %q", key), Remedy: "list them: ringlog settings ls"}
}

// Set changes a setting; an empty value restores the default.
func (s *Settings) Set(ctx context.Context, key, value string) (*api.Setting, error) {
	if err := checkSetting(key, value); err != nil {
		return nil, err
	}
	result, err := s.command(ctx, frame.SettingSet{Key: key, Value: value})
	return (*api.Setting)(result.Setting), err
}

// checkFilter refuses a filter that no event can match: one that Filter.Validate refuses, or
// that names an unknown category. A node whose catalogue lacks the category catches up first.
func (s *core) checkFilter(ctx context.Context, f event.Filter) error {
	if err := f.Validate(); err != nil || s.unknownCategory(f) == nil {
		return err
	}
	if err := s.node.ReadBarrier(ctx); err != nil {
		return err
	}
	// Not returned directly: as an error, a nil *api.Error would not be nil.
	if err := s.unknownCategory(f); err != nil {
		return err
	}
	return nil
}

// unknownCategory returns the error for the first category that this node's catalogue lacks; nil where it lacks none.
func (s *core) unknownCategory(f event.Filter) *api.Error {
	if len(f.Categories) == 0 {
		return nil
	}
	known := s.Machine().Catalogue().Categories()
	for i, name := range f.Categories {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			return &api.Error{Code: api.InvalidArgument, Field: fmt.Sprintf("categories[%d]", i), Message: fmt.Sprintf("there is no category %q", name),
				Remedy: "the categories are " + strings.Join(slices.DeleteFunc(known, func(k string) bool { return k == "" }), ", ")}
		}
	}
	return nil
}

// Compact trims, or with DryRun says what it would do.
func (s *Log) Compact(ctx context.Context, c api.Compaction) (api.TrimResult, error) {
	// What is asked for is relative to the tail, so a node that lags must not resolve it.
	if err := s.node.ReadBarrier(ctx); err != nil {
		return api.TrimResult{}, err
	}
	trim, err := s.trimOf(c)
	if err != nil {
		return api.TrimResult{}, err
	}
	var done fsm.TrimResult
	if c.DryRun {
		done, err = s.Machine().PlanTrim(trim)
	} else {
		var result fsm.Result
		if result, err = s.command(ctx, trim); result.Trim != nil {
			done = *result.Trim
		}
	}
	if err != nil {
		return api.TrimResult{}, err
	}
	return api.TrimResult{First: done.First, Removed: done.Removed, HeldBy: done.HeldBy, Passed: done.Passed, DryRun: c.DryRun}, nil
}

// trimOf returns the command for a compaction: up to which offset it trims, or that the retention settings say so.
func (s *Log) trimOf(c api.Compaction) (frame.Trim, error) {
	first, last := s.Machine().Log().Bounds()
	trim := frame.Trim{Force: c.Force}
	given := 0
	if c.Before != nil {
		given++
		trim.Before = *c.Before
		if trim.Before > last+1 {
			return trim, api.BeyondTail("before", trim.Before, last, fmt.Sprintf("send %d at most, which trims everything", last+1))
		}
	}
	// Keeping more than there is trims nothing.
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
		if trim.Before, err = s.Machine().Log().OffsetAt(time.Now().Add(-age)); err != nil {
			return trim, err
		}
	}
	// The conditions cannot be combined; without any, the retention settings apply.
	switch {
	case given > 1:
		return trim, &api.Error{Code: api.InvalidArgument, Field: "body", Message: "before, older_than and keep say different things", Remedy: "send one of them, or none to apply the retention settings"}
	case given == 0:
		trim.Retention = true
	}
	return trim, nil
}

// Event returns the event at offset.
func (s *Log) Event(ctx context.Context, offset uint64, linearizable bool, minOffset uint64) (event.Event, error) {
	if linearizable {
		if err := s.node.ReadBarrier(ctx); err != nil {
			return event.Event{}, err
		}
	}
	if err := waitFor(ctx, s.Machine().Log(), minOffset); err != nil {
		return event.Event{}, err
	}
	e, err := s.Machine().Log().Get(offset)
	if ahead, ok := errors.AsType[*log.PastTailError](err); ok {
		return e, api.BeyondTail("offset", offset, ahead.Tail, fmt.Sprintf("ask for one up to the tail, or wait for it with min_offset=%d", offset))
	}
	return e, err
}

// Register adds event types to the catalogue of every node and returns their names.
func (s *Log) Register(ctx context.Context, definitions []byte, dryRun bool) ([]event.Type, error) {
	defs, err := event.ParseDefinitions(definitions)
	if err != nil {
		return nil, err
	}
	// What this catalogue refuses, the state machine would refuse too; a dry run ends with this check.
	if _, err := s.Machine().Catalogue().With(defs...); err != nil {
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
