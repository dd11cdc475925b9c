package api

import "time"

// The JSON shapes of the HTTP interface are declared here and in the files beside this one, once each: servers
// encode them, clients decode them. /openapi.json describes the same.

// Status is what a node says of itself and its cluster: GET /status.
type Status struct {
	Cluster
	Version       string    `json:"version"`
	UptimeSeconds float64   `json:"uptime_seconds"`
	Clock         time.Time `json:"clock"` // of the node's machine, when it answered; Time is replicated
	// Waiting and WaitingBytes are the requests that wait to be put into an entry.
	Waiting      int          `json:"waiting_requests"`
	WaitingBytes int          `json:"waiting_bytes"`
	Queue        Queue        `json:"queue"`        // of this node; a leader's alone is used
	Backpressure Pressure     `json:"backpressure"` // as the log records the leader's
	Overdue      *OverdueRuns `json:"overdue_chains"`
	Cursors      []Cursor     `json:"cursors"` // the stalled and throttled ones, and those that lag most
	CursorsTotal int          `json:"cursors_total"`
	// CursorsLeft is how many of CursorsTotal are not in Cursors; GET /v1/cursors has all of them.
	CursorsLeft int         `json:"cursors_left_out"`
	Dedup       DedupStatus `json:"dedup"`
	DeadLetters LetterStats `json:"dead_letters"`
	Log         LogStats    `json:"log"`
	Refusals    []Refusal   `json:"refusals,omitempty"` // nodes that the raft handshake refused
	// JoinRefused is why this node was last not admitted to the cluster, NotFormed what it waits for while it is in none.
	JoinRefused string `json:"join_refused,omitempty"`
	NotFormed   string `json:"not_formed,omitempty"`
	TLS         *TLS   `json:"tls,omitempty"` // of this node's ports; absent without TLS
	// LastBackup is when this node last sent a whole backup; absent if it never has.
	LastBackup time.Time `json:"last_backup,omitzero"`
	// Subscriptions is what the first clients report of themselves, Timeouts what ran out of time in their handlers.
	Subscriptions SubscriptionStatus `json:"event_subscription_status"`
	Timeouts      HandlerTimeouts    `json:"handler_timeouts"`
}

// TLS is how the ports of a node are secured.
type TLS struct {
	Mode    string    `json:"mode"`              // allow: plain connections are taken, too; or require
	Expires time.Time `json:"expires"`           // until then the certificate in use, and its CA, are valid
	Problem string    `json:"problem,omitempty"` // why the node does not use the newest files
}

// The roles of a node.
const (
	RoleLeader    = "leader"
	RoleFollower  = "follower"
	RoleCandidate = "candidate"
	RoleNonVoter  = "non-voter"
	RoleSealed    = "sealed" // an incident in the place of a node
)

// The suffrages that may be recorded for a member.
const (
	DesiredVote   = "vote"
	DesiredNoVote = "no_vote"
)

// Cluster is what a node knows of its cluster: GET /v1/cluster.
type Cluster struct {
	// NodeID is the node that answers, ClusterID the cluster it belongs to; "" while it belongs to none.
	NodeID       string `json:"node_id"`
	ClusterID    string `json:"cluster_id"`
	Role         string `json:"role"` // RoleLeader, …
	LeaderID     string `json:"leader_id"`
	LeaderHTTP   string `json:"leader_http"`
	Term         uint64 `json:"term"`
	FirstOffset  uint64 `json:"first_offset"`
	LastOffset   uint64 `json:"last_offset"`
	AppliedIndex uint64 `json:"applied_index"`
	// CommitIndex is what Raft has committed as far as the node knows; its state has that up to AppliedIndex.
	CommitIndex uint64     `json:"commit_index"`
	Digest      Digest     `json:"digest"`
	Members     []Member   `json:"members"`
	Quorum      Quorum     `json:"quorum"`
	Outage      *Outage    `json:"outage,omitempty"` // as this node sees it now
	Health      Health     `json:"health"`
	Autopilot   *Autopilot `json:"autopilot,omitempty"` // on the leader
	// FeatureLevel is what all members know: no command that needs more is proposed.
	FeatureLevel uint32     `json:"feature_level"`
	Time         time.Time  `json:"time"` // replicated
	ClockStep    *ClockStep `json:"last_clock_step,omitempty"`
	// Diverged reports that the state differs from the majority's: the node serves nobody.
	Diverged bool `json:"diverged"`
	// DiskFull reports that the node takes no appends for want of space.
	DiskFull bool     `json:"disk_full"`
	Warnings []string `json:"warnings,omitempty"` // for people
}

// Digest is that of a node's state at a Raft index.
type Digest struct {
	Index uint64 `json:"index"`
	Hex   string `json:"hex"`
}

// Member is one node as another sees it and as the log records it.
type Member struct {
	ID              string `json:"id"`
	Raft            string `json:"raft"`
	HTTP            string `json:"http"`
	Voter           bool   `json:"voter"`
	Healthy         bool   `json:"healthy"`
	Unreachable     string `json:"unreachable,omitempty"` // why it is not healthy: "http" or, on the leader, "raft"
	LastContactMs   int64  `json:"last_contact_ms"`       // over HTTP; -1: never
	TrailingEntries uint64 `json:"trailing_entries"`      // that this node has and the member lacks
	StalledMs       int64  `json:"stalled_ms,omitempty"`  // on the leader: how long it has lacked entries and stored none
	// What is wrong with the node that answers in the member's place: it has another cluster token than the node that
	// reports it, another data folder, or it is of another cluster.
	OtherToken   bool  `json:"other_token,omitempty"`
	OtherFolder  bool  `json:"other_folder,omitempty"`
	OtherCluster bool  `json:"other_cluster,omitempty"`
	Disk         *Disk `json:"disk,omitempty"` // as it reported last; nil if it never answered
	// Incarnation identifies the member's data folder. It, Version and FeatureLevel are as the log records them.
	Incarnation  string `json:"incarnation,omitempty"`
	Version      string `json:"version,omitempty"`
	FeatureLevel uint32 `json:"feature_level,omitempty"`
}

// Disk is the room on the volume of a member's data folder.
type Disk struct {
	FreeBytes    uint64 `json:"free_bytes"`
	MinFreeBytes uint64 `json:"min_free_bytes"` // below it the member takes no appends; 0: it always takes them
	Full         bool   `json:"full"`
}

// Quorum counts voters; Margin is Healthy minus Needed.
type Quorum struct {
	Voters int `json:"voters"`
	// Needed is a majority of Voters, Healthy how many of them answer.
	Needed  int `json:"needed"`
	Healthy int `json:"healthy"`
	Margin  int `json:"margin"`
}

// Outage is an ongoing loss of quorum as one voter sees it.
type Outage struct {
	Since   time.Time    `json:"since"` // the last moment with a majority, or a leader
	Cause   string       `json:"cause"`
	Term    uint64       `json:"term"`
	Leader  string       `json:"last_leader"`
	Refused uint64       `json:"refused"` // writes refused here since then
	Peers   []OutagePeer `json:"peers"`
}

// OutagePeer is another voter during an outage.
type OutagePeer struct {
	ID            string `json:"id"`
	Reachable     bool   `json:"reachable"`
	LastContactMs int64  `json:"last_contact_ms"` // -1: never
}

// Health is what the log records of the voters.
type Health struct {
	Voters []VoterHealth `json:"voters"`
	// AtRisk reports that the loss of one more voter would lose the quorum.
	AtRisk  bool         `json:"quorum_at_risk"`
	Outages []PastOutage `json:"outages"` // the newest last
	// CatchupAtRisk are members that are about to lag by more than the raft log keeps.
	CatchupAtRisk []string `json:"catchup_at_risk"`
	// OutagesEver counts all outages, also those that Outages does not list any more.
	OutagesEver uint64 `json:"outages_total"`
}

// VoterHealth is one voter as the log records it.
type VoterHealth struct {
	ID     string    `json:"id"`
	Online bool      `json:"online"`
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitzero"`
}

// PastOutage is an outage that the log records.
type PastOutage struct {
	// Incident numbers the outage, from 1. SeenBy are the voters that reported it.
	Incident uint64    `json:"incident"`
	Began    time.Time `json:"began_at"`
	Ended    time.Time `json:"ended_at"`
	Seconds  float64   `json:"seconds"`
	SeenBy   []string  `json:"seen_by"`
}

// Autopilot is the leader's verdict on the servers.
type Autopilot struct {
	Healthy          bool           `json:"healthy"`           // all servers are
	FailureTolerance int            `json:"failure_tolerance"` // healthy voters that may fail
	Limiting         []string       `json:"limiting"`          // voters that lower it: "id: why"
	Servers          []ServerHealth `json:"servers"`           // sorted by id
}

// ServerHealth is the leader's verdict on one server.
type ServerHealth struct {
	ID              string    `json:"id"`
	Voter           bool      `json:"voter"`
	Healthy         bool      `json:"healthy"`
	Since           time.Time `json:"since"` // of Healthy, in this leadership
	TrailingEntries uint64    `json:"trailing_entries"`
	// TrailingSeconds is how long ago the first entry that the server has not applied was committed; a lower
	// bound where that was before this leadership.
	TrailingSeconds float64 `json:"trailing_seconds"`
	LastContactMs   int64   `json:"last_contact_ms"`            // -1: never
	DesiredSuffrage string  `json:"desired_suffrage,omitempty"` // DesiredVote or DesiredNoVote; "" if none is recorded
	Why             string  `json:"why,omitempty"`              // it is unhealthy, or does not have what it wishes
}

// ClockStep is the last step of replicated time.
type ClockStep struct {
	Index  uint64    `json:"index"`
	From   time.Time `json:"from"`
	To     time.Time `json:"to"`
	Agreed []string  `json:"agreed"` // voters whose clocks stepped
}

// Queue counts the requests that a node has accepted and not answered.
type Queue struct {
	Requests int `json:"requests"`
	Bytes    int `json:"bytes"`
	// Beyond either of these bounds the node refuses requests.
	MaxRequests int    `json:"max_requests"`
	MaxBytes    int    `json:"max_bytes"`
	Refused     uint64 `json:"refused"` // by this process, for want of room
}

// Pressure reports that the leader's queue is full.
type Pressure struct {
	Active bool      `json:"active"`
	Since  time.Time `json:"since,omitzero"`
	Leader string    `json:"leader_id,omitempty"` // whose queue it was
}

// DedupStatus is the deduplication window.
type DedupStatus struct {
	// Window is how long a key suppresses the same event, as a duration; Keys and Bytes are what it holds now.
	Window     string `json:"window"`
	Keys       int    `json:"keys"`
	Bytes      int    `json:"bytes"` // of memory
	Suppressed uint64 `json:"suppressed"`
}

// LogStats are figures about the log.
type LogStats struct {
	Accepted   uint64 `json:"accepted"`   // events appended for clients
	Suppressed uint64 `json:"suppressed"` // events answered with an earlier offset
	Refused    uint64 `json:"refused"`    // requests refused
	Replayed   uint64 `json:"replayed"`   // requests answered from a producer's results
	Emitted    uint64 `json:"emitted"`    // events of the cluster's own
	// First and Last are the offsets of the first event that is kept and of the last one.
	First      uint64 `json:"first_offset"`
	Last       uint64 `json:"last_offset"`
	Bytes      uint64 `json:"log_bytes"`     // of the blocks retained
	Receipts   uint64 `json:"receipt_bytes"` // of what is known of suppressed events
	DedupKeys  int    `json:"dedup_keys"`
	DedupBytes int    `json:"dedup_bytes"` // of memory
	// Producers have results that are kept, so a retry gets the same answer.
	Producers int    `json:"producers"`
	Results   uint64 `json:"result_bytes"` // of their results, but for the small ones
	Cursors   int    `json:"cursors"`
}

// Refusal is a node that the raft handshake refused.
type Refusal struct {
	Peer   string    `json:"peer"` // node id as the peer gave it; "" if it gave none
	Addr   string    `json:"addr"`
	ByPeer bool      `json:"by_peer"` // the peer refused this node, not the reverse
	Reason string    `json:"reason"`  // stable: other_incarnation, bad_proof, …
	Detail string    `json:"detail"`
	Count  uint64    `json:"count"` // of all reasons
	Last   time.Time `json:"last"`
}

// Membership is who belongs to the cluster: GET /v1/members.
type Membership struct {
	LeaderHTTP string   `json:"leader_http"`
	LeaderID   string   `json:"leader_id"`
	Members    []Member `json:"members"`
	Quorum     Quorum   `json:"quorum"`
}

// MemberChange answers a change of members.
type MemberChange struct {
	ID      string   `json:"id"`
	Members []Member `json:"members"`
	Quorum  Quorum   `json:"quorum"`
	Warning string   `json:"warning,omitempty"` // what should be looked at
}

// StepDownResult is a leadership that was passed on: POST /v1/cluster/step-down.
type StepDownResult struct {
	// From is the node that led. Who leads now may not be known yet.
	From       string `json:"from"`
	LeaderHTTP string `json:"leader_http"`
	LeaderID   string `json:"leader_id"`
	Term       uint64 `json:"term"`
}

// NewMember is a node to admit. Where only HTTP is set, the node itself is asked for the rest.
type NewMember struct {
	ID   string `json:"id,omitempty"`
	Raft string `json:"raft,omitempty"`
	// HTTP is where the node answers, as host:port.
	HTTP         string `json:"http,omitempty"`
	Incarnation  string `json:"incarnation,omitempty"`
	FeatureLevel uint32 `json:"feature_level,omitempty"`
	Version      string `json:"version,omitempty"`
	Voter        *bool  `json:"voter,omitempty"` // nil is true
	// Force admits the node although it would be one voter too many.
	Force bool `json:"force,omitempty"`
}

// Setting is one replicated setting.
type Setting struct {
	Key string `json:"key"`
	// Value is the one in force, Default the one that an empty value restores.
	Value   string `json:"value"`
	Default string `json:"default"`
	Doc     string `json:"doc"`
}

// Compaction says what to trim: at most one of Before, OlderThan and Keep; with none the retention settings
// apply.
type Compaction struct {
	// Before is the offset of the first event to keep, Keep the number of newest events to keep.
	Before    *uint64 `json:"before,omitempty"`
	OlderThan string  `json:"older_than,omitempty"` // see ParseAge
	Keep      *uint64 `json:"keep,omitempty"`
	DryRun    bool    `json:"dry_run"`
	Force     bool    `json:"force"` // past cursors that still hold events
}

// TrimResult is what a compaction did, or would do.
type TrimResult struct {
	First   uint64   `json:"first"`             // the first offset kept
	Removed uint64   `json:"removed"`           // events
	HeldBy  string   `json:"held_by,omitempty"` // the cursor that kept more from being removed
	Passed  []string `json:"passed,omitempty"`  // cursors that lost events and get a gap, 256 of them at most
	DryRun  bool     `json:"dry_run"`
}
