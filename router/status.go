package router

import (
	"sync"
	"time"

	"github.com/ringrift/ringlog/client"
	"github.com/ringrift/ringlog/router/breaker"
)

// State is how a subscription is attached to the log.
type State string

// The states. The last three are final.
const (
	Connecting State = "connecting" // the log does not answer yet, or no more
	Attached   State = "attached"
	Fenced     State = "fenced"  // another process has opened its cursor
	Refused    State = "refused" // the log has refused it, or its cursor was removed
	Closed     State = "closed"
)

// final reports whether a state never changes.
func (s State) final() bool { return s == Fenced || s == Refused || s == Closed }

// Counts are what became of events since the subscription began.
type Counts struct {
	Received       uint64 `json:"received"`        // handed to it, and not filtered
	Filtered       uint64 `json:"filtered"`        // passed by its condition, or another stage of its flow
	NotEvaluated   uint64 `json:"not_evaluated"`   // of those, for which the condition could not be evaluated
	Handled        uint64 `json:"handled"`         // by an attempt that succeeded
	Failed         uint64 `json:"failed"`          // abandoned
	FailedAttempts uint64 `json:"failed_attempts"` // each of them, also if a later one succeeded
	TimedOut       uint64 `json:"timed_out"`       // attempts
	Refused        uint64 `json:"refused"`         // never begun: its breaker was open, or there was no room
	DeadLettered   uint64 `json:"dead_lettered"`
	Lost           uint64 `json:"lost"` // abandoned, when the log did not keep the event any more
	Left           uint64 `json:"left"` // read, but left for the next to read the log
	Gaps           uint64 `json:"gaps"`
}

// SubscriberStatus is what a subscription listens to, and its state and counts.
type SubscriberStatus struct {
	Name       string   `json:"name"`
	Flow       string   `json:"flow,omitempty"`
	Group      string   `json:"group,omitempty"`
	Types      []string `json:"types,omitempty"` // of a flow, its stages
	Categories []string `json:"categories,omitempty"`
	Sources    []string `json:"sources,omitempty"`
	Keys       []string `json:"keys,omitempty"`
	Where      string   `json:"where,omitempty"`

	Durable     bool          `json:"durable"`
	Direct      bool          `json:"direct"`
	Sync        bool          `json:"sync"`
	Critical    bool          `json:"critical"`
	Timeout     time.Duration `json:"timeout"`
	Retries     int           `json:"retries"`
	Concurrency int           `json:"concurrency"`

	State      State          `json:"state"`
	StateError string         `json:"state_error,omitempty"`
	Breaker    breaker.Status `json:"breaker"`
	Counts
	Running     int         `json:"running"`        // attempts, or waiting between two
	Waiting     int         `json:"waiting"`        // for a place
	Uncommitted int         `json:"uncommitted"`    // read and not yet passed by the cursor
	Held        string      `json:"held,omitempty"` // why the cursor does not move: the last error of committing
	Committed   uint64      `json:"committed,omitempty"`
	LastOffset  uint64      `json:"last_offset,omitempty"` // the highest handled
	LastAt      time.Time   `json:"last_at,omitzero"`
	LastError   string      `json:"last_error,omitempty"`
	LastErrorAt time.Time   `json:"last_error_at,omitzero"`
	LastGap     *client.Gap `json:"last_gap,omitempty"`
}

// record is what a subscriber has done and how it is attached.
type record struct {
	mu       sync.Mutex
	state    State
	stateErr error // what led to it, nil for none
	once     bool  // it was attached
	counts   Counts
	last     lastSeen
}

// lastSeen is what a subscriber saw last.
type lastSeen struct {
	err    string      // of the last failed attempt; "" before one
	errAt  time.Time   // when that attempt ended
	at     time.Time   // an event was settled
	offset uint64      // of it
	gap    *client.Gap // nil before the first
	held   string      // what keeps the cursor where it is
}

// count changes the counts under the lock.
func (r *record) count(do func(*Counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do(&r.counts)
}

// noteHandled counts an event whose handler succeeded. Events of several lanes end out of
// order: the highest offset is kept.
func (r *record) noteHandled(offset uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Handled++
	r.last.at, r.last.offset = time.Now(), max(r.last.offset, offset)
}

// noteFailed counts a failed attempt and keeps its error.
func (r *record) noteFailed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.FailedAttempts++
	r.last.err, r.last.errAt = breaker.Bounded(err.Error()), time.Now()
}

// noteGap counts a gap and keeps it as the last one.
func (r *record) noteGap(gap *client.Gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Gaps++
	r.last.gap = gap
}

// noteHeld notes what keeps the cursor where it is, nil if nothing does.
func (r *record) noteHeld(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last.held = ""
	if err != nil {
		r.last.held = breaker.Bounded(err.Error())
	}
}

// noteState sets the state and why. A final state stays.
func (r *record) noteState(state State, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.state.final() {
		r.state, r.stateErr = state, err
		r.once = r.once || state == Attached
	}
}

// stateNow returns the state, and the error that led to it.
func (r *record) stateNow() (State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.stateErr
}

// wasAttached reports whether the subscription was attached at any time.
func (r *record) wasAttached() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.once
}

// status is what the subscription is, and a consistent view of its counts.
func (s *subscriber) status() SubscriberStatus {
	spec := &s.spec
	st := SubscriberStatus{
		Name: spec.Name, Flow: spec.Flow, Group: spec.Group,
		Types: spec.Types, Categories: spec.Categories, Sources: spec.Sources, Keys: spec.Keys, Where: spec.Where,
		Durable: spec.Durable, Direct: spec.Direct, Sync: spec.Sync, Critical: spec.Critical, Timeout: spec.Timeout,
		Retries: len(spec.Retries), Concurrency: spec.Concurrency,
		Breaker: s.breaker.Status(), Committed: s.committed.Load(),
	}

	// Lanes and tracker have locks of their own, which are not held together with that of the
	// record.
	st.Running, st.Waiting = s.lanes.load()
	if s.tracker != nil {
		st.Uncommitted = s.tracker.outstanding()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st.State, st.Counts = s.state, s.counts
	if s.stateErr != nil {
		st.StateError = s.stateErr.Error()
	}
	st.Held = s.last.held
	st.LastOffset, st.LastAt = s.last.offset, s.last.at
	st.LastError, st.LastErrorAt, st.LastGap = s.last.err, s.last.errAt, s.last.gap
	return st
}
