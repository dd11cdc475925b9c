package membership

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/datadir"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
	"github.com/ringrift/ringlog/raftnode/roster"
	"github.com/ringrift/ringlog/raftnode/upstream"
)

// removals remembers which data folders this node has seen leave the cluster.
type removals struct {
	mu      sync.Mutex
	members map[string]string // id to incarnation, as last seen
	removed map[string]string // id to incarnation: the folder of that id that left last
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

// has reports whether the data folder was a member and no longer is.
func (r *removals) has(id, incarnation string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, ok := r.removed[id]
	return ok && was == incarnation
}

// AdmissionOptions are what an Admission decides by.
type AdmissionOptions struct {
	Raft     *upstream.Raft
	Roster   *roster.Roster
	Machine  *fsm.Machine
	Watch    *health.Watch
	Holdings *health.Holdings
}

// Admission decides which nodes may connect to this one, and whose entries it takes. Its methods are called by the
// transport, from many goroutines, and wait for nothing.
type Admission struct {
	o        AdmissionOptions
	removals removals
}

// NewAdmission returns an admission that has seen nobody leave.
func NewAdmission(o AdmissionOptions) *Admission { return &Admission{o: o} }

// Update notes who is a member now, and returns the ids whose data folders have left since the last call, sorted.
func (a *Admission) Update() (gone []string) { return a.removals.update(a.o.Roster.Known()) }

// Admit decides whether a node that has proven the cluster's secret may connect. It implements
// rafttransport.Options.Admit.
//
// An unknown node that names this cluster is admitted: this state may lag, and the unknown node may be its leader.
// Raft itself neither asks for votes of nodes outside its configuration nor grants them any.
func (a *Admission) Admit(peer rafttransport.Identity) error {
	if a.removals.has(peer.NodeID, peer.Incarnation) {
		return rafttransport.ErrRemoved
	}
	if a.o.Holdings.FellBack(peer.Incarnation) {
		return rafttransport.ErrRolledBack
	}
	// The rest depends on what the state lists, which may be old.
	known := a.o.Roster.Known()
	i := slices.IndexFunc(known, func(m datadir.Peer) bool { return m.ID == peer.NodeID })
	switch {
	case i < 0 && len(known) > 0 && peer.ClusterID == "":
		return fmt.Errorf("%s is not a member: %w", peer.NodeID, rafttransport.ErrNotAdmitted)
	case i < 0 || known[i].Incarnation == peer.Incarnation || a.replacedSince(peer):
		return nil
	default:
		return rafttransport.ErrOtherIncarnation
	}
}

// Hear reports whether this node takes entries from a peer whose data folder its own
// state does not know. The state may be of a time before the peer was replaced. Only a
// leader of this cluster lets a folder learn the cluster's id, and only a leader sends
// entries, which a majority of voters has elected and admitted.
func (a *Admission) Hear(peer rafttransport.Identity) bool {
	// A node of no cluster yet takes entries only from whom Admit lets in, and a folder that has fallen back leads
	// nobody.
	own := a.o.Machine.ClusterID()
	r := a.o.Raft.Load()
	if own == "" || peer.ClusterID != own || a.o.Holdings.FellBack(peer.Incarnation) {
		return false
	}
	return r == nil || r.State() != raft.Leader
}

// replacedSince reports whether a member that is ahead of this node lists the peer
// under this very incarnation: then it was removed and added again meanwhile.
func (a *Admission) replacedSince(peer rafttransport.Identity) bool {
	applied := a.o.Machine.Applied()
	isPeer := func(m datadir.Peer) bool { return m.ID == peer.NodeID && m.Incarnation == peer.Incarnation }
	return slices.ContainsFunc(a.o.Watch.Reports(), func(r health.Report) bool {
		ahead := r.Applied > applied && r.ClusterID == a.o.Machine.ClusterID()
		return r.ID != peer.NodeID && ahead && slices.ContainsFunc(r.Members, isPeer)
	})
}
