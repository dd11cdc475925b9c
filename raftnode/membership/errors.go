package membership

import "errors"

// Errors of a change of members. All promise that the change was not made, but that Add may
// have admitted a node that did not get its vote then.
var (
	ErrNotLeader        = errors.New("this node is not the leader")
	ErrUnknownMember    = errors.New("no such member")
	ErrOtherIncarnation = errors.New("another data folder is known under that node id: remove that member first, " +
		"or give this node another id")
	ErrDuplicateAddress = errors.New("another member has that address")
	ErrLastVoter        = errors.New("it is the last voter")
	ErrBreaksQuorum     = errors.New("without it too few voters answer to decide anything")
	ErrNotVoter         = errors.New("it has no vote")
	ErrTooManyVoters    = errors.New("more than five voters slow every write and add little: use non-voters, or force it")
	ErrNotCaughtUp      = errors.New("the node has not caught up")
	ErrTooOld           = errors.New("the node runs too old a program")
	ErrForeignFolder    = errors.New("the data folder is of another cluster")
)

// Why autopilot does not make a change that it was about to.
var (
	errVoteNotWanted = errors.New("it is not to have a vote")
	errNotDead       = errors.New("it is not dead, or the cluster cannot do without it")
	errNotByItself   = errors.New("autopilot does not do this by itself")
)
