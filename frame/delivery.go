package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/event"
)

// The kinds of groups, of LevelDelivery.
const (
	KindGroupCreate Kind = 30
	KindGroupSettle Kind = 31
	KindGroupDead   Kind = 32
)

// Bounds of what the state keeps of one group, and so of one GroupSettle.
const (
	MaxRanges  = 65536
	MaxRetries = 65536
)

// GroupPolicy says how a group delivers. A zero field takes the replicated default.
type GroupPolicy struct {
	AckWait    time.Duration `json:"ack_wait_ns,omitempty"` // how long a member may hold an event without a word of it
	MaxDeliver uint64        `json:"max_deliver,omitempty"` // deliveries after which an event is dead
	MaxPending uint64        `json:"max_pending,omitempty"` // how far behind the first open event others are handed out
}

// GroupCreate makes a cursor that members of a group share; the same again is
// answered as the first.
type GroupCreate struct {
	Name   string
	Start  Position
	Filter event.Filter
	Policy CursorPolicy
	Group  GroupPolicy
}

// GroupRetry says that a delivery of an event failed: it comes again, not before After.
type GroupRetry struct {
	Offset     uint64    `json:"offset"`
	Deliveries uint64    `json:"deliveries"` // that it has had
	After      time.Time `json:"after,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// GroupSettle is what the leader of Term, which hands a group's events out, has made of
// them since it last said so. Reserved is the last offset that it may have handed out,
// and Open how many events up to there are not settled then; the ranges rise and do not
// overlap, the retries rise by offset.
type GroupSettle struct {
	Name       string
	Generation uint64
	Term       uint64
	Reserved   uint64
	Open       uint64
	Done       []Range // acknowledged, or not matching the filter
	Retries    []GroupRetry
}

// GroupDead puts an event of a group to the dead letters, and is its acknowledgement.
// Letter.Generation is the group's.
type GroupDead struct {
	Term   uint64
	Letter DeadLetter
}

// Kind implements Command.
func (GroupCreate) Kind() Kind { return KindGroupCreate }
func (GroupSettle) Kind() Kind { return KindGroupSettle }
func (GroupDead) Kind() Kind   { return KindGroupDead }

func (p GroupPolicy) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendVarint(b, int64(p.AckWait)), p.MaxDeliver)
	return binary.AppendUvarint(b, p.MaxPending)
}

func (c GroupCreate) appendTo(b []byte) []byte {
	b = CursorCreate{Name: c.Name, Start: c.Start, Filter: c.Filter, Policy: c.Policy}.appendTo(b)
	return c.Group.appendTo(b)
}

func (c GroupSettle) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(appendString(b, c.Name), c.Generation)
	b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, c.Term), c.Reserved), c.Open)
	return AppendRetries(AppendRanges(b, c.Done), c.Retries)
}

// AppendRanges appends ranges, each as its distance to the one before and its length:
// short where they rise and do not overlap, and right for any.
func AppendRanges(b []byte, list []Range) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	behind := uint64(0)
	for _, r := range list {
		b = binary.AppendUvarint(binary.AppendUvarint(b, r.From-behind), r.To-r.From)
		behind = r.To + 1
	}
	return b
}

// AppendRetries appends retries. Of an error that no decoder would take, the start is
// enough.
func AppendRetries(b []byte, list []GroupRetry) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, r := range list {
		b = binary.AppendUvarint(binary.AppendUvarint(b, r.Offset), r.Deliveries)
		b = appendString(appendTime(b, r.After), r.Error[:min(len(r.Error), maxString)])
	}
	return b
}

func (c GroupDead) appendTo(b []byte) []byte {
	return c.Letter.appendTo(binary.AppendUvarint(b, c.Term))
}

// ranges takes any: the state machine refuses what makes no sense, where an entry that
// does not decode would stop every node.
func (d *decoder) ranges() (list []Range) {
	behind := uint64(0)
	for range d.count(2) {
		from := behind + d.uvarint()
		to := from + d.uvarint()
		list, behind = append(list, Range{from, to}), to+1
	}
	return list
}

func (d *decoder) retries() (list []GroupRetry) {
	for range d.count(4) {
		list = append(list, GroupRetry{Offset: d.uvarint(), Deliveries: d.uvarint(), After: d.time(), Error: d.string()})
	}
	return list
}

// DecodeRanges reads what AppendRanges wrote.
func DecodeRanges(b []byte) ([]Range, error) {
	d := &decoder{b: b}
	list := d.ranges()
	return list, d.end("ranges of a group")
}

// DecodeRetries reads what AppendRetries wrote.
func DecodeRetries(b []byte) ([]GroupRetry, error) {
	d := &decoder{b: b}
	list := d.retries()
	return list, d.end("retries of a group")
}

func (d *decoder) groupCreate() GroupCreate {
	return GroupCreate{Name: d.string(), Start: d.position(), Filter: d.filter(), Policy: d.policy(),
		Group: GroupPolicy{AckWait: time.Duration(d.varint()), MaxDeliver: d.uvarint(), MaxPending: d.uvarint()}}
}

func (d *decoder) groupSettle() GroupSettle {
	return GroupSettle{Name: d.string(), Generation: d.uvarint(), Term: d.uvarint(), Reserved: d.uvarint(), Open: d.uvarint(),
		Done: d.ranges(), Retries: d.retries()}
}
