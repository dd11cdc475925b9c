package api

import (
	"encoding/json"
	"time"

	"github.com/ringrift/ringlog/event"
)

// What may have become of an event for a cursor.
const (
	FatePending   = "pending"       // it will be read; not committed yet
	FateCommitted = "committed"     // its reader said that it was handled
	FateBefore    = "before-cursor" // the cursor began after it
	FateSkipped   = "skipped"       // the last seek passed over it
	FateFiltered  = "filtered"      // the cursor does not get it
	FateDead      = "dead"          // it is a dead letter
	FateRedriven  = "redriven"      // its dead letter was appended again, and that is pending
	FateTrimmed   = "trimmed"       // it is gone, and the cursor had not committed it
)

// DeliveryFate is what became of an event for a cursor, as far as a node can know: a cursor knows what was
// committed, not what was handed to its reader. GET /v1/explain.
type DeliveryFate struct {
	Cursor     string `json:"cursor"`
	Offset     uint64 `json:"offset"`
	Fate       string `json:"fate"`
	Reason     string `json:"reason"` // for people
	Committed  uint64 `json:"committed"`
	Generation uint64 `json:"generation"`           // how often the cursor was opened
	InFront    uint64 `json:"in_front"`             // offsets before it that are not committed either
	Deliveries uint64 `json:"deliveries,omitempty"` // by a group, so far
	Trimmed    bool   `json:"trimmed,omitempty"`    // the event itself is gone

	Event *DeliveredEvent `json:"event,omitempty"` // where it is kept
	// FilteredBy are the parts of the cursor's filter that reject the event.
	FilteredBy []FilterPart `json:"filtered_by,omitempty"`
	// Letter, Gap and Seek are what Reason refers to.
	Letter     *DeadDelivery `json:"letter,omitempty"`
	Gap        *Gap          `json:"gap,omitempty"`
	Seek       *Seek         `json:"seek,omitempty"`
	Duplicates *Duplicates   `json:"duplicates,omitempty"`
}

// DeliveredEvent is the event of a DeliveryFate.
type DeliveredEvent struct {
	Type          event.Type `json:"type"`
	Source        string     `json:"source,omitempty"`
	Key           string     `json:"key,omitempty"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	AppendedAt    time.Time  `json:"appended_at"`
	Target        string     `json:"target,omitempty"` // the one cursor it was appended again for
	Redrive       uint64     `json:"redrive,omitempty"`
}

// FilterPart is a part of a cursor's filter that an event does not pass.
type FilterPart struct {
	Part string `json:"part"` // types, categories, sources, keys, correlation_ids or target
	// Wants is what the filter has for this part, Has what the event has.
	Wants []string `json:"wants"`
	Has   string   `json:"has"`
}

// DeadDelivery is the dead letter of a DeliveryFate.
type DeadDelivery struct {
	ID       uint64    `json:"id"`
	Handler  string    `json:"handler,omitempty"`
	Error    string    `json:"error,omitempty"`
	Attempts uint64    `json:"attempts"`
	Dead     time.Time `json:"dead_lettered_at"`
	Copy     uint64    `json:"copy,omitempty"` // where its event is now
}

// Explanation says what deduplication did with an event: GET /v1/dedup/{subject}.
type Explanation struct {
	Offset uint64     `json:"offset"`
	Type   event.Type `json:"type"`
	// Hash is the content hash in hexadecimal.
	Hash    string `json:"hash"`
	DedupID string `json:"dedup_id,omitempty"`
	Kind    string `json:"kind"` // by what it is compared: content, dedup_id, fields or off
	// DecidedBy says who chose the kind: event (its dedup_id, or dedup false), policy (of its type) or default.
	DecidedBy  string        `json:"decided_by"`
	Policy     DedupPolicy   `json:"policy"` // of its type now
	Source     string        `json:"source"`
	AppendedAt time.Time     `json:"appended_at"`
	Suppressed uint64        `json:"suppressed"` // how often the same event was sent again
	First      time.Time     `json:"first_suppressed,omitzero"`
	Last       time.Time     `json:"last_suppressed,omitzero"`
	Sources    []SourceCount `json:"sources,omitempty"` // of the suppressed, by name
	InWindow   bool          `json:"in_window"`         // the same would be suppressed now
	Until      time.Time     `json:"until"`             // when its key leaves the window
	Others     []uint64      `json:"others,omitempty"`  // other offsets with the same content, at most 100
}

// The origins of a DedupPolicy.
const (
	PolicySet       = "cluster"   // it was set
	PolicyCatalogue = "catalogue" // no other was set, and the catalogue has one
	PolicyDefault   = "default"   // there is none: by content, within the setting dedup.window
)

// DedupPolicy says which events of a type are duplicates, unless an event says so itself: GET /v1/dedup/policies.
type DedupPolicy struct {
	Type   event.Type `json:"type"`
	Mode   string     `json:"mode"` // off, content or fields
	Fields []string   `json:"fields,omitempty"`
	// Window is how long an event suppresses the same again. WindowSet is false if that is the setting dedup.window.
	Window    string `json:"window,omitempty"`
	WindowSet bool   `json:"window_set"`
	Origin    string `json:"origin"` // one of the Policy constants
	// Reason is why the catalogue has it.
	Reason string `json:"reason,omitempty"`
	Keys   int    `json:"keys"` // of the events in its window
	// Warnings are about the policy that was just set.
	Warnings []event.Warning `json:"warnings,omitempty"`
}

// NewDedupPolicy is the body of PUT /v1/dedup/policies/{type}.
type NewDedupPolicy struct {
	Mode   string   `json:"mode"`
	Fields []string `json:"fields,omitempty"`
	// Window is an age, see ParseAge; empty is the setting dedup.window.
	Window string `json:"window,omitempty"`
}

// Duplicates counts suppressed events of the same content, which got this offset as their answer.
type Duplicates struct {
	Suppressed uint64        `json:"suppressed"`
	First      time.Time     `json:"first"`
	Last       time.Time     `json:"last"`
	Sources    []SourceCount `json:"sources"`
}

// SourceCount counts suppressed events of one source.
type SourceCount struct {
	Source string `json:"source"`
	Count  int    `json:"count"`
}

// OverdueRuns is what a node knows of runs that are overdue.
type OverdueRuns struct {
	Count int           `json:"count"` // edges
	List  []OverdueEdge `json:"list"`  // the first of them, the one that has waited longest first
	// Deadlines are those in force, FLOW:CAUSE->EFFECT=DURATION each.
	Deadlines []string `json:"deadlines"`
	Runs      int      `json:"runs"`    // that are followed
	Dropped   uint64   `json:"dropped"` // that were too many
}

// OverdueEdge is a step of a run that is missing past its deadline.
type OverdueEdge struct {
	CorrelationID string `json:"correlation_id"`
	Flow          string `json:"flow"`
	// FromStage is the step that was taken, at FromOffset; Missing is the one that should have followed.
	FromStage       event.Type `json:"from_stage"`
	FromOffset      uint64     `json:"from_offset"`
	Missing         event.Type `json:"missing"`
	WaitingSeconds  float64    `json:"waiting_seconds"`
	DeadlineSeconds float64    `json:"deadline_seconds"`
}

// Chapter is one event of the cluster's own history: GET /v1/cluster/history.
type Chapter struct {
	Offset     uint64          `json:"offset"`
	At         time.Time       `json:"at"`          // when it happened
	AppendedAt time.Time       `json:"appended_at"` // later, where it happened during an outage
	Type       event.Type      `json:"type"`
	Term       uint64          `json:"term"`
	Subject    string          `json:"subject,omitempty"`     // the leader or voter it is about
	GapSeconds float64         `json:"gap_seconds,omitempty"` // without a leader, quorum or failure tolerance before it
	Payload    json.RawMessage `json:"payload"`
}

// Validation is what a publish would say of events: POST /v1/catalogue/validate.
type Validation struct {
	Valid  bool      `json:"valid"`
	Events []Verdict `json:"events"`
}

// Verdict is what a publish would say of one event.
type Verdict struct {
	Type     event.Type      `json:"type"`
	Hash     string          `json:"hash,omitempty"`
	Warnings []event.Warning `json:"warnings,omitempty"`
	Error    *Error          `json:"error,omitempty"`
}
