package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/raftstore"
	"github.com/ringrift/ringlog/raftnode/roster"
)

// rollbackGuard ends this node if its data folder was replaced by an older copy, and cuts off members whose folders
// were. The folder's votes and entries that came after the copy are missing.
type rollbackGuard struct {
	folder     string        // path of the data folder
	within     time.Duration // how long refuseOlderCopy waits for members
	peers      Peers         // nil: nobody is asked
	roster     *roster.Roster
	machine    *fsm.Machine
	stores     *raftstore.Stores
	disconnect func(id string)
	fatal      func(error)
	logger     hclog.Logger

	holdings health.Holdings // what the data folders of the members are known to hold
	standing Standing        // what this node found in its data folder as it started; set by refuseOlderCopy
}

// noteStanding keeps what this node finds in its data folder as it starts.
func (g *rollbackGuard) noteStanding() error {
	self := g.roster.Identity()
	g.standing = Standing{ClusterID: self.ClusterID, Incarnation: self.Incarnation}
	// A vote is given in a term, which raft stores before it gives it.
	term, err := g.stores.Stable().GetUint64([]byte(keyCurrentTerm))
	if err != nil {
		return err
	}
	// An installed snapshot may be newer than all entries of the log.
	last, err := g.stores.Log().LastIndex()
	g.standing.Term, g.standing.LastIndex = term, max(last, g.machine.Applied())
	return err
}

// refuseOlderCopy asks the other members, before raft starts and may vote, whether this node had
// more before than it finds in its data folder. A member that does not answer within a ping's
// interval finds out by its own pings.
func (g *rollbackGuard) refuseOlderCopy(ctx context.Context) error {
	if err := g.noteStanding(); err != nil || g.peers == nil || g.standing.ClusterID == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, g.within)
	defer cancel()
	// One member that knows of more is enough; further ones are dropped.
	found := make(chan error, 1)
	var asking sync.WaitGroup
	// All at once: who does not answer within the bound costs no more than that.
	for _, m := range g.roster.Known() {
		if m.ID == g.roster.ID() || m.HTTP == "" {
			continue
		}
		asking.Go(func() {
			r, err := g.peers.Identify(ctx, URL(m.HTTP), Question{Standing: &g.standing})
			if err == nil {
				err = g.rolledBack(r)
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
func (g *rollbackGuard) rolledBack(r Report) error {
	self := g.roster.Identity()
	if r.ClusterID != self.ClusterID || !slices.Contains(r.RolledBack, self.Incarnation) {
		return nil
	}
	return fmt.Errorf("%s: %w, as %s reports; %s", g.folder, ErrRolledBack, r.ID, datadir.Rejoin)
}

// checkReport checks by a report that arrived now whether the data folder of its member, or of this node, was
// replaced by an older copy. It runs in the goroutine that asked for the report.
func (g *rollbackGuard) checkReport(r Report, asked, now time.Time) {
	if r.ClusterID == "" || r.ClusterID != g.machine.ClusterID() {
		return
	}
	// The member itself ends once a report shows it that others hold it for rolled back.
	if g.holdings.See(r, asked, now) {
		g.logger.Error("a member's data folder was replaced by an older copy: it gets no entry and no vote of it counts",
			"id", r.ID, "incarnation", r.Incarnation, "term", r.Start.Term, "last-index", r.Start.LastIndex,
			"remedy", datadir.Rejoin)
		g.disconnect(r.ID)
	}
	// The same report may say that it is this node whose folder is an older copy.
	if err := g.rolledBack(r); err != nil {
		g.fatal(err)
	}
}
