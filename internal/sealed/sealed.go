// Package sealed serves an incident as if it were a node: a state of the past that can be read and moved on, and never
// written to. It promises that nothing is asked of the cluster that the incident is of, nor is anybody sent there, and
// that its state is at every moment one that the cluster had.
//
//	node, err := sealed.Open(ctx, file, dir, sealed.Options{HTTP: address})
//	srv, err := server.New(server.Config{Node: node})
package sealed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/view/engine"
	"github.com/ringrift/ringlog/raftnode"
	"github.com/ringrift/ringlog/raftnode/incident"
	"github.com/ringrift/ringlog/snapshots"
)

// Options say how an incident is served.
type Options struct {
	HTTP   string // where it answers
	Logger hclog.Logger
}

// Node is an incident in the place of a node. It is safe for concurrent use.
type Node struct {
	opts   Options
	opened time.Time
	replay *incident.Replay
	views  *engine.Engine
	failed atomic.Pointer[error] // what would have ended a node
}

// Open reads an incident into a folder, which it makes, and is at the state before the slice. The caller removes the
// folder after Close.
func Open(ctx context.Context, r io.Reader, dir string, o Options) (_ *Node, err error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open an incident: %w", err)
	}
	n := &Node{opts: o, opened: time.Now()}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close(), os.RemoveAll(dir))
		}
	}()
	// The rows of views are not part of an incident: they are folded of the events that it has.
	n.views, err = engine.Open(raftnode.ViewOptions(filepath.Join(dir, "views"), o.Logger, func(err error) {
		n.failed.CompareAndSwap(nil, &err)
	}))
	if err != nil {
		return nil, err
	}
	n.replay, err = incident.Open(ctx, r, filepath.Join(dir, "replay"),
		incident.Options{BeforeTrim: n.views.BeforeTrim, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	n.views.Start(n.replay.Machine())
	return n, nil
}

// Close closes what is open.
func (n *Node) Close() error {
	var errs []error
	if n.views != nil {
		errs = append(errs, n.views.Close())
	}
	if n.replay != nil {
		errs = append(errs, n.replay.Close())
	}
	if failed := n.failed.Load(); failed != nil {
		errs = append(errs, *failed)
	}
	return errors.Join(errs...)
}

// Place is where the replay is.
func (n *Node) Place() api.IncidentPlace {
	meta, p := n.replay.Meta(), n.replay.Machine().Position()
	return api.IncidentPlace{
		ClusterID:   meta.ClusterID,
		NodeID:      meta.NodeID,
		Index:       n.replay.Index(),
		Term:        p.Term,
		Time:        p.Time,
		Digest:      p.Digest.String(),
		FirstOffset: meta.Slice.FirstOffset,
		LastOffset:  p.Last,
		LastIndex:   meta.Slice.LastIndex,
		Left:        n.replay.Left(),
	}
}

// Step applies entries: up to the one that holds an offset if there is one, else as many as are asked for.
func (n *Node) Step(ctx context.Context, s api.IncidentStep) (api.IncidentPlace, error) {
	if s.Until != 0 {
		err := n.To(ctx, s.Until)
		return n.Place(), err
	}
	for range max(s.Entries, 1) {
		l, err := n.replay.Step()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return n.Place(), err
		}
		if l == nil {
			break
		}
	}
	return n.Place(), nil
}

// To applies entries up to the one that holds the event at an offset.
func (n *Node) To(ctx context.Context, offset uint64) error {
	return asked("until", n.replay.To(ctx, offset))
}

// ToIndex applies entries up to the one of an index.
func (n *Node) ToIndex(ctx context.Context, index uint64) error {
	return asked("index", n.replay.ToIndex(ctx, index))
}

// ToEnd applies all entries.
func (n *Node) ToEnd(ctx context.Context) error { return n.replay.ToEnd(ctx) }

// asked is the error of what a caller asked for and the incident does not have.
func asked(field string, err error) error {
	if errors.Is(err, incident.ErrOutside) {
		return api.Refuse(api.InvalidArgument, field, err.Error(),
			"a replay moves forward and not back: open the incident again for what is before")
	}
	return err
}

// Machine implements service.Node.
func (n *Node) Machine() *fsm.Machine { return n.replay.Machine() }

// Views implements service.Node.
func (n *Node) Views() *engine.Engine { return n.views }

// ReadBarrier implements service.Node: there is no state but this one.
func (n *Node) ReadBarrier(context.Context) error { return nil }

// LeadingTerm implements service.Node: nobody leads a cluster of the past, and none of a leader's duties are done.
func (n *Node) LeadingTerm() uint64 { return 0 }

// Diverged implements service.Node.
func (n *Node) Diverged() bool { return false }

// NoLeaderError implements service.Node.
func (n *Node) NoLeaderError() error { return raftnode.ErrSealed }

// LeaderHTTP implements server.Observer: nobody leads.
func (n *Node) LeaderHTTP() string { return "" }

// HeardLeader implements server.Observer: what the state says of tokens is as new as it will be.
func (n *Node) HeardLeader() time.Time { return time.Now() }

// Status implements service.Node: the cluster as the log had it. No address leads to it.
func (n *Node) Status() raftnode.Status {
	m := n.Machine()
	p, health := m.Position(), m.Health()
	s := raftnode.Status{
		NodeID:       n.replay.Meta().NodeID,
		ClusterID:    p.ClusterID,
		Role:         raftnode.RoleSealed,
		LeaderID:     m.Leadership().Leader,
		Term:         p.Term,
		CommitIndex:  n.replay.Meta().Slice.LastIndex,
		AppliedIndex: n.replay.Index(),
		Voters:       health,
	}
	offline := map[string]string{}
	for _, v := range health.Voters {
		if !v.Online {
			offline[v.ID] = v.Reason
		}
	}
	_, _, members := m.Configuration()
	for _, c := range members {
		reason, away := offline[c.ID]
		s.Members = append(s.Members, raftnode.MemberStatus{ID: c.ID, Voter: c.Voter, Healthy: !away, Unreachable: reason,
			LastContactMs: -1})
		if c.Voter {
			s.Quorum.Voters++
			if !away {
				s.Quorum.Healthy++
			}
		}
	}
	s.Quorum.Needed = s.Quorum.Voters/2 + 1
	s.Quorum.Margin = s.Quorum.Healthy - s.Quorum.Needed
	return s
}

// Report implements server.Observer.
func (n *Node) Report(raftnode.Question) raftnode.Report {
	s := n.Status()
	return raftnode.Report{ID: s.NodeID, ClusterID: s.ClusterID, HTTPAddr: n.opts.HTTP, FeatureLevel: fsm.FeatureLevel,
		Time: time.Now().UTC(), Role: s.Role, Term: s.Term, Applied: s.AppliedIndex, LastIndex: s.CommitIndex,
		Started: n.opened}
}

// Autopilot implements server.Observer.
func (n *Node) Autopilot() (raftnode.AutopilotVerdict, bool) {
	return raftnode.AutopilotVerdict{}, false
}

// BlackBox implements server.Observer: a voter's journal is its own, and is not part of an incident.
func (n *Node) BlackBox() (raftnode.BlackBox, <-chan struct{}) { return raftnode.BlackBox{}, nil }

// Everything that would change or pass on the state is refused.

// Propose implements service.Node.
func (n *Node) Propose(context.Context, frame.Request) (fsm.Result, error) {
	return fsm.Result{}, raftnode.ErrSealed
}

// ProposeForwarded implements server.Observer.
func (n *Node) ProposeForwarded(context.Context, []byte) ([]byte, error) {
	return nil, raftnode.ErrSealed
}

// ReadIndex implements server.Observer.
func (n *Node) ReadIndex(context.Context) (uint64, error) { return 0, raftnode.ErrSealed }

// Backup implements server.Observer.
func (n *Node) Backup(context.Context, io.Writer) (snapshots.Meta, error) {
	return snapshots.Meta{}, raftnode.ErrSealed
}

// Incident implements server.Observer.
func (n *Node) Incident(context.Context, io.Writer, api.Position, api.Position) (snapshots.Meta, error) {
	return snapshots.Meta{}, raftnode.ErrSealed
}

// AddMember implements server.Membership.
func (n *Node) AddMember(context.Context, frame.Member, raftnode.MemberOptions) (string, error) {
	return "", raftnode.ErrSealed
}

// Promote implements server.Membership.
func (n *Node) Promote(context.Context, string, bool) (string, error) { return "", raftnode.ErrSealed }

// Demote implements server.Membership.
func (n *Node) Demote(context.Context, string) (string, error) { return "", raftnode.ErrSealed }

// Remove implements server.Membership.
func (n *Node) Remove(context.Context, string) (string, error) { return "", raftnode.ErrSealed }

// StepDown implements server.Membership.
func (n *Node) StepDown(context.Context, string) error { return raftnode.ErrSealed }
