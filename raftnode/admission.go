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

// knownPeers returns the members as the state has them, and before the first term start those that were agreed on for
// the bootstrap.
func (n *Node) knownPeers() []datadir.Peer {
	if members := n.machine.Members(); len(members) > 0 {
		return peersOf(members)
	}
	return n.dir.Marker().Peers
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
	if n.holdings.fellBack(peer.Incarnation) {
		return rafttransport.ErrRolledBack
	}
	// The rest depends on what the state lists, which may be old.
	known := n.knownPeers()
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
	return own != "" && peer.ClusterID == own && !n.holdings.fellBack(peer.Incarnation) && (r == nil || r.State() != raft.Leader)
}

// voteAs returns the id of a voter for a candidate that is a member without a vote, as far as
// this node has heard: it may have been promoted meanwhile.
func (n *Node) voteAs(candidate string) (voter string) {
	listed := false
	for _, s := range n.servers() {
		switch {
		case string(s.ID) != candidate && s.Suffrage == raft.Voter:
			voter = string(s.ID)
		case string(s.ID) == candidate && s.Suffrage == raft.Voter:
			return ""
		case string(s.ID) == candidate:
			listed = true
		}
	}
	if !listed {
		return ""
	}
	return voter
}

// newerWord reports whether a member that is ahead of this node lists the peer
// under this very incarnation: then it was removed and added again meanwhile.
func (n *Node) newerWord(peer rafttransport.Identity) bool {
	applied := n.machine.Applied()
	for _, r := range n.watch.reports() {
		if r.ID != peer.NodeID && r.Applied > applied && r.ClusterID == n.machine.ClusterID() &&
			slices.ContainsFunc(r.Members, func(m datadir.Peer) bool {
				return m.ID == peer.NodeID && m.Incarnation == peer.Incarnation
			}) {
			return true
		}
	}
	return false
}

// identity is what this node states of itself in handshakes. The cluster's id comes from the state, or from the
// marker while the state has none.
func (n *Node) identity() rafttransport.Identity {
	m := n.dir.Marker()
	cluster := m.ClusterID
	if id := n.machine.ClusterID(); id != "" {
		cluster = id
	}
	return rafttransport.Identity{ClusterID: cluster, NodeID: m.NodeID, Incarnation: m.Incarnation}
}

// memberAt returns the id of the node that should answer at a raft address. Raft's configuration is newer than
// the members of the state.
func (n *Node) memberAt(addr raft.ServerAddress) (string, bool) {
	for _, s := range n.servers() {
		if s.Address == addr {
			return string(s.ID), true
		}
	}
	for _, p := range n.knownPeers() {
		if p.Raft == string(addr) {
			return p.ID, true
		}
	}
	return "", false
}

// mayVote is false while this node knows no voters: neither from a
// configuration nor from an agreed bootstrap.
func (n *Node) mayVote() bool {
	return len(n.servers()) > 0 || len(n.dir.Marker().Peers) > 0
}

// servers is raft's newest configuration, committed or not.
func (n *Node) servers() []raft.Server { return n.raft.Servers() }

// server returns a member of raft's newest configuration.
func (n *Node) server(id string) (raft.Server, bool) {
	servers := n.servers()
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

// votersOf returns the ids of the voters among servers.
func votersOf(servers []raft.Server) (ids []string) {
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}
