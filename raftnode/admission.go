package raftnode

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// removals remembers which data folders this node has seen leave the cluster.
type removals struct {
	mu      sync.Mutex
	members map[string]string // id to incarnation, as last seen
	removed map[string]string
}

// update replaces the members by the present ones, and returns the ids whose data folders are gone, sorted.
func (r *removals) update(members []datadir.Peer) (gone []string) {
	now := make(map[string]string, len(members))
	for _, m := range members {
		now[m.ID] = m.Incarnation
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.removed == nil {
		r.removed = make(map[string]string)
	}
	// An id with another incarnation was removed and added again: the folder before it is gone.
	for id, incarnation := range r.members {
		if now[id] != incarnation {
			r.removed[id] = incarnation
			gone = append(gone, id)
		}
	}
	// The very same folder may be added again.
	maps.DeleteFunc(r.removed, func(id, incarnation string) bool { return now[id] == incarnation })
	r.members = now
	slices.Sort(gone)
	return gone
}

// has reports whether the data folder was a member and is none any more.
func (r *removals) has(id, incarnation string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.removed[id]
	return ok && was == incarnation
}

// admit decides whether a node that has proven the cluster's secret may connect. It implements
// rafttransport.Options.Admit.
//
// An unknown node that names this cluster is admitted: this state may lag, and the unknown node may be its leader.
// Raft itself neither asks for votes of nodes outside its configuration nor grants them any.
func (n *Node) admit(peer rafttransport.Identity) error {
	if n.removals.has(peer.NodeID, peer.Incarnation) {
		return rafttransport.ErrRemoved
	}
	if n.holdings.FellBack(peer.Incarnation) {
		return rafttransport.ErrRolledBack
	}
	// The rest depends on what the state lists, which may be old.
	known := n.roster.Known()
	i := slices.IndexFunc(known, func(m datadir.Peer) bool { return m.ID == peer.NodeID })
	switch {
	case i < 0 && len(known) > 0 && peer.ClusterID == "":
		return fmt.Errorf("%s is no member: %w", peer.NodeID, rafttransport.ErrNotAdmitted)
	case i < 0 || known[i].Incarnation == peer.Incarnation || n.newerWord(peer):
		return nil
	default:
		return rafttransport.ErrOtherIncarnation
	}
}

// hear reports whether this node takes entries from a peer whose data folder its own
// state does not know. The state may be of a time before the peer was replaced. Only a
// leader of this cluster lets a folder learn the cluster's id, and only a leader sends
// entries, which a majority of voters has elected and admitted.
func (n *Node) hear(peer rafttransport.Identity) bool {
	own := n.machine.ClusterID()
	r := n.raft.Load()
	return own != "" && peer.ClusterID == own && !n.holdings.FellBack(peer.Incarnation) && (r == nil || r.State() != raft.Leader)
}

// newerWord reports whether a member that is ahead of this node lists the peer
// under this very incarnation: then it was removed and added again meanwhile.
func (n *Node) newerWord(peer rafttransport.Identity) bool {
	applied := n.machine.Applied()
	for _, r := range n.watch.Reports() {
		if r.ID != peer.NodeID && r.Applied > applied && r.ClusterID == n.machine.ClusterID() &&
			slices.ContainsFunc(r.Members, func(m datadir.Peer) bool {
				return m.ID == peer.NodeID && m.Incarnation == peer.Incarnation
			}) {
			return true
		}
	}
	return false
}
