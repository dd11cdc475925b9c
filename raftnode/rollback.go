package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// noteStanding keeps what this node finds in its data folder as it starts.
func (n *Node) noteStanding() error {
	self := n.roster.Identity()
	n.standing = Standing{ClusterID: self.ClusterID, Incarnation: self.Incarnation}
	term, err := n.stores.Stable().GetUint64([]byte(keyCurrentTerm))
	if err != nil {
		return err
	}
	last, err := n.stores.Log().LastIndex()
	n.standing.Term, n.standing.LastIndex = term, max(last, n.machine.Applied())
	return err
}

// refuseRollback asks the other members, before raft starts and may vote, whether this node had
// more before than it finds in its data folder. A member that does not answer within a ping's
// interval finds out by its own pings.
func (n *Node) refuseRollback(ctx context.Context) error {
	if err := n.noteStanding(); err != nil || n.cfg.Peers == nil || n.standing.ClusterID == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.Timing.Ping)
	defer cancel()
	// One member that knows of more is enough; further ones are dropped.
	found := make(chan error, 1)
	var asking sync.WaitGroup
	for _, m := range n.roster.Known() {
		if m.ID == n.cfg.ID || m.HTTP == "" {
			continue
		}
		asking.Go(func() {
			r, err := n.cfg.Peers.Identify(ctx, URL(m.HTTP), Question{Standing: &n.standing})
			if err == nil {
				err = n.rolledBack(r)
			}
			// A member that does not answer proves nothing, and must not keep this node from starting.
			if errors.Is(err, ErrRolledBack) {
				select {
				case found <- err:
				default:
				}
			}
		})
	}
	asking.Wait()
	select {
	case err := <-found:
		return err
	default:
		return nil
	}
}

// rolledBack returns ErrRolledBack if another member of the cluster reports that this node's data
// folder is an older copy.
func (n *Node) rolledBack(r Report) error {
	self := n.roster.Identity()
	if r.ClusterID != self.ClusterID || !slices.Contains(r.RolledBack, self.Incarnation) {
		return nil
	}
	return fmt.Errorf("raftnode: %s: %w, as %s reports; %s", n.cfg.Dir, ErrRolledBack, r.ID, datadir.Rejoin)
}

// heardOf checks by a report that arrived now whether the data folder of its member, or of this node, was replaced by
// an older copy. It runs in the goroutine that asked for the report.
func (n *Node) heardOf(r Report, asked, now time.Time) {
	if r.ClusterID == "" || r.ClusterID != n.machine.ClusterID() {
		return
	}
	if n.holdings.See(r, asked, now) {
		n.logger.Error("a member's data folder was replaced by an older copy: it gets no entry and no vote of it counts",
			"id", r.ID, "incarnation", r.Incarnation, "term", r.Start.Term, "last-index", r.Start.LastIndex, "remedy", datadir.Rejoin)
		n.transport.Disconnect(r.ID)
	}
	// The same report may say that it is this node whose folder is an older copy.
	if err := n.rolledBack(r); err != nil {
		n.cfg.Fatal(err)
	}
}
