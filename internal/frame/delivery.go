package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/fields"
)

// Bounds of what the state keeps of one group, and so of one GroupSettle.
const (
	MaxRanges  = 65536
	MaxRetries = 65536
)

// GroupPolicy says how a group delivers. A zero field takes the replicated default.
type GroupPolicy struct {
	// AckWait is how long a member may hold an event without reporting progress.
	AckWait time.Duration `json:"ack_wait_ns,omitempty"`
	// MaxDeliver is how many deliveries an event may have before it is dead.
	MaxDeliver uint64 `json:"max_deliver,omitempty"`
	// MaxPending is how many matching events, from the first open one on, may be delivered.
	MaxPending uint64 `json:"max_pending,omitempty"`
}

// GroupCreate makes a cursor that members of a group share. It is idempotent.
type GroupCreate struct {
	Name   string
	Start  Position
	Filter event.Filter
	Policy CursorPolicy
	Group  GroupPolicy
}

// GroupRetry says that a delivery of an event failed: it is redelivered, not before After.
type GroupRetry struct {
	Offset     uint64    `json:"offset"`
	Deliveries uint64    `json:"deliveries"` // so far
	After      time.Time `json:"after,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// GroupSettle is an ack batch: what became of a group's events since the batch before, as
// reported by the leader of Term, which delivers them. Reserved is the last offset that it
// may have delivered, and Open how many events up to there are not settled after this
// command. The ranges ascend and do not overlap, and the retries ascend by offset. With a Lease
// it has what one member has settled under it, and is refused once that is over.
type GroupSettle struct {
	Name       string
	Generation uint64
	Term       uint64
	Reserved   uint64
	Open       uint64
	Done       []Range // acknowledged, or not matching the filter
	Retries    []GroupRetry
	Lease      RoleLease // Role is empty where the member named none
}

// GroupDead stores an event of a group as a dead letter and settles it.
// Letter.Generation is the group's, and Letter.Lease the member's.
type GroupDead struct {
	Term   uint64
	Letter DeadLetter
}

// Kind implements Command.
func (GroupCreate) Kind() Kind { return KindGroupCreate }

// Kind implements Command.
func (c GroupSettle) Kind() Kind {
	if c.Lease.Role != "" {
		return KindGroupSettleFenced
	}
	return KindGroupSettle
}

// Kind implements Command.
func (c GroupDead) Kind() Kind {
	if c.Letter.Lease.Role != "" {
		return KindGroupDeadFenced
	}
	return KindGroupDead
}

// appendTo writes ack wait, most deliveries, most pending.
func (p GroupPolicy) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendVarint(b, int64(p.AckWait)), p.MaxDeliver)
	return binary.AppendUvarint(b, p.MaxPending)
}

// appendTo writes what a CursorCreate has, then the group's policy.
func (c GroupCreate) appendTo(b []byte) []byte {
	b = CursorCreate{Name: c.Name, Start: c.Start, Filter: c.Filter, Policy: c.Policy}.appendTo(b)
	return c.Group.appendTo(b)
}

// appendTo writes name, generation, term, reserved, open, ranges, retries, and of a KindGroupSettleFenced the lease.
func (c GroupSettle) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(fields.Append(b, c.Name), c.Generation)
	b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, c.Term), c.Reserved), c.Open)
	return c.Lease.appendIfNamed(AppendRetries(AppendRanges(b, c.Done), c.Retries))
}

// AppendRanges appends ranges, each as its distance from the end of the one before and its
// length. Ascending ranges that do not overlap are short that way; any others are valid too.
func AppendRanges(b []byte, list []Range) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	after := uint64(0) // the first offset after the range before
	for _, r := range list {
		b = binary.AppendUvarint(b, r.From-after)
		b = binary.AppendUvarint(b, r.To-r.From)
		after = r.To + 1
	}
	return b
}

// AppendRetries appends retries. Errors longer than maxString are truncated: no decoder
// accepts them.
func AppendRetries(b []byte, list []GroupRetry) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, r := range list {
		b = binary.AppendUvarint(b, r.Offset)
		b = binary.AppendUvarint(b, r.Deliveries)
		b = fields.AppendTime(b, r.After)
		b = fields.Append(b, r.Error[:min(len(r.Error), maxString)])
	}
	return b
}

// appendTo writes the term, then what a DeadLetter has.
func (c GroupDead) appendTo(b []byte) []byte {
	return c.Letter.appendTo(binary.AppendUvarint(b, c.Term))
}

// ranges accepts any ranges: the state machine refuses invalid ones, while an entry that does
// not decode would stop every node.
func (d *decoder) ranges() (list []Range) {
	after := uint64(0)
	for range d.Count(2) {
		from := after + d.Uvarint()
		to := from + d.Uvarint()
		list = append(list, Range{from, to})
		after = to + 1
	}
	return list
}

// retries accepts any retries, as ranges does.
func (d *decoder) retries() (list []GroupRetry) {
	for range d.Count(4) {
		r := GroupRetry{Offset: d.Uvarint(), Deliveries: d.Uvarint(), After: d.Time(), Error: d.string()}
		list = append(list, r)
	}
	return list
}

// DecodeRanges reads what AppendRanges wrote.
func DecodeRanges(b []byte) ([]Range, error) {
	d := &decoder{Reader: fields.Reader{Rest: b}}
	list := d.ranges()
	return list, d.end("ranges of a group")
}

// DecodeRetries reads what AppendRetries wrote.
func DecodeRetries(b []byte) ([]GroupRetry, error) {
	d := &decoder{Reader: fields.Reader{Rest: b}}
	list := d.retries()
	return list, d.end("retries of a group")
}

func (d *decoder) groupCreate() GroupCreate {
	return GroupCreate{
		Name:   d.string(),
		Start:  d.position(),
		Filter: d.filter(),
		Policy: d.policy(),
		Group:  GroupPolicy{AckWait: time.Duration(d.Varint()), MaxDeliver: d.Uvarint(), MaxPending: d.Uvarint()},
	}
}

func (d *decoder) groupSettle() GroupSettle {
	return GroupSettle{
		Name:       d.string(),
		Generation: d.Uvarint(),
		Term:       d.Uvarint(),
		Reserved:   d.Uvarint(),
		Open:       d.Uvarint(),
		Done:       d.ranges(),
		Retries:    d.retries(),
	}
}
