package stages

import (
	"time"

	"github.com/ringrift/ringlog/event"
)

// Event is one event of a chain. CausationID names its cause by offset, dedup id or content hash; other events may
// name this one by Offset, DedupID or Hash.
type Event struct {
	Offset       uint64     `json:"offset"`
	Type         event.Type `json:"type"`
	At           time.Time  `json:"at"`            // appended
	AfterSeconds float64    `json:"after_seconds"` // since the event before; Follow sets it
	Source       string     `json:"source,omitempty"`
	Key          string     `json:"key,omitempty"`
	CausationID  string     `json:"causation_id,omitempty"`
	DedupID      string     `json:"dedup_id,omitempty"`
	Hash         string     `json:"-"` // in hex, or ""
}

// EventOf returns an event of the log as one of a chain, without its payload.
func EventOf(e *event.Event) Event {
	return Event{
		Offset:      e.Offset,
		Type:        e.Type,
		At:          e.AppendedAt.UTC(),
		Source:      e.Source,
		Key:         e.Key,
		CausationID: e.CausationID,
		DedupID:     e.DedupID,
		Hash:        e.Hash().String(),
	}
}

// Scope is the part of the log that a chain was read from.
type Scope struct {
	From     uint64 `json:"from"`               // the first offset that was read
	To       uint64 `json:"to"`                 // the last one
	KeptFrom uint64 `json:"kept_from"`          // the first offset that the log keeps
	LeftOut  uint64 `json:"left_out,omitempty"` // events of the chain beyond the limit, the oldest ones
}

// Chain is the progress of one run. CorrelationID is the run's id, also where payload fields name it.
// It is GET /v1/chain/{id}, and what the command line prints.
type Chain struct {
	CorrelationID string    `json:"correlation_id"`
	Now           time.Time `json:"now"`     // the time that deadlines are compared with
	Seconds       float64   `json:"seconds"` // from the first event to the last
	Events        []Event   `json:"events"`
	Flows         []Run     `json:"flows"`
	// Covered are flows left out because another flow has all their events of the chain, and more.
	Covered []string `json:"covered,omitempty"`
	// Runs are the first runs that payload fields name and that have stages among the events: the flows that go by these
	// fields are left out.
	Runs    []string `json:"runs,omitempty"`
	Outside []uint64 `json:"outside,omitempty"` // offsets of events that are a stage of none of Flows
	Scope   Scope    `json:"scope"`
	// BeginningTrimmed reports that earlier events may have been trimmed: the log does not begin at 1, and none of the
	// flows begins with its first stage.
	BeginningTrimmed bool `json:"beginning_trimmed"`
	Overdue          int  `json:"overdue"` // edges missing past their deadline
}

// Run is the path of a chain through one flow.
type Run struct {
	Flow     string  `json:"flow"`
	Starts   []Start `json:"starts"` // events that were reached over no edge
	Edges    []Edge  `json:"edges"`  // in the order of the events that they lead to
	Next     []Next  `json:"next"`
	Complete bool    `json:"complete"` // nothing is missing
}

// Start is an event with which a run begins, or begins again.
type Start struct {
	Offset uint64     `json:"offset"`
	Type   event.Type `json:"type"`
	First  bool       `json:"first"` // it is the flow's first stage
}

// The states of an Edge.
const (
	Taken   = "taken"
	Again   = "again"   // taken before from the same cause
	Early   = "early"   // its effect was appended before its cause
	Skipped = "skipped" // a later stage was reached without it
)

// The bases on which an edge counts as taken.
const (
	ByCausation = "causation"
	ByOrder     = "order"
)

// Edge is an edge that was taken or skipped. A skipped edge has the offset of an end only if there is an event at that
// end.
type Edge struct {
	From            event.Type `json:"from"`
	To              event.Type `json:"to"`
	FromOffset      uint64     `json:"from_offset,omitempty"`
	ToOffset        uint64     `json:"to_offset,omitempty"`
	State           string     `json:"state"`
	Basis           string     `json:"basis,omitempty"` // causation or order
	Seconds         float64    `json:"seconds"`         // from cause to effect; negative if early
	Condition       string     `json:"condition,omitempty"`
	ToState         string     `json:"to_state,omitempty"`
	DeadlineSeconds float64    `json:"deadline_seconds,omitempty"`
	Late            bool       `json:"late,omitempty"` // taken after its deadline
}

// Next is an edge out of a last stage that was not taken.
// It is missing, or may still follow where Optional is set.
type Next struct {
	From       event.Type `json:"from"`
	FromOffset uint64     `json:"from_offset"`
	To         event.Type `json:"to"`
	Condition  string     `json:"condition,omitempty"`
	ToState    string     `json:"to_state,omitempty"`
	Optional   bool       `json:"optional,omitempty"` // another edge out of the stage was taken
	// since the event at From was appended
	WaitingSeconds  float64 `json:"waiting_seconds"`
	DeadlineSeconds float64 `json:"deadline_seconds,omitempty"`
	Overdue         bool    `json:"overdue,omitempty"`
}

// NextDeadline returns when the next missing edge becomes overdue; zero is never.
func (c *Chain) NextDeadline() (at time.Time) {
	// The earliest of all flows: a caller that waits asks again then.
	for _, r := range c.Flows {
		// An optional edge may stay away; one that is overdue is so already.
		for _, n := range r.Next {
			if n.Optional || n.Overdue || n.DeadlineSeconds == 0 {
				continue
			}
			// WaitingSeconds counts from the cause to Now, so the rest of the deadline counts from Now.
			due := c.Now.Add(seconds(n.DeadlineSeconds - n.WaitingSeconds))
			if at.IsZero() || due.Before(at) {
				at = due
			}
		}
	}
	return at
}

// seconds converts a JSON number of seconds.
func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
