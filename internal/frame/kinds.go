package frame

import (
	"fmt"
	"time"

	"github.com/ringrift/ringlog/internal/fields"
)

// The feature levels. A cluster is at the lowest level that any of its members reports, and
// a command may be proposed once the cluster is at the command's level: a member that does
// not know a kind stops at the entry, now and after each restart.
const (
	LevelBase     = 1
	LevelHealth   = 2 // what a leader reports of its voters
	LevelLetters  = 3 // dead letters
	LevelDelivery = 4 // groups, registered clients, stalls, pressure, overdue runs, and short leaderships that part outages
)

// kind is what this build knows of one kind of command.
type kind struct {
	level  uint32                   // the cluster's level from which on it may be proposed
	decode func(d *decoder) Command // reads what the command's appendTo wrote
}

// kinds is the table of all commands. It is never changed.
var kinds = [256]kind{
	KindPublish: {LevelBase, func(d *decoder) Command { return d.publish() }},
	KindCursorCreate: {LevelBase, func(d *decoder) Command {
		return CursorCreate{Name: d.string(), Start: d.position(), Filter: d.filter(), Policy: d.policy()}
	}},
	KindCursorOpen: {LevelBase, func(d *decoder) Command { return CursorOpen{Name: d.string(), Opener: d.string()} }},
	KindCursorCommit: {LevelBase, func(d *decoder) Command {
		return CursorCommit{Name: d.string(), Offset: d.Uvarint(), Generation: d.Uvarint()}
	}},
	KindCursorSeek: {LevelBase, func(d *decoder) Command {
		return CursorSeek{Name: d.string(), To: d.position(), Seeker: d.string()}
	}},
	KindCursorDelete: {LevelBase, func(d *decoder) Command { return CursorDelete{Name: d.string()} }},
	KindSettingSet:   {LevelBase, func(d *decoder) Command { return SettingSet{Key: d.string(), Value: d.string()} }},
	KindTrim: {LevelBase, func(d *decoder) Command {
		return Trim{Before: d.Uvarint(), Force: d.Bool(), Retention: d.Bool()}
	}},
	KindTick:         {LevelBase, func(*decoder) Command { return Tick{} }},
	KindHello:        {LevelBase, func(d *decoder) Command { return d.hello() }},
	KindIntent:       {LevelBase, func(d *decoder) Command { return Intent{Target: d.string(), Cause: d.string()} }},
	KindIntentAbort:  {LevelBase, func(*decoder) Command { return IntentAbort{} }},
	KindRegister:     {LevelBase, func(d *decoder) Command { return Register{Definitions: d.copied()} }},
	KindMemberPut:    {LevelBase, func(d *decoder) Command { return MemberPut{Member: d.member()} }},
	KindMemberRemove: {LevelBase, func(d *decoder) Command { return MemberRemove{ID: d.string()} }},
	KindClockStep: {LevelBase, func(d *decoder) Command {
		return ClockStep{To: time.Unix(0, d.Varint()), Agreed: d.strings()}
	}},

	KindVoterHealth: {LevelHealth, func(d *decoder) Command {
		return VoterHealth{Voter: d.string(), Online: d.Bool(), LastContactMs: d.Varint(), Reason: d.string()}
	}},
	KindOutageViews: {LevelHealth, func(d *decoder) Command { return d.outageViews() }},
	KindSplitBrain: {LevelHealth, func(d *decoder) Command {
		return SplitBrain{Term: d.Uvarint(), Leaders: d.strings()}
	}},
	KindCatchUp:   {LevelHealth, func(d *decoder) Command { return d.catchUp() }},
	KindLongHello: {LevelHealth, func(d *decoder) Command { return d.longHello() }},
	KindMemberVote: {LevelHealth, func(d *decoder) Command {
		return MemberVote{ID: d.string(), Wanted: d.Bool(), Reason: d.string()}
	}},

	KindDeadLetter: {LevelLetters, func(d *decoder) Command { return d.deadLetter() }},
	KindRedrive:    {LevelLetters, func(d *decoder) Command { return Redrive{Letters: d.letters(), To: d.string()} }},
	KindPurge: {LevelLetters, func(d *decoder) Command {
		return Purge{Letters: d.letters(), OlderThan: time.Duration(d.Varint())}
	}},
	KindLetterImport: {LevelLetters, func(d *decoder) Command { return d.letterImport() }},

	KindCursorChange: {LevelDelivery, func(d *decoder) Command {
		return CursorChange{Name: d.string(), Filter: d.filter(), Policy: d.policy()}
	}},
	KindGroupCreate: {LevelDelivery, func(d *decoder) Command { return d.groupCreate() }},
	KindGroupSettle: {LevelDelivery, func(d *decoder) Command { return d.groupSettle() }},
	KindGroupDead: {LevelDelivery, func(d *decoder) Command {
		return GroupDead{Term: d.Uvarint(), Letter: d.deadLetter()}
	}},
	KindClientPut: {LevelDelivery, func(d *decoder) Command { return d.clientPut() }},
	KindPressure: {LevelDelivery, func(d *decoder) Command {
		return Pressure{Active: d.Bool(), Requests: d.Uvarint(), Bytes: d.Uvarint(), Refused: d.Uvarint()}
	}},
	KindCursorsScanned: {LevelDelivery, func(d *decoder) Command { return d.cursorsScanned() }},
	KindChainOverdue:   {LevelDelivery, func(d *decoder) Command { return d.chainOverdue() }},
}

// Level returns the feature level from which on commands of a kind may be proposed, and 0
// for a kind that this build does not know.
func (k Kind) Level() uint32 { return kinds[k].level }

// decodeCommand reads one command and reports whether all its strings are UTF-8.
func decodeCommand(k Kind, body []byte) (c Command, utf8 bool, err error) {
	known := kinds[k]
	if known.decode == nil {
		return nil, false, fmt.Errorf("frame: command kind %d: %w", k, ErrUnsupported)
	}
	d := &decoder{Reader: fields.Reader{Rest: body}, texts: true}
	c = known.decode(d)
	return c, !d.notUTF8, d.end("command")
}
