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
	frame.KindPublish: by((*applier).publish),

	// Cursors.
	frame.KindCursorCreate:   always((*applier).createCursor),
	frame.KindCursorOpen:     always((*applier).openCursor),
	frame.KindCursorCommit:   always((*applier).commitCursor),
	frame.KindCursorSeek:     always((*applier).seekCursor),
	frame.KindCursorDelete:   always((*applier).deleteCursor),
	frame.KindCursorChange:   always((*applier).changeCursor),
	frame.KindCursorsScanned: by((*applier).cursorsScanned),

	// Groups, which share a cursor.
	frame.KindGroupCreate: always((*applier).createGroup),
	frame.KindGroupSettle: always((*applier).settleGroup),
	frame.KindGroupDead:   by((*applier).deadInGroup),

	// Dead letters.
	frame.KindDeadLetter:   by((*applier).deadLetter),
	frame.KindRedrive:      always((*applier).requestRedrive),
	frame.KindPurge:        by((*applier).purgeLetters),
	frame.KindLetterImport: by((*applier).importLetters),

	// Settings, types, retention and time.
	frame.KindSettingSet: always((*applier).setSetting),
	frame.KindRegister:   always((*applier).register),
	frame.KindTrim:       always((*applier).requestTrim),
	frame.KindClockStep:  always((*applier).stepClock),
	frame.KindTick:       always(func(*applier, frame.Tick) Result { return Result{} }),

	// Leaders and members. Both term starts are decided alike: one has a field more.
	frame.KindTermStart:     always((*applier).termStart),
	frame.KindLongTermStart: always((*applier).termStart),
	frame.KindIntent:        always((*applier).announceIntent),
	frame.KindIntentAbort:   always((*applier).withdrawIntent),
	frame.KindMemberPut:     always((*applier).putMember),
	frame.KindMemberRemove:  always((*applier).removeMember),
	frame.KindMemberVote:    always((*applier).memberVote),

	// What a leader reports of the voters.
	frame.KindVoterHealth: always((*applier).voterHealth),
	frame.KindOutageViews: always((*applier).outageViews),
	frame.KindSplitBrain:  always((*applier).splitBrain),
	frame.KindCatchUp:     always((*applier).catchUp),

	// Clients, and what the leader reports of its queue and of runs.
	frame.KindClientPut:    always((*applier).putClient),
	frame.KindPressure:     always((*applier).reportPressure),
	frame.KindChainOverdue: always((*applier).chainOverdue),
}

// by makes a decision of one that takes the command's own type.
func by[C frame.Command](decide func(*applier, C) (Result, error)) decision {
	return func(a *applier, c frame.Command) (Result, error) { return decide(a, c.(C)) }
}

// always is by for decisions that cannot fail.
func always[C frame.Command](decide func(*applier, C) Result) decision {
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
