package frame

import (
	"fmt"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// Kind says which command an entry holds.
type Kind byte

// The kinds of commands. A number is on disks and on the wire, so it must keep its meaning even if
// its command is removed. The next one is 71 (27 to 29 are not used); CONTRIBUTING.md lists what a new
// command needs.
const (
	// Events, cursors, settings, and what a leader keeps: time, terms, members. Each is the command of its name.
	KindPublish      Kind = 1
	KindCursorCreate Kind = 2
	KindCursorOpen   Kind = 3
	KindCursorCommit Kind = 4
	KindCursorSeek   Kind = 5
	KindCursorDelete Kind = 6
	KindSettingSet   Kind = 7
	KindTrim         Kind = 8
	KindTick         Kind = 9
	KindTermStart    Kind = 10
	KindIntent       Kind = 11
	KindIntentAbort  Kind = 12
	KindRegister     Kind = 13
	KindMemberPut    Kind = 14
	KindMemberRemove Kind = 15
	KindClockStep    Kind = 16

	// What a leader reports of its voters.
	KindVoterHealth          Kind = 17
	KindOutageViews          Kind = 18
	KindSplitBrain           Kind = 19
	KindCatchUp              Kind = 20
	KindTermStartWithSilence Kind = 21
	KindMemberVote           Kind = 22

	// Dead letters.
	KindDeadLetter   Kind = 23
	KindRedrive      Kind = 24
	KindPurge        Kind = 25
	KindLetterImport Kind = 26

	// Groups, registered clients, dedup policies, flows, and what a leader reports of queues, runs and lag.
	KindGroupCreate    Kind = 30
	KindGroupSettle    Kind = 31
	KindGroupDead      Kind = 32
	KindClientPut      Kind = 33
	KindPressure       Kind = 34
	KindChainOverdue   Kind = 35
	KindCursorChange   Kind = 36
	KindCursorsScanned Kind = 37
	KindDedupPolicySet Kind = 38
	KindFlowPut        Kind = 39
	KindFlowRemove     Kind = 40
	KindClientReport   Kind = 41
	KindLetterKeep     Kind = 42
	KindLagReport      Kind = 43

	// Roles. A command that a role fences is the one of its name with a lease.
	KindRoleAcquire        Kind = 44
	KindRoleRenew          Kind = 45
	KindRoleRelease        Kind = 46
	KindPublishFenced      Kind = 47
	KindCursorCommitFenced Kind = 48

	// Allocations, schedules and views. A KindPublish with more to its name is a Publish for one of them.
	KindResourceSet       Kind = 49
	KindResourceRemove    Kind = 50
	KindAllocationRequest Kind = 51
	KindAllocationRenew   Kind = 52
	KindAllocationRelease Kind = 53
	KindSchedule          Kind = 54
	KindUnschedule        Kind = 55
	KindPublishScheduled  Kind = 56
	KindViewDefine        Kind = 57
	KindViewRemove        Kind = 58
	KindPublishView       Kind = 59
	KindViewSkip          Kind = 60

	// More commands that a role fences, and renewals that make no claim.
	KindGroupSettleFenced Kind = 61
	KindGroupDeadFenced   Kind = 62
	KindDeadLetterFenced  Kind = 63
	KindRoleRenewClaim    Kind = 64

	KindAllocationRenewClaim Kind = 65

	// Tokens.
	KindTokenCreate Kind = 66
	KindTokenRotate Kind = 67
	KindTokenRevoke Kind = 68

	// What operators and admins do, with the command that does it.
	KindAct        Kind = 69
	KindActStoring Kind = 70 // one whose command stores much
)

// The feature levels. A cluster is at the lowest level that any of its members reports, and
// a command may be proposed once the cluster is at the command's level: a member that does
// not know a kind stops at the entry, now and after each restart.
const (
	LevelBase     = 1
	LevelHealth   = 2 // what a leader reports of its voters
	LevelLetters  = 3 // dead letters
	LevelDelivery = 4 // groups, clients, stalls, pressure, overdue runs, and short leaderships that separate outages
	LevelDedup    = 5 // dedup policies of types, and rows that are decided by them
	LevelFlows    = 5 // flows that are registered
	LevelClients  = 6 // clients that are lost and come back, their coordinators and the health of their handlers
	LevelReports  = 6 // events for letters that are stored, and letters of handlers without a cursor
	LevelLag      = 7 // what cursors and groups lag by
	LevelRoles    = 7 // roles, and publishes and commits that one fences

	LevelAllocations = 8 // resources, and allocations of them
	LevelSchedule    = 9 // events that are published at a time

	// LevelFences has acks and dead letters that a role fences, renewals of claims that never claim, and clients that are
	// lost by led time, as roles are.
	LevelFences = 10
	LevelViews  = 10 // views, and what their rules publish
	LevelTokens = 10 // tokens
	LevelActs   = 10 // what operators and admins do, as events
	LevelTraces = 10 // trace contexts of events, in blocks and in copies of events
	LevelFound  = 10 // what a leader found for a cursor counts until that event is trimmed

	// LevelPolicySteps has an entry remove a bounded number of the keys that dedup policies no longer need.
	LevelPolicySteps = 6

	LevelNewest = LevelViews // what this build knows
)

// origin says who asks for a command.
type origin byte

const (
	ofCaller origin = 1 // a caller, at any node: a follower forwards it to the leader
	ofLeader origin = 2 // the leader, about members, terms, health, time or groups: it is proposed there or not at all
)

// writes says how much a command stores.
type writes byte

const (
	little writes = 1 // a record, or it frees space
	much   writes = 2 // what grows with the request: events, copies of events, type definitions
)

// kind is what this build knows of one kind of command. The zero kind is one that it does not know.
type kind struct {
	level  uint32 // the cluster's level from which on it may be proposed
	origin origin
	writes writes
	decode func(d *decoder) Command // reads what the command's appendTo wrote
}

// kinds is the table of all commands. decode reads the fields in the order in which appendTo writes them: Go evaluates
// the calls of a composite literal in that order.
var kinds = [256]kind{
	KindPublish: {LevelBase, ofCaller, much, func(d *decoder) Command { return d.publish() }},
	KindCursorCreate: {LevelBase, ofCaller, little, func(d *decoder) Command {
		return CursorCreate{Name: d.string(), Start: d.position(), Filter: d.filter(), Policy: d.policy()}
	}},
	KindCursorOpen: {LevelBase, ofCaller, little, func(d *decoder) Command {
		return CursorOpen{Name: d.string(), Opener: d.string()}
	}},
	KindCursorCommit: {LevelBase, ofCaller, little, func(d *decoder) Command { return d.cursorCommit() }},
	KindCursorSeek: {LevelBase, ofCaller, little, func(d *decoder) Command {
		return CursorSeek{Name: d.string(), To: d.position(), Seeker: d.string()}
	}},
	KindCursorDelete: {LevelBase, ofCaller, little, func(d *decoder) Command { return CursorDelete{Name: d.string()} }},
	KindSettingSet: {LevelBase, ofCaller, little, func(d *decoder) Command {
		return SettingSet{Key: d.string(), Value: d.string()}
	}},
	KindTrim: {LevelBase, ofCaller, little, func(d *decoder) Command {
		return Trim{Before: d.Uvarint(), Force: d.Bool(), Retention: d.Bool()}
	}},
	KindTick:      {LevelBase, ofLeader, little, func(*decoder) Command { return Tick{} }},
	KindTermStart: {LevelBase, ofLeader, little, func(d *decoder) Command { return d.termStart() }},
	KindIntent: {LevelBase, ofLeader, little, func(d *decoder) Command {
		return Intent{Target: d.string(), Cause: d.string()}
	}},
	KindIntentAbort:  {LevelBase, ofLeader, little, func(*decoder) Command { return IntentAbort{} }},
	KindRegister:     {LevelBase, ofCaller, much, func(d *decoder) Command { return Register{Definitions: d.copied()} }},
	KindMemberPut:    {LevelBase, ofLeader, little, func(d *decoder) Command { return MemberPut{Member: d.member()} }},
	KindMemberRemove: {LevelBase, ofLeader, little, func(d *decoder) Command { return MemberRemove{ID: d.string()} }},
	KindClockStep: {LevelBase, ofLeader, little, func(d *decoder) Command {
		return ClockStep{To: time.Unix(0, d.Varint()), Agreed: d.strings()}
	}},

	KindVoterHealth: {LevelHealth, ofLeader, little, func(d *decoder) Command {
		return VoterHealth{Voter: d.string(), Online: d.Bool(), LastContactMs: d.Varint(), Reason: d.string()}
	}},
	KindOutageViews: {LevelHealth, ofLeader, little, func(d *decoder) Command { return d.outageViews() }},
	KindSplitBrain: {LevelHealth, ofLeader, little, func(d *decoder) Command {
		return SplitBrain{Term: d.Uvarint(), Leaders: d.strings()}
	}},
	KindCatchUp: {LevelHealth, ofLeader, little, func(d *decoder) Command { return d.catchUp() }},
	KindTermStartWithSilence: {LevelHealth, ofLeader, little, func(d *decoder) Command {
		return d.termStartWithSilence()
	}},
	KindMemberVote: {LevelHealth, ofLeader, little, func(d *decoder) Command {
		return MemberVote{ID: d.string(), Wanted: d.Bool(), Reason: d.string()}
	}},

	KindDeadLetter: {LevelLetters, ofCaller, much, func(d *decoder) Command { return d.deadLetter() }},
	KindRedrive: {LevelLetters, ofCaller, much, func(d *decoder) Command {
		return Redrive{Letters: d.letters(), To: d.string()}
	}},
	KindPurge: {LevelLetters, ofCaller, little, func(d *decoder) Command {
		return Purge{Letters: d.letters(), OlderThan: time.Duration(d.Varint())}
	}},
	KindLetterImport: {LevelLetters, ofCaller, much, func(d *decoder) Command { return d.letterImport() }},

	KindCursorChange: {LevelDelivery, ofCaller, little, func(d *decoder) Command {
		return CursorChange{Name: d.string(), Filter: d.filter(), Policy: d.policy()}
	}},
	KindGroupCreate: {LevelDelivery, ofCaller, little, func(d *decoder) Command { return d.groupCreate() }},
	KindGroupSettle: {LevelDelivery, ofLeader, little, func(d *decoder) Command { return d.groupSettle() }},
	KindGroupDead: {LevelDelivery, ofLeader, much, func(d *decoder) Command {
		return GroupDead{Term: d.Uvarint(), Letter: d.deadLetter()}
	}},
	KindClientPut:    {LevelDelivery, ofCaller, little, func(d *decoder) Command { return d.clientPut() }},
	KindClientReport: {LevelClients, ofCaller, little, func(d *decoder) Command { return d.clientReport() }},
	KindPressure: {LevelDelivery, ofLeader, little, func(d *decoder) Command {
		return Pressure{Active: d.Bool(), Requests: d.Uvarint(), Bytes: d.Uvarint(), Refused: d.Uvarint()}
	}},
	KindCursorsScanned: {LevelDelivery, ofLeader, little, func(d *decoder) Command { return d.cursorsScanned() }},
	KindLagReport: {LevelLag, ofLeader, little, func(d *decoder) Command {
		return LagReport{Cursor: d.string(), Created: d.Varint(), Lag: d.Uvarint()}
	}},
	KindChainOverdue:   {LevelDelivery, ofLeader, little, func(d *decoder) Command { return d.chainOverdue() }},
	KindDedupPolicySet: {LevelDedup, ofCaller, little, func(d *decoder) Command { return d.dedupPolicySet() }},
	KindFlowPut:        {LevelFlows, ofCaller, much, func(d *decoder) Command { return FlowPut{Flows: d.copied()} }},
	KindLetterKeep:     {LevelReports, ofCaller, much, func(d *decoder) Command { return d.letterKeep() }},
	KindFlowRemove:     {LevelFlows, ofCaller, little, func(d *decoder) Command { return FlowRemove{Name: d.string()} }},

	KindRoleAcquire: {LevelRoles, ofCaller, little, func(d *decoder) Command { return d.roleAcquire() }},
	KindRoleRenew:   {LevelRoles, ofCaller, little, func(d *decoder) Command { return d.roleRenew() }},
	KindRoleRelease: {LevelRoles, ofCaller, little, func(d *decoder) Command {
		return RoleRelease{Role: d.string(), Session: d.string(), Fence: d.Uvarint()}
	}},
	KindPublishFenced: {LevelRoles, ofCaller, much, func(d *decoder) Command {
		c := d.publish()
		c.Lease = d.namedLease()
		return c
	}},
	KindCursorCommitFenced: {LevelRoles, ofCaller, little, func(d *decoder) Command {
		c := d.cursorCommit()
		c.Lease = d.namedLease()
		return c
	}},
	KindGroupSettleFenced: {LevelFences, ofLeader, little, func(d *decoder) Command {
		c := d.groupSettle()
		c.Lease = d.namedLease()
		return c
	}},
	KindGroupDeadFenced: {LevelFences, ofLeader, much, func(d *decoder) Command {
		return GroupDead{Term: d.Uvarint(), Letter: d.deadLetterFenced()}
	}},
	KindDeadLetterFenced: {LevelFences, ofCaller, much, func(d *decoder) Command { return d.deadLetterFenced() }},
	KindRoleRenewClaim: {LevelFences, ofCaller, little, func(d *decoder) Command {
		return RoleRenewClaim{Role: d.string(), Session: d.string()}
	}},

	KindResourceSet: {LevelAllocations, ofCaller, little, func(d *decoder) Command { return d.resourceSet() }},
	KindResourceRemove: {LevelAllocations, ofCaller, little, func(d *decoder) Command {
		return ResourceRemove{Name: d.string()}
	}},
	KindAllocationRequest: {LevelAllocations, ofCaller, little, func(d *decoder) Command {
		return d.allocationRequest()
	}},
	KindAllocationRenew: {LevelAllocations, ofCaller, little, func(d *decoder) Command { return d.allocationRenew() }},
	KindAllocationRelease: {LevelAllocations, ofCaller, little, func(d *decoder) Command {
		return AllocationRelease{ID: d.string()}
	}},
	KindAllocationRenewClaim: {LevelFences, ofCaller, little, func(d *decoder) Command {
		return AllocationRenewClaim{ID: d.string(), Amounts: d.amounts()}
	}},

	KindSchedule: {LevelSchedule, ofCaller, much, func(d *decoder) Command {
		return Schedule{ID: d.string(), At: time.Unix(0, d.Varint()).UTC(), NoDedup: d.Bool(), Event: d.copied()}
	}},
	KindUnschedule: {LevelSchedule, ofCaller, little, func(d *decoder) Command { return Unschedule{ID: d.string()} }},
	KindPublishScheduled: {LevelSchedule, ofLeader, much, func(d *decoder) Command {
		c := d.publish()
		c.Scheduled = d.string()
		if c.Scheduled == "" {
			d.Fail("an event that was scheduled without an id")
		}
		return c
	}},

	KindViewDefine: {LevelViews, ofCaller, much, func(d *decoder) Command {
		return ViewDefine{Name: d.string(), Declaration: d.string(), Revision: d.Uvarint()}
	}},
	KindViewRemove: {LevelViews, ofCaller, little, func(d *decoder) Command { return ViewRemove{Name: d.string()} }},
	KindPublishView: {LevelViews, ofLeader, much, func(d *decoder) Command {
		c := d.publish()
		c.Emission = d.viewEmission()
		return c
	}},
	KindViewSkip: {LevelViews, ofLeader, little, func(d *decoder) Command { return ViewSkip{d.viewEmission()} }},

	KindTokenCreate: {LevelTokens, ofCaller, little, func(d *decoder) Command { return d.tokenCreate() }},
	KindTokenRotate: {LevelTokens, ofCaller, little, func(d *decoder) Command { return d.tokenRotate() }},
	KindTokenRevoke: {LevelTokens, ofCaller, little, func(d *decoder) Command { return TokenRevoke{Name: d.string()} }},

	KindAct:        {LevelActs, ofCaller, little, func(d *decoder) Command { return d.act(little) }},
	KindActStoring: {LevelActs, ofCaller, much, func(d *decoder) Command { return d.act(much) }},
}

// Level returns the feature level from which on commands of a kind may be proposed, and 0
// for a kind that this build does not know.
func (k Kind) Level() uint32 { return kinds[k].level }

// Publishes reports whether commands of a kind append events of their callers.
func (k Kind) Publishes() bool {
	return k == KindPublish || k == KindPublishFenced || k == KindPublishScheduled || k == KindPublishView
}

// Forwardable reports whether a node may forward commands of a kind to the leader for its callers.
func (k Kind) Forwardable() bool { return kinds[k].origin == ofCaller }

// FitsFullDisk reports whether commands of a kind are decided while the disk is nearly full. Those that store events,
// or copies or definitions of events, have to wait for room.
func (k Kind) FitsFullDisk() bool { return kinds[k].writes == little }

// decodeCommand reads one command and reports whether all its strings are UTF-8. An error is ErrUnsupported for a kind
// that this build does not know, and ErrCorrupt for a body that is not one of its kind.
func decodeCommand(k Kind, body []byte) (c Command, utf8 bool, err error) {
	known := kinds[k]
	if known.decode == nil {
		return nil, false, fmt.Errorf("command kind %d: %w", k, ErrUnsupported)
	}
	d := &decoder{Reader: fields.Reader{Rest: body}, texts: true, kinds: &kinds}
	c = known.decode(d)
	return c, !d.notUTF8, d.end("command")
}
