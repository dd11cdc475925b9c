package fsm

import (
	"maps"
	"slices"
	"strings"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
)

// published is what nodes report of the state to each other, as of the newest entry that
// was stored. It is replaced, never changed, so that reading it waits for nothing: an
// entry that waits for the disk must not keep a node from answering pings.
type published struct {
	index      uint64
	term       uint64
	digest     Sum
	clusterID  string
	level      uint32
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

// publish is called with mu held, once the entry is stored.
func (m *Machine) publish() {
	s := m.s
	p := &published{index: s.meta.Applied, term: s.meta.Term, digest: s.meta.Digest, clusterID: s.meta.ClusterID,
		level: s.meta.FeatureLevel, leadership: s.meta.Leadership}
	if old := m.published.Load(); old != nil && s.rosterPublished {
		p.roster = old.roster
	} else {
		byID := func(a, b frame.Member) int { return strings.Compare(a.ID, b.ID) }
		p.roster = &roster{members: slices.SortedFunc(maps.Values(s.members), byID), health: s.health.Clone(),
			predecessors: slices.Clone(s.membership.Predecessors), voters: voterIDs(s.membership.Members)}
		s.rosterPublished = true
	}
	m.published.Store(p)
}

// Term returns the Raft term of the last entry applied.
func (m *Machine) Term() uint64 { return m.published.Load().term }

// ClusterID returns the cluster's id, empty before its first hello.
func (m *Machine) ClusterID() string { return m.published.Load().clusterID }

// FeatureLevel returns the level that all members have reached.
func (m *Machine) FeatureLevel() uint32 { return m.published.Load().level }

// Leadership returns who leads, as of the log.
func (m *Machine) Leadership() election.Leadership { return m.published.Load().leadership }

// Digest returns the newest digest and its index.
func (m *Machine) Digest() (index uint64, sum Sum) {
	p := m.published.Load()
	return p.index, p.digest
}

// Members returns what is known of the nodes, by id.
func (m *Machine) Members() []frame.Member { return slices.Clone(m.published.Load().members) }

// Member returns what is known of one node.
func (m *Machine) Member(id string) (frame.Member, bool) {
	members := m.published.Load().members
	byID := func(m frame.Member, id string) int { return strings.Compare(m.ID, id) }
	i, known := slices.BinarySearchFunc(members, id, byID)
	if !known {
		return frame.Member{}, false
	}
	return members[i], true
}

// Health returns what the log reports of the voters and their quorum.
func (m *Machine) Health() election.Health { return m.published.Load().health.Clone() }

// Predecessors returns the ids of the clusters that this one was recovered from, the oldest first.
func (m *Machine) Predecessors() []string { return slices.Clone(m.published.Load().predecessors) }

// Votes reports whether a member is a voter of the newest configuration that was applied.
func (m *Machine) Votes(id string) bool { return slices.Contains(m.published.Load().voters, id) }
