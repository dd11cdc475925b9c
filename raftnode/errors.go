package raftnode

import (
	"errors"

	"github.com/ringrift/ringlog/raftnode/batcher"
	"github.com/ringrift/ringlog/raftnode/health"
	"github.com/ringrift/ringlog/raftnode/statestore"
)

// Errors of this package. All but ErrOutcomeUnknown promise that nothing was
// appended for the caller.
var (
	ErrNoLeader       = batcher.ErrNoLeader
	ErrOutcomeUnknown = batcher.ErrOutcomeUnknown
	ErrOverloaded     = batcher.ErrOverloaded
	ErrFeatureLevel   = batcher.ErrFeatureLevel
	ErrTooLarge       = batcher.ErrTooLarge
	ErrClosed         = batcher.ErrClosed

	ErrNoQuorum      = errors.New("no quorum of voters")
	ErrDiskFull      = errors.New("disk is nearly full")
	ErrDiverged      = health.ErrDiverged
	ErrNotLeader     = errors.New("this node is not the leader")
	ErrNotForwarded  = errors.New("such a command is never passed on from one node to another")
	ErrNotStoredForm = errors.New("not in the form in which it is stored, which nodes pass on alone")

	ErrUnknownMember    = errors.New("no such member")
	ErrOtherIncarnation = errors.New("that node id is known with another data folder: remove it first, then add it again")
	ErrDuplicateAddress = errors.New("another member has that address")
	ErrLastVoter        = errors.New("it is the last voter")
	ErrBreaksQuorum     = errors.New("without it too few voters answer to decide anything")
	ErrNotVoter         = errors.New("it has no vote")
	ErrTooManyVoters    = errors.New("more than five voters slow every write and add little: use non-voters, or force it")
	ErrNotCaughtUp      = errors.New("the node has not caught up")
	ErrNoTarget         = errors.New("no voter that could take over")
	ErrTooOld           = errors.New("the node runs too old a program")
	ErrOtherCluster     = statestore.ErrOtherCluster
	ErrRolledBack       = errors.New("the data folder is an older copy of what this node had: votes and entries that it acknowledged are missing")
	ErrRecoveredWithout = errors.New("the cluster was recovered without this node: empty its data folder, then add it again")
	ErrForeignFolder    = errors.New("the data folder is of another cluster")
	ErrNoSurvivor       = errors.New("the node that is recovered must be one of the voters")
	ErrNotEmpty         = errors.New("target folder is not empty")
	ErrRemovedNode      = errors.New("this node was removed from the cluster: stop it, or let it in again with ringlog cluster add")
	ErrTransferStuck    = errors.New("a leadership transfer neither ended nor failed")
)
