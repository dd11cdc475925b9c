// Package roster says who the members of the cluster are, as one node knows them.
//
// A node has three lists of them, and each is right about something: raft's configuration is the newest and has
// votes and raft addresses; the replicated state has names, HTTP addresses and data folders; the marker of the
// data folder has the members that a cluster is about to be formed of. Each method says which of them it asks.
// Nothing here waits, and all may be called from many goroutines.
package roster

import (
	"slices"
	"strings"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// Roles of a node.
const (
	RoleLeader    = "leader"
	RoleFollower  = "follower"
	RoleCandidate = "candidate"
	RoleNonVoter  = "non-voter"
)

// Options are a node's own name and the three lists.
type Options struct {
	ID      string        // of this node
	HTTP    string        // its address for other nodes
	Version string        // of its program
	Address func() string // raft's address as others dial it; asked once the transport is open

	Raft    *upstream.Raft // not yet started while the node opens
	Machine *fsm.Machine
	Dir     *datadir.Dir
}

// Roster is the members as one node knows them.
type Roster struct{ o Options }

// New returns a roster. It asks nothing before a method is called.
func New(o Options) *Roster { return &Roster{o} }

// ID is the id of this node.
func (r *Roster) ID() string { return r.o.ID }

// Address is raft's address of this node, as others dial it.
func (r *Roster) Address() string { return r.o.Address() }

// Self is this node as a member.
func (r *Roster) Self() frame.Member {
	return frame.Member{
		ID:           r.o.ID,
		RaftAddr:     r.Address(),
		HTTPAddr:     r.o.HTTP,
		Incarnation:  r.o.Dir.Marker().Incarnation,
		FeatureLevel: fsm.FeatureLevel,
		Version:      r.o.Version,
	}
}

// Identity is what this node states of itself in handshakes. The cluster's id comes from the state, or from the
// marker while the state has none.
func (r *Roster) Identity() rafttransport.Identity {
	m := r.o.Dir.Marker()
	cluster := m.ClusterID
	if id := r.o.Machine.ClusterID(); id != "" {
		cluster = id
	}
	return rafttransport.Identity{ClusterID: cluster, NodeID: m.NodeID, Incarnation: m.Incarnation}
}

// Known returns the members as the state has them, and before the first term start those that were agreed on for
// the bootstrap. The caller may change the list.
func (r *Roster) Known() []datadir.Peer {
	if members := r.o.Machine.Members(); len(members) > 0 {
		return PeersOf(members)
	}
	return r.o.Dir.Marker().Peers
}

// Others returns Known without this node. The caller may change the list.
func (r *Roster) Others() []datadir.Peer {
	return slices.DeleteFunc(r.Known(), func(p datadir.Peer) bool { return p.ID == r.o.ID })
}

// Servers is raft's newest configuration, committed or not.
func (r *Roster) Servers() []raft.Server { return r.o.Raft.Servers() }

// Server returns a member of raft's newest configuration.
func (r *Roster) Server(id string) (raft.Server, bool) {
	servers := r.Servers()
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

// Voters returns the ids of the voters in raft's newest configuration.
func (r *Roster) Voters() (ids []string) {
	for _, s := range r.Servers() {
		if s.Suffrage == raft.Voter {
			ids = append(ids, string(s.ID))
		}
	}
	return ids
}

// Peer returns a member as the state has it, with the address that raft uses for it; false if the state does not
// know it.
func (r *Roster) Peer(id string) (datadir.Peer, bool) {
	m, known := r.o.Machine.Member(id)
	p := PeerOf(m)
	if s, listed := r.Server(id); listed {
		p.Raft = string(s.Address)
	}
	return p, known
}

// PeersAmong returns the members of ids, without those that the state does not know.
func (r *Roster) PeersAmong(ids []string) (peers []datadir.Peer) {
	for _, id := range ids {
		if p, known := r.Peer(id); known {
			peers = append(peers, p)
		}
	}
	return peers
}

// MemberAt returns the id of the node that should answer at a raft address. Raft's configuration is newer than
// the members of the state.
func (r *Roster) MemberAt(addr raft.ServerAddress) (string, bool) {
	for _, s := range r.Servers() {
		if s.Address == addr {
			return string(s.ID), true
		}
	}
	for _, p := range r.Known() {
		if p.Raft == string(addr) {
			return p.ID, true
		}
	}
	return "", false
}

// MayVote is false while this node knows no voters: neither from a configuration nor from an agreed bootstrap.
func (r *Roster) MayVote() bool {
	return len(r.Servers()) > 0 || len(r.o.Dir.Marker().Peers) > 0
}

// VoteAs returns the id of a voter for a candidate that is a member without a vote, as far as this node has heard:
// it may have been promoted meanwhile. It returns "" for a voter and for a node that is not a member.
func (r *Roster) VoteAs(candidate string) (voter string) {
	listed := false
	for _, s := range r.Servers() {
		switch {
		case string(s.ID) != candidate && s.Suffrage == raft.Voter:
			voter = string(s.ID)
		// A voter is judged under its own name.
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

// Leader returns the id of the leader that this node follows or is, "" if there is none, and its URL, "" if the
// state does not know it. Raft has to be started.
func (r *Roster) Leader() (id, url string) {
	_, server := r.o.Raft.Load().LeaderWithID()
	if server == "" {
		return "", ""
	}
	id = string(server)
	// Raft knows only raft addresses. The URL comes from the state, which may not list the leader yet.
	if m, known := r.o.Machine.Member(id); known {
		return id, URL(m.HTTPAddr)
	}
	for _, p := range r.Known() {
		if p.ID == id {
			return id, URL(p.HTTP)
		}
	}
	return id, ""
}

// Role is what this node is in the cluster, as raft has it. Raft has to be started.
func (r *Roster) Role() string {
	// Raft calls a member without a vote a follower.
	switch r.o.Raft.Load().State() {
	case raft.Leader:
		return RoleLeader
	case raft.Candidate:
		return RoleCandidate
	}
	if s, listed := r.Server(r.o.ID); listed && s.Suffrage != raft.Voter {
		return RoleNonVoter
	}
	return RoleFollower
}

// URL returns the URL of a node's HTTP address, which may be a URL already; "" of "".
func URL(httpAddr string) string {
	if httpAddr == "" || strings.Contains(httpAddr, "://") {
		return httpAddr
	}
	return "http://" + httpAddr
}

// PeerOf returns a member of the state in the form that the marker has.
func PeerOf(m frame.Member) datadir.Peer {
	return datadir.Peer{ID: m.ID, Raft: m.RaftAddr, HTTP: m.HTTPAddr, Incarnation: m.Incarnation}
}

// PeersOf is PeerOf of each.
func PeersOf(members []frame.Member) []datadir.Peer {
	peers := make([]datadir.Peer, len(members))
	for i, m := range members {
		peers[i] = PeerOf(m)
	}
	return peers
}
