package frame

import (
	"encoding/binary"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/internal/fields"
)

// VoterHealth is the leader's report that a voter is reachable, or no longer is.
type VoterHealth struct {
	Voter         string // its id
	Online        bool
	LastContactMs int64  // milliseconds since the last contact of the kind that Reason names; -1: never
	Reason        string // why it is not online: election.ReasonHTTP or ReasonRaft
}

// OutageViews reports what the voters' journals have and the log does not have yet, since
// when the voters that answer have been running, and who led when. Times are by the leader's
// wall clock, as far as it knows how the others' clocks differ. Over and Decided of a span do
// not travel.
type OutageViews struct {
	Views []election.View
	Up    []election.Up
	Led   []election.Span // the newest is the proposer's own, up to now
}

// SplitBrain says that the leader of Term has found others that lead at the same time. Without
// leaders it says that there is none any more, which members of LevelDelivery know.
type SplitBrain struct {
	Term    uint64
	Leaders []string
}

// CatchUp says whether a member is about to lag so far that the leader's raft log no longer
// has what it needs. Rates are in entries a second.
type CatchUp struct {
	Member      string // its id
	AtRisk      bool
	Trailing    uint64        // entries
	Rate        uint64        // of the member
	LogRate     uint64        // at which the log grows
	TruncatedIn time.Duration // until the log no longer has what it needs; 0: already
	Left        uint64        // the same in entries
}

// MemberVote records whether a member is to have a vote, before Raft's configuration is
// changed, and why.
type MemberVote struct {
	ID     string
	Wanted bool
	Reason string // for people
}

// Pressure is the leader's report that its queue is full, or is not full any more.
type Pressure struct {
	Active   bool   // it is full
	Requests uint64 // the most that were in the queue lately
	Bytes    uint64 // likewise
	Refused  uint64 // requests refused since the report before
}

// LagReport is how many events the leader found after what a cursor or group has handled, when that is to change what
// the log has of its backpressure.
type LagReport struct {
	Cursor  string
	Created int64  // Unix nanoseconds; distinguishes a cursor from a removed one of its name
	Lag     uint64 // events that its filter passes
}

// ChainOverdue is the leader's report that a run has not reached its next stage by the
// deadline.
type ChainOverdue struct {
	CorrelationID string // the id of the run
	Flow          string
	From          string // the stage that was reached
	FromOffset    uint64
	Since         time.Time // when it was appended
	Missing       string    // the stage that did not follow
	Deadline      time.Duration
}

// Kind implements Command.
func (VoterHealth) Kind() Kind  { return KindVoterHealth }
func (OutageViews) Kind() Kind  { return KindOutageViews }
func (SplitBrain) Kind() Kind   { return KindSplitBrain }
func (CatchUp) Kind() Kind      { return KindCatchUp }
func (MemberVote) Kind() Kind   { return KindMemberVote }
func (Pressure) Kind() Kind     { return KindPressure }
func (LagReport) Kind() Kind    { return KindLagReport }
func (ChainOverdue) Kind() Kind { return KindChainOverdue }

// appendTo writes voter, online, last contact, reason.
func (c VoterHealth) appendTo(b []byte) []byte {
	b = binary.AppendVarint(fields.AppendBool(fields.Append(b, c.Voter), c.Online), c.LastContactMs)
	return fields.Append(b, c.Reason)
}

// appendView writes voter, journal, sequence, kind, the times of beginning, regaining and end, term,
// leader, cause, refused, unreachable.
func appendView(b []byte, v *election.View) []byte {
	b = fields.Append(fields.Append(b, v.Voter), v.Journal)
	b = fields.Append(binary.AppendUvarint(b, v.Seq), v.Kind)
	for _, t := range []time.Time{v.Began, v.Regained, v.Ended} {
		b = fields.AppendTime(b, t)
	}
	b = binary.AppendUvarint(b, v.Term)
	b = fields.Append(fields.Append(b, v.Leader), v.Cause)
	return appendStrings(binary.AppendUvarint(b, v.Refused), v.Unreachable)
}

// appendTo writes three lists, each after its length: the views; each voter with since and before;
// each leadership with term, leader, from and to.
func (c OutageViews) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(c.Views)))
	for i := range c.Views {
		b = appendView(b, &c.Views[i])
	}

	// When voters began to run, and who led.
	b = binary.AppendUvarint(b, uint64(len(c.Up)))
	for _, u := range c.Up {
		b = fields.AppendTime(fields.AppendTime(fields.Append(b, u.Voter), u.Since), u.Before)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Led)))
	for _, s := range c.Led {
		b = fields.Append(binary.AppendUvarint(b, s.Term), s.Leader)
		b = fields.AppendTime(fields.AppendTime(b, s.From), s.To)
	}
	return b
}

// appendTo writes term, leaders.
func (c SplitBrain) appendTo(b []byte) []byte {
	return appendStrings(binary.AppendUvarint(b, c.Term), c.Leaders)
}

// appendTo writes member, at risk, the numbers in the order below, truncated in.
func (c CatchUp) appendTo(b []byte) []byte {
	b = fields.AppendBool(fields.Append(b, c.Member), c.AtRisk)
	for _, n := range []uint64{c.Trailing, c.Rate, c.LogRate, c.Left} {
		b = binary.AppendUvarint(b, n)
	}
	return binary.AppendVarint(b, int64(c.TruncatedIn))
}

// appendTo writes id, wanted, reason.
func (c MemberVote) appendTo(b []byte) []byte {
	return fields.Append(fields.AppendBool(fields.Append(b, c.ID), c.Wanted), c.Reason)
}

// appendTo writes active, requests, bytes, refused.
func (c Pressure) appendTo(b []byte) []byte {
	b = binary.AppendUvarint(fields.AppendBool(b, c.Active), c.Requests)
	return binary.AppendUvarint(binary.AppendUvarint(b, c.Bytes), c.Refused)
}

// appendTo writes cursor, created, lag.
func (c LagReport) appendTo(b []byte) []byte {
	return binary.AppendUvarint(binary.AppendVarint(fields.Append(b, c.Cursor), c.Created), c.Lag)
}

// appendTo writes run, flow, the stage that was reached with its offset and time, the missing stage,
// deadline.
func (c ChainOverdue) appendTo(b []byte) []byte {
	b = fields.Append(fields.Append(fields.Append(b, c.CorrelationID), c.Flow), c.From)
	b = fields.AppendTime(binary.AppendUvarint(b, c.FromOffset), c.Since)
	return binary.AppendVarint(fields.Append(b, c.Missing), int64(c.Deadline))
}

// termStartWithSilence reads a TermStart with the Silence that follows its other fields.
func (d *decoder) termStartWithSilence() TermStart {
	c := d.termStart()
	c.Silence = time.Duration(d.Varint())
	return c
}

// outageViews reads the three lists. They are not compared with each other here.
func (d *decoder) outageViews() OutageViews {
	var c OutageViews
	// The counts take each item to have a byte for each field at least.
	for range d.Count(12) {
		c.Views = append(c.Views, election.View{
			Voter:       d.string(),
			Journal:     d.string(),
			Seq:         d.Uvarint(),
			Kind:        d.string(),
			Began:       d.Time(),
			Regained:    d.Time(),
			Ended:       d.Time(),
			Term:        d.Uvarint(),
			Leader:      d.string(),
			Cause:       d.string(),
			Refused:     d.Uvarint(),
			Unreachable: d.strings(),
		})
	}
	for range d.Count(3) {
		c.Up = append(c.Up, election.Up{Voter: d.string(), Since: d.Time(), Before: d.Time()})
	}
	for range d.Count(4) {
		c.Led = append(c.Led, election.Span{Term: d.Uvarint(), Leader: d.string(), From: d.Time(), To: d.Time()})
	}
	return c
}

// catchUp reads what appendTo wrote.
func (d *decoder) catchUp() CatchUp {
	return CatchUp{
		Member:      d.string(),
		AtRisk:      d.Bool(),
		Trailing:    d.Uvarint(),
		Rate:        d.Uvarint(),
		LogRate:     d.Uvarint(),
		Left:        d.Uvarint(),
		TruncatedIn: time.Duration(d.Varint()),
	}
}

// chainOverdue reads what appendTo wrote.
func (d *decoder) chainOverdue() ChainOverdue {
	return ChainOverdue{
		CorrelationID: d.string(),
		Flow:          d.string(),
		From:          d.string(),
		FromOffset:    d.Uvarint(),
		Since:         d.Time(),
		Missing:       d.string(),
		Deadline:      time.Duration(d.Varint()),
	}
}
