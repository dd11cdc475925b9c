package api

import (
	"encoding/json"
	"time"

	"github.com/ringrift/ringlog/event"
)

// Cursor is a durable cursor, or a group of members that share one, with what it is still to get.
type Cursor struct {
	Name       string       `json:"name"`
	Filter     event.Filter `json:"filter"`
	Policy     CursorPolicy `json:"policy"`
	Committed  uint64       `json:"committed"`       // everything up to it is handled
	Generation uint64       `json:"generation"`      // increases with each open
	Start      uint64       `json:"start,omitempty"` // what it was made to begin after, or a seek to before that
	Created    time.Time    `json:"created"`
	Touched    time.Time    `json:"touched"` // the last open, commit or seek
	// Seeks counts the moves by callers.
	Seeks    uint64 `json:"seeks,omitempty"`
	LastSeek *Seek  `json:"last_seek,omitempty"`
	// Scanned is the offset up to which nothing is open after Committed: the filter passes nothing there but what
	// a group has settled. Found says that the next offset is open.
	Scanned uint64 `json:"scanned,omitempty"`
	Found   bool   `json:"found,omitempty"`
	// Moved is when Committed changed last; a stall is counted from then.
	Moved   time.Time `json:"moved,omitzero"`
	Stalled *Stall    `json:"stalled,omitempty"`
	// Backpressure is set if the setting backpressure.lag has limits for the cursor, and while it is throttled.
	Backpressure *LagPressure `json:"backpressure,omitempty"`
	Gap          *Gap         `json:"gap,omitempty"`          // trimmed before it was committed
	LagEvents    uint64       `json:"lag_events"`             // that match, and that a group has not settled
	LagSeconds   float64      `json:"lag_seconds"`            // how long the oldest of them waits
	LagAtLeast   *uint64      `json:"lag_at_least,omitempty"` // set where LagEvents is an upper bound
	Group        *GroupInfo   `json:"group,omitempty"`        // where members share it

	// Warnings are about the filter, in the answer to the call that gives it.
	Warnings []event.Warning `json:"warnings,omitempty"`
}

// CursorPolicy bounds what a cursor keeps from retention; 0 takes the cluster's setting.
// In JSON hold_for is text, such as "36h0m0s".
type CursorPolicy struct {
	HoldEvents uint64        `json:"hold_events,omitempty"`
	HoldBytes  uint64        `json:"hold_bytes,omitempty"`
	HoldFor    time.Duration `json:"-"`
}

type plainCursorPolicy CursorPolicy

// cursorPolicyText is the JSON of a CursorPolicy.
type cursorPolicyText struct {
	plainCursorPolicy
	Text string `json:"hold_for,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (p CursorPolicy) MarshalJSON() ([]byte, error) {
	return json.Marshal(cursorPolicyText{plainCursorPolicy(p), durationText(p.HoldFor)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *CursorPolicy) UnmarshalJSON(b []byte) (err error) {
	var in cursorPolicyText
	if err = json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = CursorPolicy(in.plainCursorPolicy)
	p.HoldFor, err = durationOf("hold_for", in.Text)
	return err
}

// durationText is the text of a duration in JSON, "" where there is none.
func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// durationOf reads a durationText.
func durationOf(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	return ParseAge(field, text)
}

// GroupPolicy says how a group delivers; 0 takes the cluster's setting.
// In JSON ack_wait is text, such as "45s".
type GroupPolicy struct {
	AckWait    time.Duration `json:"-"`                     // how long an event may be held without reporting progress
	MaxDeliver uint64        `json:"max_deliver,omitempty"` // failed deliveries before an event becomes a dead letter
	MaxPending uint64        `json:"max_pending,omitempty"` // bound of the matching events from the first open one on
}

type plainGroupPolicy GroupPolicy

// groupPolicyText is the JSON of a GroupPolicy.
type groupPolicyText struct {
	plainGroupPolicy
	Text string `json:"ack_wait,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (p GroupPolicy) MarshalJSON() ([]byte, error) {
	return json.Marshal(groupPolicyText{plainGroupPolicy(p), durationText(p.AckWait)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *GroupPolicy) UnmarshalJSON(b []byte) (err error) {
	var in groupPolicyText
	if err = json.Unmarshal(b, &in); err != nil {
		return err
	}
	*p = GroupPolicy(in.plainGroupPolicy)
	p.AckWait, err = durationOf("ack_wait", in.Text)
	return err
}

// Seek is the last move of a cursor by a caller.
type Seek struct {
	// From and To are the commit before the seek and after it.
	From uint64    `json:"from"`
	To   uint64    `json:"to"`
	At   time.Time `json:"at"`
}

// Stall is set while a cursor is reported as stalled.
type Stall struct {
	Since time.Time `json:"since"`
}

// LagPressure says at which lag backpressure of a cursor is activated and released, in events; both are 0 if no limit
// is set any more. Since is set from BACKPRESSURE_ACTIVATED to BACKPRESSURE_RELEASED.
type LagPressure struct {
	ActivateAt uint64    `json:"activate_at"`
	ReleaseAt  uint64    `json:"release_at"`
	Since      time.Time `json:"since,omitzero"`
}

// Throttled reports whether backpressure of the cursor is active.
func (c Cursor) Throttled() bool { return c.Backpressure != nil && !c.Backpressure.Since.IsZero() }

// Gap is a range of offsets that were trimmed before a reader had them.
type Gap struct {
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Reason string `json:"reason"`
	// Types counts the events of the gap that match the reader's filter by type and source; Uncounted is how
	// many events exceeded what is counted.
	Types     map[string]uint64 `json:"types,omitempty"`
	Uncounted uint64            `json:"uncounted,omitempty"`
}

// CursorPage is a page of cursors, by name: GET /v1/cursors.
type CursorPage struct {
	Cursors []Cursor `json:"cursors"`
	Next    string   `json:"next,omitempty"` // ask again with after=next for more
	Total   int      `json:"cursors_total"`
}

// GroupInfo is what a group adds to its cursor. What is in flight is exact on the leader alone; elsewhere it
// is what the log records.
type GroupInfo struct {
	AckWait      string `json:"ack_wait"` // in force, as the two below
	MaxDeliver   uint64 `json:"max_deliver"`
	MaxPending   uint64 `json:"max_pending"`
	Pending      uint64 `json:"pending"`      // delivered, neither acknowledged nor failed
	Redelivering uint64 `json:"redelivering"` // to be delivered again
	Members      int    `json:"members"`
	Coordinator  string `json:"coordinator"` // the node that delivers
}

// GroupMember is a member of a group as the leader knows it.
type GroupMember struct {
	Member string `json:"member"`
	// Session is the member's number since it joined; another one with its name fences it.
	Session  uint64    `json:"session"`
	Since    time.Time `json:"since"`
	LastSeen time.Time `json:"last_seen"`
	// Pending is how many events the member holds, OldestMs how long it has held the oldest, in milliseconds.
	Pending  int   `json:"pending"`
	OldestMs int64 `json:"oldest_pending_ms"`
	// Counts since the member joined; Expired are deliveries whose time to acknowledge ended.
	Delivered uint64 `json:"delivered"`
	Acked     uint64 `json:"acked"`
	Nacked    uint64 `json:"nacked"`
	Expired   uint64 `json:"expired"`
}

// Wait says which of the cursors have committed an offset: GET /v1/wait.
type Wait struct {
	Offset     uint64         `json:"offset"`
	Reached    bool           `json:"reached"` // by all of them
	LastOffset uint64         `json:"last_offset"`
	Cursors    []WaitedCursor `json:"cursors"`
}

// WaitedCursor is one cursor of a Wait.
type WaitedCursor struct {
	Name      string `json:"name"`
	Committed uint64 `json:"committed"`
	Lag       uint64 `json:"lag"` // offsets to go
	Reached   bool   `json:"reached"`
}
