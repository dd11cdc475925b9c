package raftnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// holdings remembers, in memory, what other members' data folders are known to hold, and finds
// those that were replaced by an older copy: a restored snapshot of a machine or of a disk. Such a
// node has forgotten votes that it gave and entries that it acknowledged.
//
// What a process found in the folder as it started is compared with what the processes before it
// reported, as far as that is durable for good. The term is: raft stores it before it uses it. The
// end of the raft log is not, since a new leader may truncate what was not committed. What was
// applied was committed, so the log or the state reaches that far, while the applied index itself
// may restart lower.
type holdings struct {
	mu    sync.Mutex
	known map[string]holding // by incarnation
}

// holding is the most that a data folder was reported to hold.
type holding struct {
	term, index uint64
	run         time.Time // when the process of the newest report started, by its own clock
	heard       time.Time // when that report arrived
	back        bool      // a process found less in the folder than one before it had reported
}

// see takes a report that was asked for at asked and arrived now, and reports whether it is the first one that shows
// an older copy of the folder. A report that was asked for before the newest one arrived is ignored.
func (h *holdings) see(r Report, asked, now time.Time) (fellBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]holding{}
	}
	k := h.known[r.Incarnation]
	if !asked.After(k.heard) {
		return false
	}
	// Start is compared once per process: its own later reports may well exceed what it found.
	if r.Start != nil && !r.Started.Equal(k.run) && k.exceeds(*r.Start) && !k.back {
		k.back, fellBack = true, true
	}
	k.term, k.index, k.run, k.heard = max(k.term, r.Term), max(k.index, r.Applied), r.Started, now
	h.known[r.Incarnation] = k
	return fellBack
}

// exceeds reports whether k has a higher term or index than a process found as it started.
func (k holding) exceeds(s Standing) bool { return s.Term < k.term || s.LastIndex < k.index }

// exceeds reports whether a data folder was known to hold more than a node finds in it as it
// starts. Nothing is remembered of that: the question may have been overtaken by later reports.
func (h *holdings) exceeds(s Standing) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[s.Incarnation]
	return k.back || k.exceeds(s)
}

// fellBack reports whether a data folder was found to be an older copy.
func (h *holdings) fellBack(incarnation string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[incarnation].back
}

// back returns the data folders that were found to be older copies, sorted.
func (h *holdings) back() (incarnations []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for incarnation, k := range h.known {
		if k.back {
			incarnations = append(incarnations, incarnation)
		}
	}
	slices.Sort(incarnations)
	return incarnations
}

// keep forgets the folders of nodes that are no members.
func (h *holdings) keep(members []datadir.Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.known, func(incarnation string, _ holding) bool {
		return !slices.ContainsFunc(members, func(m datadir.Peer) bool { return m.Incarnation == incarnation })
	})
}

// noteStanding keeps what this node finds in its data folder as it starts.
func (n *Node) noteStanding() error {
	self := n.identity()
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
	for _, m := range n.knownPeers() {
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
	self := n.identity()
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
	if n.holdings.see(r, asked, now) {
		n.logger.Error("a member's data folder was replaced by an older copy: it gets no entry and no vote of it counts",
			"id", r.ID, "incarnation", r.Incarnation, "term", r.Start.Term, "last-index", r.Start.LastIndex, "remedy", datadir.Rejoin)
		n.transport.Disconnect(r.ID)
	}
	// The same report may say that it is this node whose folder is an older copy.
	if err := n.rolledBack(r); err != nil {
		n.cfg.Fatal(err)
	}
}
