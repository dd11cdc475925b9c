package service

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	groups "github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/internal/view/engine"
	"github.com/ringrift/ringlog/raftnode"
)

// Node is the node whose log a service serves. *raftnode.Node is one.
type Node interface {
	// Propose returns what the cluster decides about a command. Its errors are those of package raftnode, a
	// *fsm.Refusal, or the context's where nothing was proposed. It does not keep what it is given.
	Propose(ctx context.Context, r frame.Request) (fsm.Result, error)
	// Machine is the local state.
	Machine() *fsm.Machine
	// Views is what the node folds of the log.
	Views() *engine.Engine
	// ReadBarrier returns once the local state has all that was acknowledged before the call.
	ReadBarrier(ctx context.Context) error
	// Status is what the node sees of the cluster now.
	Status() raftnode.Status
	// NoLeaderError says why the node knows no leader, as far as it knows; it wraps raftnode.ErrNoLeader.
	NoLeaderError() error
	// LeadingTerm is the term in which the node leads and takes requests; 0 if it does not lead. The
	// state then has all that was committed before that term.
	LeadingTerm() uint64
	// Diverged reports whether the node's state is not the majority's: it serves nobody.
	Diverged() bool
}

// Service is the operations on a node's log, by subject. What callers ask for and what they get are the
// project's own types. It is safe for concurrent use.
type Service struct {
	*core
	// Each part is one subject; none is ever nil.
	Log         *Log
	Cursors     *Cursors
	Groups      *Groups
	Letters     *Letters
	Clients     *Clients
	Roles       *Roles
	Allocations *Allocations
	Schedule    *Schedule
	Views       *Views
	Tokens      *Tokens
	Transfers   *Transfers
	Settings    *Settings
	Reports     *Reports
	// Groups and Cursors use the engine; Wait waits for it.
	engine *groups.Engine
	// chains, the cursor scanner, the lag watch, the schedule, the firings of views, and renewals
	duties sync.WaitGroup
}

// core is what the operations of all subjects need: the node, and the ways to propose, check and read.
type core struct {
	// Everything here is read-only after New.
	node      Node
	logger    hclog.Logger
	heartbeat time.Duration // a read that finds nothing returns once in each
}

// New returns the operations on a node's log, and starts the duties that fall to a leader. Both end with ctx. A read
// that finds nothing returns once in a heartbeat.
func New(ctx context.Context, node Node, heartbeat time.Duration, logger hclog.Logger) *Service {
	// The parts that need nothing but the node.
	c := &core{node: node, logger: logger, heartbeat: heartbeat}
	s := &Service{core: c, Log: &Log{c}, Clients: &Clients{c}, Schedule: &Schedule{c}, Settings: &Settings{c},
		Views: &Views{c, node.Views()}, Tokens: &Tokens{c},
		Transfers: &Transfers{c, node.Views()}}
	s.Roles = &Roles{c, joinRenewals(ctx, s, func(leases []frame.RoleLease) frame.Command {
		return frame.RoleRenew{Leases: leases}
	})}
	s.Allocations = &Allocations{c, joinRenewals(ctx, s, func(leases []frame.AllocationLease) frame.Command {
		return frame.AllocationRenew{Leases: leases}
	})}
	// Letters need Cursors, the engine needs Letters, and Cursors show what the engine delivers: so the engine is put
	// into Cursors afterwards.
	s.Cursors = &Cursors{core: c}
	s.Letters = &Letters{core: c, cursors: s.Cursors}
	s.engine = groups.New(ctx, s.Letters, logger)
	s.Cursors.engine = s.engine
	s.Groups = &Groups{core: c, cursors: s.Cursors, engine: s.engine}
	s.Reports = &Reports{core: c, log: s.Log, chains: newChainWatch(c)}
	// The duties run on every node; each checks itself whether the node leads.
	s.duties.Go(func() { s.Reports.chains.run(ctx) })
	s.duties.Go(func() { newCursorScanner(c).run(ctx) })
	s.duties.Go(func() { newLagWatch(c).run(ctx) })
	s.duties.Go(func() { scheduleWatch{c}.run(ctx) })
	s.duties.Go(func() { viewWatch{c, node.Views()}.run(ctx) })
	return s
}

// Wait returns when the duties and the groups have ended, as they do with the service's context.
func (s *Service) Wait() {
	s.duties.Wait()
	s.engine.Wait()
}

// Machine is the node's state.
func (c *core) Machine() *fsm.Machine { return c.node.Machine() }

// LeadingTerm is the term in which the node leads; 0 if it does not.
func (c *core) LeadingTerm() uint64 { return c.node.LeadingTerm() }

// Propose returns what the cluster decides about one command. A refusal is the error.
func (c *core) Propose(ctx context.Context, r frame.Request) (fsm.Result, error) {
	// The node reports what it could not propose, the state machine what it refused.
	result, err := c.node.Propose(ctx, r)
	if err == nil && result.Refusal != nil {
		err = result.Refusal
	}
	return result, err
}

// proposeAndApply proposes a command without events, and waits up to ownWriteWait until this node has applied it, so a
// caller who asks the same node next finds it done. An act of an operator or admin is reported with it.
func (c *core) proposeAndApply(ctx context.Context, command frame.Command) (fsm.Result, error) {
	result, err := c.Propose(ctx, frame.Request{Command: c.attributed(ctx, command)})
	if err != nil {
		return result, err
	}
	// On the leader it is applied already; a follower learns of the commit a moment later.
	ctx, cancel := context.WithTimeout(ctx, ownWriteWait)
	defer cancel()
	_ = c.Machine().WaitApplied(ctx, result.Index) // it is decided in any case
	return result, nil
}

// ownWriteWait bounds how long an answer waits for this node to apply what was decided.
const ownWriteWait = time.Second

// checkFilter refuses a filter that no event can match: one that Filter.Validate refuses, or
// that names an unknown category. A node whose catalogue lacks the category catches up first.
func (c *core) checkFilter(ctx context.Context, f event.Filter) error {
	// A filter without categories needs no newer catalogue.
	if err := f.Validate(); err != nil || c.unknownCategory(f) == nil {
		return err
	}
	// The category may have been registered a moment ago on another node.
	if err := c.node.ReadBarrier(ctx); err != nil {
		return err
	}
	// Not returned directly: as an error, a nil *api.Error would not be nil.
	if err := c.unknownCategory(f); err != nil {
		return err
	}
	return nil
}

// FilterWarnings says what of a filter matches nothing that this node's catalogue knows. All calls that take a filter
// answer with it.
func (c *core) FilterWarnings(f event.Filter) []event.Warning {
	return f.Warnings(c.Machine().Catalogue())
}

// unknownCategory returns the error for the first category that this node's catalogue lacks; nil if it lacks none.
func (c *core) unknownCategory(f event.Filter) *api.Error {
	if len(f.Categories) == 0 {
		return nil
	}
	// Categories are part of the catalogue, which is not the same in every build, so it is checked here and not by
	// the state machine.
	known := c.Machine().Catalogue().Categories()
	for i, name := range f.Categories {
		if !slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			return api.Refuse(api.InvalidArgument, fmt.Sprintf("categories[%d]", i),
				fmt.Sprintf("there is no category %q", name),
				"the categories are "+strings.Join(slices.DeleteFunc(known, func(k string) bool { return k == "" }), ", "))
		}
	}
	return nil
}
