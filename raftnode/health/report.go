package health

import (
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/datadir"
)

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
	Version      string    `json:"version"`       // of the program
	FeatureLevel uint32    `json:"feature_level"` // the highest that the program knows, not the cluster's
	Time         time.Time `json:"time"`          // its wall clock
	Role         string    `json:"role"`          // one of roster's
	Term         uint64    `json:"term"`
	Applied      uint64    `json:"applied_index"` // of its state
	LastIndex    uint64    `json:"last_index"`    // of its raft log
	LeaderID     string    `json:"leader_id"`     // "" if it knows none
	LeaderHTTP   string    `json:"leader_http"`
	Diverged     bool      `json:"diverged"` // it serves nothing any more

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
	Digests []IndexDigest  `json:"digests,omitempty"` // ascending indexes
}

// IndexDigest is the digest of the state at an index.
type IndexDigest struct {
	Index  uint64  `json:"index"`
	Digest fsm.Sum `json:"digest"`
}

// DiskStatus is how full a member's disk is.
type DiskStatus struct {
	FreeBytes    uint64 `json:"free_bytes"`
	MinFreeBytes uint64 `json:"min_free_bytes"` // with fewer the member takes no appends; 0: no bound
	Full         bool   `json:"full"`
}
