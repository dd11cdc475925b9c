package fsm

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
)

// published is what nodes report of the state to each other, as of the newest entry that
// was stored. It is replaced and never changed, so readers need no lock: an entry
// that waits for the disk must not keep a node from answering pings.
type published struct {
	index      uint64 // of the entry
	term       uint64
	digest     Sum
	clusterID  string
	level      uint32 // the cluster's feature level
	time       int64  // replicated, in Unix nanoseconds
	leadership election.Leadership
	*roster
}

// roster is the part of it that few entries change.
type roster struct {
	members      []frame.Member // by id
	health       election.Health
	predecessors []string
	voters       []string // of the newest configuration applied, in its order
}

// reports is the part of a Machine that answers from what was published last.
type reports struct{ newest atomic.Pointer[published] }

// publish replaces what is published. The caller has stored the entry, and holds the state's lock for
// writing: publish sets rosterPublished.
func (r *reports) publish(s *state) {
	p := &published{
		index:      s.meta.Applied,
		term:       s.meta.Term,
		digest:     s.meta.Digest,
		clusterID:  s.meta.ClusterID,
		level:      s.meta.FeatureLevel,
		time:       s.meta.Time,
		leadership: s.meta.Leadership,
	}

	// Most entries change nothing of the roster, which would be copied for each of them.
	if old := r.newest.Load(); old != nil && s.rosterPublished {
		p.roster = old.roster
	} else {
		byID := func(a, b frame.Member) int { return strings.Compare(a.ID, b.ID) }
		p.roster = &roster{
			members:      slices.SortedFunc(maps.Values(s.members), byID),
			health:       s.health.Clone(),
			predecessors: slices.Clone(s.membership.Predecessors),
			voters:       voterIDs(s.membership.Members),
		}
		s.rosterPublished = true
	}
	r.newest.Store(p)
}

// Term returns the Raft term of the last entry applied.
func (r *reports) Term() uint64 { return r.newest.Load().term }

// ClusterID returns the cluster's id, empty before its first term start.
func (r *reports) ClusterID() string { return r.newest.Load().clusterID }

// FeatureLevel returns the level that all members have reached.
func (r *reports) FeatureLevel() uint32 { return r.newest.Load().level }

// Leadership returns who leads, as of the log.
func (r *reports) Leadership() election.Leadership { return r.newest.Load().leadership }

// Digest returns the newest digest and its index.
func (r *reports) Digest() (index uint64, sum Sum) {
	p := r.newest.Load()
	return p.index, p.digest
}

// Members returns what is known of the nodes, by id.
func (r *reports) Members() []frame.Member { return slices.Clone(r.newest.Load().members) }

// Member returns what is known of one node.
func (r *reports) Member(id string) (frame.Member, bool) {
	members := r.newest.Load().members
	byID := func(m frame.Member, id string) int { return strings.Compare(m.ID, id) }
	i, known := slices.BinarySearchFunc(members, id, byID)
	if !known {
		return frame.Member{}, false
	}
	return members[i], true
}

// Health returns what the log reports of the voters and their quorum.
func (r *reports) Health() election.Health { return r.newest.Load().health.Clone() }

// Predecessors returns the ids of the clusters that this one was recovered from, the oldest first.
func (r *reports) Predecessors() []string { return slices.Clone(r.newest.Load().predecessors) }

// Votes reports whether a member is a voter of the newest configuration that was applied.
func (r *reports) Votes(id string) bool { return slices.Contains(r.newest.Load().voters, id) }

// StoredTime returns the replicated time of the newest entry that was stored, in Unix nanoseconds. It does not wait for
// an entry that is being applied.
func (r *reports) StoredTime() int64 { return r.newest.Load().time }
