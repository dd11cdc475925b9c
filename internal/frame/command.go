package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// Command is one caller's request, decided as a whole by the state machine.
type Command interface {
	// Kind is the number under which the command is stored. Few commands have a second kind, with fields that
	// earlier builds do not know.
	Kind() Kind
	// appendTo appends the body of the command, which the decoder of its row in kinds reads.
	appendTo(b []byte) []byte
}

// Publish appends Count events of the frame's block. Producer and Sequence make a
// retry safe; Producer is empty where the caller gave none. With a Lease it is refused once that is over.
type Publish struct {
	Producer string
	Sequence uint64
	Count    int
	Lease    RoleLease // Role is empty where the caller named none
	// Scheduled is the id under which the one event was scheduled that this delivers, empty for any other. It is refused
	// before its time, and decided once. It has no producer and no lease.
	Scheduled string
	// Emission names the firings that the events are; its View is empty for any other. They are decided once. It has no
	// producer and no lease.
	Emission ViewEmission
}

// PositionKind says how a Position is meant.
type PositionKind byte

// Positions in the log.
const (
	AtStart  PositionKind = 0 // before the first retained event
	AtEnd    PositionKind = 1 // after the last event
	AtOffset PositionKind = 2 // the next event is Position.Offset
)

// Position is a place in the log, resolved when its command is applied.
type Position struct {
	Kind   PositionKind
	Offset uint64
}

// CursorPolicy bounds how much of the log a cursor may hold back from retention.
// A zero field takes the replicated default.
type CursorPolicy struct {
	HoldEvents uint64        `json:"hold_events,omitempty"`
	HoldBytes  uint64        `json:"hold_bytes,omitempty"`
	HoldFor    time.Duration `json:"hold_for_ns,omitempty"`
}

// CursorCreate makes a durable cursor. It is idempotent.
type CursorCreate struct {
	Name   string
	Start  Position
	Filter event.Filter
	Policy CursorPolicy
}

// CursorOpen starts a new generation of a cursor and fences the one before. A retry with the
// same Opener, if there is one, returns the generation that the Opener has.
type CursorOpen struct{ Name, Opener string }

// CursorCommit moves a cursor to Offset, the last event handled. With a Lease it is refused once that is over.
type CursorCommit struct {
	Name       string
	Offset     uint64
	Generation uint64
	Lease      RoleLease // Role is empty where the caller named none
}

// CursorSeek moves a cursor forwards or backwards. A retry with the same Seeker, if there is
// one, does not move it again.
type CursorSeek struct {
	Name   string
	To     Position
	Seeker string
}

// MaxCallerID bounds an Opener or a Seeker, in bytes.
const MaxCallerID = 64

// CursorDelete removes a cursor.
type CursorDelete struct{ Name string }

// CursorChange changes the filter and policy of a cursor, and does not move it.
type CursorChange struct {
	Name   string
	Filter event.Filter
	Policy CursorPolicy
}

// SettingSet changes one replicated setting; an empty value restores its default.
type SettingSet struct{ Key, Value string }

// Trim removes events below Before, whole blocks only. Without Force it stops at
// the first cursor that still holds events back. Retention applies the settings
// instead and ignores Before.
type Trim struct {
	Before    uint64
	Force     bool
	Retention bool
}

// Tick advances replicated time on an idle log, so that what is due happens.
type Tick struct{}

// TermStart is the term start: a new leader's first command. ClusterID and Members
// count only in a log that has none yet. With a Silence it is of LevelHealth.
type TermStart struct {
	ClusterID string
	Members   []Member
	Seen      []election.TermSeen // leaderships that the sender saw, which may have committed nothing
	Cause     string
	Silence   time.Duration // since the sender last heard from the leader before it; 0: not known
}

// Intent announces that the leader is about to hand over its leadership.
type Intent struct{ Target, Cause string }

// IntentAbort withdraws an Intent.
type IntentAbort struct{}

// Register adds event types at run time; Definitions is a JSON array in the
// catalogue's form.
type Register struct{ Definitions []byte }

// FlowPut adds flows, or replaces those of the same name; Flows is a JSON array of them.
type FlowPut struct{ Flows []byte }

// FlowRemove removes a flow that was added.
type FlowRemove struct{ Name string }

// Member is what the cluster knows of a node beside Raft's own configuration.
type Member struct {
	ID           string `json:"id"`
	RaftAddr     string `json:"raft"`
	HTTPAddr     string `json:"http"`
	Incarnation  string `json:"incarnation"`
	FeatureLevel uint32 `json:"feature_level"`
	Version      string `json:"version"`
}

// MemberPut records a node before it is added to the Raft configuration.
type MemberPut struct{ Member Member }

// MemberRemove forgets a node after it left the Raft configuration.
type MemberRemove struct{ ID string }

// ClockStep moves replicated time forward to a time that the clocks of the named
// voters agreed on.
type ClockStep struct {
	To     time.Time
	Agreed []string
}

// Kind implements Command.
func (c Publish) Kind() Kind {
	switch {
	case c.Scheduled != "":
		return KindPublishScheduled
	case c.Emission.View != "":
		return KindPublishView
	case c.Lease.Role != "":
		return KindPublishFenced
	}
	return KindPublish
}

// Kind implements Command.
func (c CursorCommit) Kind() Kind {
	if c.Lease.Role != "" {
		return KindCursorCommitFenced
	}
	return KindCursorCommit
}

func (CursorCreate) Kind() Kind { return KindCursorCreate }
func (CursorOpen) Kind() Kind   { return KindCursorOpen }
func (CursorSeek) Kind() Kind   { return KindCursorSeek }
func (CursorDelete) Kind() Kind { return KindCursorDelete }
func (CursorChange) Kind() Kind { return KindCursorChange }
func (SettingSet) Kind() Kind   { return KindSettingSet }
func (Trim) Kind() Kind         { return KindTrim }
func (Tick) Kind() Kind         { return KindTick }

// Kind implements Command.
func (c TermStart) Kind() Kind {
	if c.Silence != 0 {
		return KindTermStartWithSilence
	}
	return KindTermStart
}

func (Intent) Kind() Kind       { return KindIntent }
func (IntentAbort) Kind() Kind  { return KindIntentAbort }
func (Register) Kind() Kind     { return KindRegister }
func (FlowPut) Kind() Kind      { return KindFlowPut }
func (FlowRemove) Kind() Kind   { return KindFlowRemove }
func (MemberPut) Kind() Kind    { return KindMemberPut }
func (MemberRemove) Kind() Kind { return KindMemberRemove }
func (ClockStep) Kind() Kind    { return KindClockStep }

// The bodies: fields in the order of their structs; numbers as uvarints,
// durations and times as varint nanoseconds, flags as one byte.

// appendTo writes producer, sequence, count, and of a KindPublishFenced the lease, of a KindPublishScheduled the id,
// of a KindPublishView the emission.
func (c Publish) appendTo(b []byte) []byte {
	b = fields.Append(b, c.Producer)
	b = binary.AppendUvarint(b, c.Sequence)
	b = binary.AppendUvarint(b, uint64(c.Count))
	if c.Scheduled != "" {
		return fields.Append(b, c.Scheduled)
	}
	if c.Emission.View != "" {
		return c.Emission.appendTo(b)
	}
	return c.Lease.appendIfNamed(b)
}

// appendTo writes one byte of kind, offset.
func (p Position) appendTo(b []byte) []byte {
	b = append(b, byte(p.Kind))
	return binary.AppendUvarint(b, p.Offset)
}

// appendTo writes events, bytes, duration.
func (p CursorPolicy) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, p.HoldEvents)
	b = binary.AppendUvarint(b, p.HoldBytes)
	return binary.AppendVarint(b, int64(p.HoldFor))
}

// AppendFilter appends a filter's lists: types, categories, sources, keys and
// correlation ids.
func AppendFilter(b []byte, f event.Filter) []byte {
	for _, list := range [][]string{f.Types, f.Categories, f.Sources, f.Keys, f.CorrelationIDs} {
		b = appendStrings(b, list)
	}
	return b
}

// appendTo writes name, start, filter, policy.
func (c CursorCreate) appendTo(b []byte) []byte {
	b = fields.Append(b, c.Name)
	b = c.Start.appendTo(b)
	b = AppendFilter(b, c.Filter)
	return c.Policy.appendTo(b)
}

// appendTo writes name, opener.
func (c CursorOpen) appendTo(b []byte) []byte {
	return fields.Append(fields.Append(b, c.Name), c.Opener)
}

// appendTo writes name, offset, generation, and of a KindCursorCommitFenced the lease.
func (c CursorCommit) appendTo(b []byte) []byte {
	b = fields.Append(b, c.Name)
	b = binary.AppendUvarint(b, c.Offset)
	return c.Lease.appendIfNamed(binary.AppendUvarint(b, c.Generation))
}

// appendTo writes name, filter, policy.
func (c CursorChange) appendTo(b []byte) []byte {
	return c.Policy.appendTo(AppendFilter(fields.Append(b, c.Name), c.Filter))
}

// appendTo writes name, position, seeker.
func (c CursorSeek) appendTo(b []byte) []byte {
	return fields.Append(c.To.appendTo(fields.Append(b, c.Name)), c.Seeker)
}

func (c CursorDelete) appendTo(b []byte) []byte { return fields.Append(b, c.Name) }
func (c SettingSet) appendTo(b []byte) []byte   { return fields.Append(fields.Append(b, c.Key), c.Value) }

// appendTo writes before, force, retention.
func (c Trim) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, c.Before)
	return fields.AppendBool(fields.AppendBool(b, c.Force), c.Retention)
}

func (Tick) appendTo(b []byte) []byte        { return b }
func (IntentAbort) appendTo(b []byte) []byte { return b }
func (c Intent) appendTo(b []byte) []byte    { return fields.Append(fields.Append(b, c.Target), c.Cause) }

// appendTo writes cluster id, members, terms seen (each as term and leader), cause, and of a
// KindTermStartWithSilence the silence.
func (c TermStart) appendTo(b []byte) []byte {
	b = fields.Append(b, c.ClusterID)
	b = binary.AppendUvarint(b, uint64(len(c.Members)))
	for _, m := range c.Members {
		b = m.appendTo(b)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Seen)))
	for _, s := range c.Seen {
		b = fields.Append(binary.AppendUvarint(b, s.Term), s.Leader)
	}
	b = fields.Append(b, c.Cause)
	// In a KindTermStart nothing may follow the cause.
	if c.Silence != 0 {
		b = binary.AppendVarint(b, int64(c.Silence))
	}
	return b
}

func (c Register) appendTo(b []byte) []byte   { return fields.Append(b, c.Definitions) }
func (c FlowPut) appendTo(b []byte) []byte    { return fields.Append(b, c.Flows) }
func (c FlowRemove) appendTo(b []byte) []byte { return fields.Append(b, c.Name) }

// appendTo writes id, Raft address, HTTP address, incarnation, feature level, version.
func (m Member) appendTo(b []byte) []byte {
	for _, s := range []string{m.ID, m.RaftAddr, m.HTTPAddr, m.Incarnation} {
		b = fields.Append(b, s)
	}
	b = binary.AppendUvarint(b, uint64(m.FeatureLevel))
	return fields.Append(b, m.Version)
}

func (c MemberPut) appendTo(b []byte) []byte    { return c.Member.appendTo(b) }
func (c MemberRemove) appendTo(b []byte) []byte { return fields.Append(b, c.ID) }

// appendTo writes the time, and the voters that agreed.
func (c ClockStep) appendTo(b []byte) []byte {
	return appendStrings(binary.AppendVarint(b, c.To.UnixNano()), c.Agreed)
}

// position refuses a kind that this build does not know.
func (d *decoder) position() Position {
	p := Position{Kind: PositionKind(d.Byte()), Offset: d.Uvarint()}
	if p.Kind > AtOffset {
		d.Fail("position kind %d", p.Kind)
	}
	return p
}

func (d *decoder) policy() CursorPolicy {
	return CursorPolicy{HoldEvents: d.Uvarint(), HoldBytes: d.Uvarint(), HoldFor: time.Duration(d.Varint())}
}

// filter reads what AppendFilter wrote.
func (d *decoder) filter() event.Filter {
	return event.Filter{
		Types:          d.strings(),
		Categories:     d.strings(),
		Sources:        d.strings(),
		Keys:           d.strings(),
		CorrelationIDs: d.strings(),
	}
}

func (d *decoder) member() Member {
	m := Member{ID: d.string(), RaftAddr: d.string(), HTTPAddr: d.string(), Incarnation: d.string()}
	m.FeatureLevel = uint32(d.Uvarint())
	m.Version = d.string()
	return m
}

// termStart reads the fields that all term starts have. A member takes a byte for each field at least, and so
// does a term.
func (d *decoder) termStart() TermStart {
	c := TermStart{ClusterID: d.string()}
	for range d.Count(6) {
		c.Members = append(c.Members, d.member())
	}
	for range d.Count(2) {
		c.Seen = append(c.Seen, election.TermSeen{Term: d.Uvarint(), Leader: d.string()})
	}
	c.Cause = d.string()
	return c
}

func (d *decoder) cursorCommit() CursorCommit {
	return CursorCommit{Name: d.string(), Offset: d.Uvarint(), Generation: d.Uvarint()}
}

// publish refuses a count that no block can hold.
func (d *decoder) publish() Publish {
	c := Publish{Producer: d.string(), Sequence: d.Uvarint()}
	n := d.Uvarint()
	if n > MaxRows {
		d.Fail("%d events in one command", n)
	}
	c.Count = int(n)
	return c
}
