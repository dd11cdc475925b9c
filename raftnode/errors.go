package raftnode

import (
	"errors"

	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/membership"
	"github.com/ringrift/ringlog/raftnode/statestore"
)

// Errors of this package. All but ErrOutcomeUnknown promise that nothing was
// appended for the caller.
var (
	// What became of a proposal; see batcher.
	ErrNoLeader       = batcher.ErrNoLeader
	ErrOutcomeUnknown = batcher.ErrOutcomeUnknown
	ErrOverloaded     = batcher.ErrOverloaded
	ErrFeatureLevel   = batcher.ErrFeatureLevel
	ErrTooLarge       = batcher.ErrTooLarge
	ErrClosed         = batcher.ErrClosed

	// Why this node takes no requests, or not this one.
	ErrNoQuorum = errors.New("no quorum of voters")
	ErrDiskFull = errors.New("disk is nearly full")
	ErrDiverged = health.ErrDiverged
	// ErrSealed is what a replay of the past answers to whatever would change it.
	ErrSealed = errors.New("this is an incident, opened to be looked at: nothing is written to it")
	// Errors of the leader's own operations and of changes of members.
	ErrNotLeader     = membership.ErrNotLeader
	ErrNotForwarded  = errors.New("commands of this kind are not forwarded between nodes")
	ErrNotStoredForm = errors.New("not in stored form: nodes forward only events in stored form")

	// Why a member cannot be added, promoted, demoted or removed.
	ErrUnknownMember    = membership.ErrUnknownMember
	ErrOtherIncarnation = membership.ErrOtherIncarnation
	ErrDuplicateAddress = membership.ErrDuplicateAddress
	ErrLastVoter        = membership.ErrLastVoter
	ErrBreaksQuorum     = membership.ErrBreaksQuorum
	ErrNotVoter         = membership.ErrNotVoter
	ErrTooManyVoters    = membership.ErrTooManyVoters
	ErrNotCaughtUp      = membership.ErrNotCaughtUp
	// Errors of a hand-over.
	ErrNoTarget = errors.New("no voter that could take over")
	ErrTooOld   = membership.ErrTooOld
	// Errors of data folders that do not belong where they are, or cannot be used as they are.
	ErrOtherCluster = statestore.ErrOtherCluster
	ErrRolledBack   = errors.New("the data folder is an older copy of what this node had: " +
		"votes and entries that it acknowledged are missing")
	ErrRecoveredWithout = errors.New("the cluster was recovered without this node: " +
		"empty its data folder, then add it again")
	ErrForeignFolder = membership.ErrForeignFolder
	ErrNoSurvivor    = errors.New("the node that is recovered must be one of the voters")
	ErrNotEmpty      = errors.New("target folder is not empty")
	ErrRemovedNode   = errors.New("this node was removed from the cluster: " +
		"stop it, or admit it again with ringlog cluster add URL")
	ErrOtherToken = health.ErrOtherToken
	// ErrTransferStuck ends the node; see termlog.go.
	ErrTransferStuck = errors.New("a leadership transfer neither ended nor failed")
)
