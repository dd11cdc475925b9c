package raftnode

import (
	"context"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/blackbox"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/roster"
)

// Peers reaches other nodes outside of raft. A url is one of Config.Join or
// what URL makes of a member's HTTP address. Every call is bounded by its
// context, may be made from many goroutines at once, and returns what the
// other side's method of the same purpose returned.
type Peers interface {
	// Identify asks a node what it is: the answer is that of its Node.Report. Its error wraps ErrOtherToken if the
	// node has another cluster token, or if only one of the two has any.
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

// What nodes ask each other and answer; see health.
type (
	Question   = health.Question
	Report     = health.Report
	Standing   = health.Standing
	DiskStatus = health.DiskStatus
	Quorum     = health.Quorum
	Outage     = health.Outage
	BlackBox   = health.BlackBox
)

// JournalType is the event type under which a journal's record is shown.
func JournalType(k blackbox.Kind) event.Type { return health.JournalType(k) }

// Roles of a node.
const (
	RoleLeader    = roster.RoleLeader
	RoleFollower  = roster.RoleFollower
	RoleCandidate = roster.RoleCandidate
	RoleNonVoter  = roster.RoleNonVoter
	RoleSealed    = api.RoleSealed // of no node: a replay of the past is in its place
)

// URL returns the URL that Peers take for an address in the form of Config.HTTPAdvertise, which may be a URL already.
func URL(httpAddr string) string { return roster.URL(httpAddr) }
