package raftnode

import (
	"context"
	"strings"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Peers reaches other nodes outside of raft. A url is one of Config.Join or
// what URL makes of a member's HTTP address. Every call is bounded by its
// context, may be made from many goroutines at once, and returns what the
// other side's method of the same purpose returned.
type Peers interface {
	// Identify asks a node what it is: the answer is that of its Node.Report.
	Identify(ctx context.Context, url string, q Question) (Report, error)
	// Forward hands a request, encoded by frame.Request, to the leader's
	// Node.ProposeForwarded. An error that does not wrap one of this package's
	// sentinels is taken as ErrOutcomeUnknown; one that failed before anything
	// was sent should wrap ErrNoLeader.
	Forward(ctx context.Context, url string, request []byte) ([]byte, error)
	// Join asks a node to admit m: it calls its Node.AddMember, or its leader's. A node
	// that joins does not set opts.Force.
	Join(ctx context.Context, url string, m frame.Member, opts MemberOptions) error
	// ReadIndex asks the leader for its Node.ReadIndex.
	ReadIndex(ctx context.Context, url string) (uint64, error)
}

// MemberOptions say how a node is admitted.
type MemberOptions struct {
	Voter bool // promote it once it has caught up
	Force bool // also as a sixth voter and beyond
	// ClusterID is the cluster of the node's data folder; "" if it is of none, or that is not known.
	ClusterID string
}

// Question is what a node asks another for in addition to its report. The zero value asks for nothing more.
type Question struct {
	DigestAt uint64    // report the digest of the state at this index, too
	Standing *Standing // of the asker as it starts: report whether its data folder held more before
}

// Standing is what a node finds in its data folder as it starts.
type Standing struct {
	ClusterID   string `json:"cluster_id"`
	Incarnation string `json:"incarnation"`
	Term        uint64 `json:"term"`
	LastIndex   uint64 `json:"last_index"` // of the raft log or, if that ends before the state, of the state
}

// Report is what a node reports of itself.
type Report struct {
	ID           string    `json:"id"`
	ClusterID    string    `json:"cluster_id"` // "" while in none
	Incarnation  string    `json:"incarnation"`
	RaftAddr     string    `json:"raft"`
	HTTPAddr     string    `json:"http"`
	Version      string    `json:"version"`
	FeatureLevel uint32    `json:"feature_level"`
	Time         time.Time `json:"time"` // its wall clock
	Role         string    `json:"role"`
	Term         uint64    `json:"term"`
	Applied      uint64    `json:"applied_index"`
	LastIndex    uint64    `json:"last_index"` // of its raft log
	LeaderID     string    `json:"leader_id"`
	LeaderHTTP   string    `json:"leader_http"`
	Diverged     bool      `json:"diverged"`

	// The clusters that its cluster was recovered from.
	Predecessors []string `json:"predecessors,omitempty"`
	// On a leader, by the clock of Time: a majority of voters was in Term at this moment or later.
	Confirmed time.Time `json:"confirmed,omitzero"`
	// Incarnations of members whose data folders were replaced by an older copy.
	RolledBack []string `json:"rolled_back,omitempty"`

	Disk DiskStatus `json:"disk"`

	// While no cluster is formed: how many voters are to form it, whom the node
	// sees, itself included, sorted by id, and whether it has settled on them.
	Expect int            `json:"expect,omitempty"`
	Known  []datadir.Peer `json:"known,omitempty"`
	Agreed bool           `json:"agreed,omitempty"`

	// Since when the process runs, and when it did so before; what its journal holds that the log does not have
	// yet, by its own wall clock, and whether it sees no quorum now.
	Started   time.Time       `json:"started"`
	Start     *Standing       `json:"start,omitempty"` // what it found in its data folder then
	RanBefore time.Time       `json:"ran_before,omitzero"`
	Views     []election.View `json:"views,omitempty"`
	InOutage  bool            `json:"in_outage,omitempty"`

	Members []datadir.Peer `json:"members,omitempty"` // as of Applied
	Digests []IndexDigest  `json:"digests,omitempty"` // rising indexes
}

// IndexDigest is the digest of the state at an index.
type IndexDigest struct {
	Index  uint64  `json:"index"`
	Digest fsm.Sum `json:"digest"`
}

// URL returns the URL that Peers take for an address in the form of Config.HTTPAdvertise, which may be a URL already.
func URL(httpAddr string) string {
	if httpAddr == "" || strings.Contains(httpAddr, "://") {
		return httpAddr
	}
	return "http://" + httpAddr
}

func peerOf(m frame.Member) datadir.Peer {
	return datadir.Peer{ID: m.ID, Raft: m.RaftAddr, HTTP: m.HTTPAddr, Incarnation: m.Incarnation}
}

func peersOf(members []frame.Member) []datadir.Peer {
	peers := make([]datadir.Peer, len(members))
	for i, m := range members {
		peers[i] = peerOf(m)
	}
	return peers
}

// Roles of a node.
const (
	RoleLeader    = "leader"
	RoleFollower  = "follower"
	RoleCandidate = "candidate"
	RoleNonVoter  = "non-voter"
)

// DiskStatus is how full a member's disk is.
type DiskStatus struct {
	FreeBytes    uint64 `json:"free_bytes"`
	MinFreeBytes uint64 `json:"min_free_bytes"` // with fewer the member takes no appends; 0: no bound
	Full         bool   `json:"full"`
}
