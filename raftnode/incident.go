package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/raftnode/incident"
	"github.com/ringrift/ringlog/raftnode/statestore"
	"github.com/ringrift/ringlog/snapshots"
)

// Incident writes a slice of the log with the state before it, as package incident reads it. It writes nothing before
// an error that says why there is no such slice: an *incident.NotKeptError, or one of a position.
func (n *Node) Incident(ctx context.Context, w io.Writer, from, to api.Position) (meta snapshots.Meta, err error) {
	// A state that is not on a disk has no history, and a node that has applied nothing has no past.
	if n.history == nil || n.machine.Applied() == 0 {
		return meta, &incident.NotKeptError{}
	}
	// Both positions are judged by one moment, so ages agree with each other.
	now := time.Now()
	since, err := incident.TimeAt(from, n.machine.Log(), now)
	if err != nil {
		return meta, err
	}
	until, err := incident.TimeAt(to, n.machine.Log(), now)
	if err != nil {
		return meta, err
	}
	// The checkpoints stay for as long as their files have no other names.
	var gathered *incident.Gathered
	err = n.history.With(func(kept []statestore.Kept) error {
		// Entries before it are compacted: a slice can only begin with a checkpoint from which the log continues.
		first, err := n.stores.Log().FirstIndex()
		if err != nil {
			return err
		}
		gathered, err = incident.Gather(ctx, n.snapshots.NewFolder(), incident.Source{
			NodeID:  n.cfg.ID,
			Machine: n.machine,
			Kept:    kept,
			First:   first,
			Entry:   n.stores.Log().GetLog,
		}, since, until)
		return err
	})
	if err != nil {
		return meta, fmt.Errorf("incident: %w", err)
	}
	// What was gathered is held by names of its own, so it can be sent without keeping the history from its work.
	err = errors.Join(gathered.Write(ctx, w), gathered.Close())
	if err != nil {
		return meta, fmt.Errorf("incident: %w", err)
	}
	return gathered.Meta(), nil
}
