package fsm

import (
	"encoding/json"
	"fmt"
	"time"
)

// Outcome is what one entry led to.
type Outcome struct {
	Index    uint64
	Time     time.Time // replicated time of the entry
	Results  []Result  // one for each of the entry's commands, in order
	Skipped  bool      // the entry was already applied
	Diverged bool      // the entry carries a digest that differs from this node's
}

// Result answers one command. What only some commands have is zero for the others.
type Result struct {
	// Refusal is nil when the command was accepted.
	Refusal    *Refusal    `json:"refusal,omitempty"`
	Index      uint64      `json:"index,omitempty"`
	Time       time.Time   `json:"time"`                 // replicated time of the decision
	First      uint64      `json:"first,omitempty"`      // publish: the first new event; 0 when all were duplicates
	Duplicates []Duplicate `json:"duplicates,omitempty"` // publish: the events that were suppressed
	Replayed   bool        `json:"replayed,omitempty"`   // publish, seek: a retry, answered as the first time
	Cursor     *Cursor     `json:"cursor,omitempty"`     // the cursor after its command
	Trim       *TrimResult `json:"trim,omitempty"`
	Setting    *Setting    `json:"setting,omitempty"`

	Letter  *LetterView    `json:"letter,omitempty"` // of a dead letter; Replayed where it was there
	Letters *LettersResult `json:"letters,omitempty"`

	Client *Client `json:"client,omitempty"` // as it is registered now, or was until it was removed

	Role       *RoleAnswer `json:"role,omitempty"`        // the role after its command
	LostLeases []int       `json:"lost_leases,omitempty"` // renewal: the leases that are over, from 0

	Allocation *AllocationAnswer `json:"allocation,omitempty"` // after its command
	Scheduled  *Scheduled        `json:"scheduled,omitempty"`  // an event that is to be published at a time, or was

	View *ViewDefinition `json:"view,omitempty"` // after its command, or as it was until it was removed

	Token *Token `json:"token,omitempty"` // after its command, or as it was until it was revoked
}

// Duplicate is an event that was suppressed, and answered with an earlier offset.
type Duplicate struct {
	Row    int    `json:"row"`    // the event's number in its request, from 0
	Offset uint64 `json:"offset"` // of the event that is the same
}

// Placement is where one event of a publish is in the log.
type Placement struct {
	Offset    uint64 // of the event, or of the earlier one that is the same
	Duplicate bool   // it was suppressed
}

// Offsets returns where each of the n events of an accepted publish is.
func (r *Result) Offsets(n int) []Placement {
	// First the duplicates, whose offsets are listed.
	list := make([]Placement, n)
	for _, d := range r.Duplicates {
		if d.Row < n {
			list[d.Row] = Placement{Offset: d.Offset, Duplicate: true}
		}
	}

	// The others follow each other from First on.
	next := r.First
	for i := range list {
		if !list[i].Duplicate {
			list[i].Offset = next
			next++
		}
	}
	return list
}

// Encode returns the result as a follower gets it from the leader.
func (r Result) Encode() []byte {
	// No field can fail.
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("encode result: %v", err))
	}
	return b
}

// DecodeResult reads what Encode wrote.
func DecodeResult(b []byte) (Result, error) {
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return Result{}, fmt.Errorf("decode result: %w", err)
	}
	return r, nil
}

// Code names the reason of a refusal. It is stable: programs distinguish refusals by it.
type Code string

// The reasons for which the state machine refuses a command.
const (
	Conflict        Code = "conflict"         // a dedup id or a sequence was used with other content
	PastTail        Code = "past_tail"        // an offset that is not there yet
	Fenced          Code = "fenced"           // a generation that a newer open has ended, or a lease that is over
	NotFound        Code = "not_found"        // no such cursor, setting or member
	Exists          Code = "exists"           // a cursor of that name with other settings
	OutOfSequence   Code = "out_of_sequence"  // a producer left a gap, or came back too late
	UnknownProducer Code = "unknown_producer" // a producer whose results are no longer kept
	Overloaded      Code = "overloaded"       // a replicated limit is reached; later may work
	Invalid         Code = "invalid"          // a value that no state could accept
)

// Refusal is a command refused: nothing of it has happened.
type Refusal struct {
	Code     Code   `json:"code"`
	Reason   string `json:"reason,omitempty"` // of a code that has several; stable as well
	Message  string `json:"message"`
	Field    string `json:"field,omitempty"`
	Remedy   string `json:"remedy,omitempty"`
	Offset   uint64 `json:"offset,omitempty"`   // conflict: the first event's; past_tail: the tail
	Row      int    `json:"row,omitempty"`      // publish: the event that was refused
	Expected uint64 `json:"expected,omitempty"` // out_of_sequence: the next sequence; fenced: the generation
}

// Error implements error.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// refuse returns the answer of a command of which nothing has happened. field names what of the
// command is wrong, and remedy what the caller can do.
func refuse(code Code, field, message, remedy string) Result {
	return Result{Refusal: &Refusal{Code: code, Field: field, Message: message, Remedy: remedy}}
}
