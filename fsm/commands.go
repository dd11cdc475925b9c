package fsm

import (
	"fmt"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/frame"
)

// decision decides a command of one kind. An error means that the node must stop.
type decision func(*applier, frame.Command) (Result, error)

// decisions has a row for each command: what decides it. The other half of the row is in
// internal/frame/kinds.go: from which feature level on the command may be proposed, and how it
// is decoded. Nothing writes to the table.
var decisions = [256]decision{
	frame.KindPublish: fallible((*applier).publish),

	// Cursors.
	frame.KindCursorCreate:   infallible((*applier).createCursor),
	frame.KindCursorOpen:     infallible((*applier).openCursor),
	frame.KindCursorCommit:   infallible((*applier).commitCursor),
	frame.KindCursorSeek:     infallible((*applier).seekCursor),
	frame.KindCursorDelete:   infallible((*applier).deleteCursor),
	frame.KindCursorChange:   infallible((*applier).changeCursor),
	frame.KindCursorsScanned: fallible((*applier).cursorsScanned),

	// Groups, which share a cursor.
	frame.KindGroupCreate: infallible((*applier).createGroup),
	frame.KindGroupSettle: infallible((*applier).settleGroup),
	frame.KindGroupDead:   fallible((*applier).deadInGroup),

	// Dead letters.
	frame.KindDeadLetter:   fallible((*applier).deadLetter),
	frame.KindRedrive:      infallible((*applier).requestRedrive),
	frame.KindPurge:        fallible((*applier).purgeLetters),
	frame.KindLetterImport: fallible((*applier).importLetters),
	frame.KindLetterKeep:   fallible((*applier).keepLetter),

	// Settings, types, their flows and dedup policies, retention and time.
	frame.KindSettingSet:     infallible((*applier).setSetting),
	frame.KindRegister:       infallible((*applier).register),
	frame.KindFlowPut:        infallible((*applier).putFlows),
	frame.KindFlowRemove:     infallible((*applier).removeFlow),
	frame.KindDedupPolicySet: infallible((*applier).setDedupPolicy),
	frame.KindTrim:           infallible((*applier).requestTrim),
	frame.KindClockStep:      infallible((*applier).stepClock),
	frame.KindTick:           infallible(func(*applier, frame.Tick) Result { return Result{} }),

	// Leaders and members. Both term starts are decided alike; the second kind has the silence as well.
	frame.KindTermStart:            infallible((*applier).termStart),
	frame.KindTermStartWithSilence: infallible((*applier).termStart),
	frame.KindIntent:               infallible((*applier).announceIntent),
	frame.KindIntentAbort:          infallible((*applier).withdrawIntent),
	frame.KindMemberPut:            infallible((*applier).putMember),
	frame.KindMemberRemove:         infallible((*applier).removeMember),
	frame.KindMemberVote:           infallible((*applier).memberVote),

	// What a leader reports of the voters.
	frame.KindVoterHealth: infallible((*applier).voterHealth),
	frame.KindOutageViews: infallible((*applier).outageViews),
	frame.KindSplitBrain:  infallible((*applier).splitBrain),
	frame.KindCatchUp:     infallible((*applier).catchUp),

	// Clients, with and without a coordinator, and what the leader reports of its queue and of runs.
	frame.KindClientPut:    infallible((*applier).putClient),
	frame.KindClientReport: infallible((*applier).putClient),
	frame.KindPressure:     infallible((*applier).reportPressure),
	frame.KindLagReport:    infallible((*applier).reportLag),
	frame.KindChainOverdue: infallible((*applier).chainOverdue),

	// Roles, and what is refused once the lease of one is over.
	frame.KindRoleAcquire:        infallible((*applier).acquireRole),
	frame.KindRoleRenew:          infallible((*applier).renewRoles),
	frame.KindRoleRelease:        infallible((*applier).releaseRole),
	frame.KindPublishFenced:      fallible((*applier).publish),
	frame.KindCursorCommitFenced: infallible((*applier).commitCursor),
	frame.KindGroupSettleFenced:  infallible((*applier).settleGroup),
	frame.KindGroupDeadFenced:    fallible((*applier).deadInGroup),
	frame.KindDeadLetterFenced:   fallible((*applier).deadLetter),
	frame.KindRoleRenewClaim:     infallible((*applier).renewRoleClaim),

	// Events that are published at a time.
	frame.KindSchedule:         infallible((*applier).scheduleEvent),
	frame.KindUnschedule:       infallible((*applier).unschedule),
	frame.KindPublishScheduled: fallible((*applier).publish),

	// Views, and what their rules publish.
	frame.KindViewDefine:  infallible((*applier).defineView),
	frame.KindViewRemove:  infallible((*applier).removeView),
	frame.KindPublishView: fallible((*applier).publish),
	frame.KindViewSkip:    infallible((*applier).skipFirings),

	// Tokens.
	frame.KindTokenCreate: infallible((*applier).createToken),
	frame.KindTokenRotate: infallible((*applier).rotateToken),
	frame.KindTokenRevoke: infallible((*applier).revokeToken),

	// Acts that no entry does. The command of another act is decided by its own row.
	frame.KindAct:        infallible((*applier).recordAct),
	frame.KindActStoring: infallible((*applier).recordAct),

	// Resources, and allocations of them.
	frame.KindResourceSet:          infallible((*applier).setResource),
	frame.KindResourceRemove:       infallible((*applier).removeResource),
	frame.KindAllocationRequest:    infallible((*applier).requestAllocation),
	frame.KindAllocationRenewClaim: infallible((*applier).renewAllocationClaim),
	frame.KindAllocationRenew:      infallible((*applier).renewAllocations),
	frame.KindAllocationRelease:    infallible((*applier).releaseAllocation),
}

// fallible makes a decision of a function that takes the command's own type.
func fallible[C frame.Command](decide func(*applier, C) (Result, error)) decision {
	return func(a *applier, c frame.Command) (Result, error) { return decide(a, c.(C)) }
}

// infallible does the same for a function that cannot fail.
func infallible[C frame.Command](decide func(*applier, C) Result) decision {
	return func(a *applier, c frame.Command) (Result, error) { return decide(a, c.(C)), nil }
}

// decide decides a command. One of a kind that this build does not know stops the node: it would decide
// differently from the others.
func (a *applier) decide(c frame.Command) (Result, error) {
	decide := decisions[c.Kind()]
	if decide == nil {
		return Result{}, fmt.Errorf("apply %d: command of kind %d: %w", a.index, c.Kind(), frame.ErrUnsupported)
	}
	return decide(a, c)
}

// announceIntent records that the leader hands over, so that the next term reports a step-down with its
// cause and not a lost leader.
func (a *memberApplier) announceIntent(c frame.Intent) Result {
	a.s.meta.Leadership.Announce(&election.Intent{Target: c.Target, Cause: c.Cause})
	return Result{}
}

// withdrawIntent records that the leader stays.
func (a *memberApplier) withdrawIntent(frame.IntentAbort) Result {
	a.s.meta.Leadership.Announce(nil)
	return Result{}
}
