package api

import (
	"encoding/json"
	"time"

	"github.com/ringrift/ringlog/event"
)

// The states of a dead letter.
const (
	LetterDead     = "dead"
	LetterRedriven = "redriven" // its event was appended again and is not committed yet
)

// Letter is a dead letter.
type Letter struct {
	ID uint64 `json:"id"` // from 1, without gaps
	// Cursor is the one whose reader could not handle the event; "" for a letter that was imported.
	Cursor        string     `json:"cursor,omitempty"`
	Offset        uint64     `json:"offset,omitempty"` // where the event was dead-lettered last; 0: nowhere
	Type          event.Type `json:"type"`
	Key           string     `json:"key,omitempty"`
	Source        string     `json:"source,omitempty"`
	CorrelationID string     `json:"correlation_id,omitempty"`
	// Handler is what failed last, Error how.
	Handler     string        `json:"handler,omitempty"`
	Error       string        `json:"error,omitempty"`
	Attempts    uint64        `json:"attempts"` // over all redrives; of a group: deliveries
	FirstFailed time.Time     `json:"first_failed,omitzero"`
	LastFailed  time.Time     `json:"last_failed,omitzero"`
	Dead        time.Time     `json:"dead_lettered_at"`
	Stepped     time.Duration `json:"stepped_ns,omitzero"` // how far clock steps had moved replicated time by then
	Redrives    uint64        `json:"redrives"`
	Lineage     []uint64      `json:"lineage,omitempty"` // offsets of the event and its copies, the newest last
	Origin      string        `json:"origin,omitempty"`  // of one that came from another system
	Bytes       uint64        `json:"bytes"`             // that count for dlq.max_bytes
	State       string        `json:"state"`             // LetterDead or LetterRedriven
	Copy        uint64        `json:"copy,omitempty"`    // of one redriven: where its event is now
}

// LetterPage is a part of the letters, by id.
type LetterPage struct {
	Letters []Letter `json:"letters"`
	Next    uint64   `json:"next,omitempty"` // after, for the next part; 0 if there is none
}

// LetterStats are figures about the dead letters.
type LetterStats struct {
	Count    uint64    `json:"count"`
	Redriven uint64    `json:"redriven"` // of those, on the way to their cursors
	Bytes    uint64    `json:"bytes"`
	MaxBytes uint64    `json:"max_bytes"`
	Oldest   time.Time `json:"oldest,omitzero"` // of those that are dead
	Stale    bool      `json:"stale,omitempty"` // DLQ_STALE_EVENTS has reported the oldest
	Ever     uint64    `json:"ever"`            // that there have been
}

// LetterSummary is the dead letters at a glance: GET /v1/dlq.
type LetterSummary struct {
	LetterStats
	Dead int `json:"dead"`
	// Both count letters in either state; Dead counts those that are not redriven.
	ByCursor  map[string]int `json:"by_cursor"`
	ByType    map[string]int `json:"by_type"`
	OldestAge float64        `json:"oldest_seconds,omitempty"`
}

// LetterErrors is letters with the same error.
type LetterErrors struct {
	Error   string         `json:"error"` // its first line, with # for numbers
	Count   int            `json:"count"`
	Cursors map[string]int `json:"cursors"`
	Types   map[string]int `json:"types"`
	First   time.Time      `json:"first_failed,omitzero"`
	Last    time.Time      `json:"last_failed,omitzero"`
	Letters []uint64       `json:"letters"` // some of them
}

// LetterSelection chooses dead letters: by id, or those that meet all of its conditions.
type LetterSelection struct {
	IDs []uint64 `json:"ids,omitempty"`
	// All chooses every dead letter, and excludes conditions.
	All    bool    `json:"all,omitempty"`
	Type   string  `json:"type,omitempty"` // a name or a pattern
	Cursor *string `json:"cursor,omitempty"`
	// OlderThan is an age, see ParseAge.
	Error     string `json:"error,omitempty"` // part of it
	OlderThan string `json:"older_than,omitempty"`
	After     uint64 `json:"after,omitempty"` // ids above it
	MaxEvents uint64 `json:"max_events,omitempty"`
	DryRun    bool   `json:"dry_run,omitempty"`
}

// LettersResult answers a redrive or a purge.
type LettersResult struct {
	Matched int `json:"matched"` // letters that were chosen, at most max_events
	// Done letters were redriven or purged.
	Done     int      `json:"done"`
	Skipped  int      `json:"skipped"`             // redriven already, or too young
	Missing  []uint64 `json:"missing,omitempty"`   // of those named, that do not exist
	NoCursor []uint64 `json:"no_cursor,omitempty"` // whose cursor does not exist
	Left     int      `json:"left"`                // chosen, and not looked at yet: ask again
	More     bool     `json:"more"`                // there are more than max_events
	Last     uint64   `json:"last"`                // after, to ask again
	DryRun   bool     `json:"dry_run"`
}

// DeadLettered answers a dead letter.
type DeadLettered struct {
	Letter   *Letter `json:"letter"`
	Cursor   Cursor  `json:"cursor"`
	Replayed bool    `json:"replayed,omitempty"` // it existed before
}

// LetterRow is a row of the old queue's table
// dead_letter_queue(id, event_type, event_data, error, created_at, retry_count).
type LetterRow struct {
	ID         json.RawMessage `json:"id"` // a number or a string
	Type       string          `json:"event_type"`
	Data       json.RawMessage `json:"event_data"` // the payload, or its JSON in a string
	Error      string          `json:"error"`
	CreatedAt  json.RawMessage `json:"created_at"` // RFC 3339, or seconds since 1970
	RetryCount uint64          `json:"retry_count"`

	// Of a handler without a cursor, which that table does not have:
	Cursor        string `json:"cursor,omitempty"` // to which the letter is redriven; it need not exist yet
	Handler       string `json:"handler,omitempty"`
	Offset        uint64 `json:"offset,omitempty"` // of the event; without, it is of the type and data above
	Key           string `json:"key,omitempty"`
	EventSource   string `json:"event_source,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
}

// LettersImported answers an import.
type LettersImported struct {
	Imported int          `json:"imported"`
	Known    int          `json:"known"` // rows that were imported before
	Refused  []RefusedRow `json:"refused"`
	First    uint64       `json:"first,omitempty"` // the new letters
	Last     uint64       `json:"last,omitempty"`
	DryRun   bool         `json:"dry_run,omitempty"`
}

// RefusedRow is a row that cannot be an event.
type RefusedRow struct {
	ID    json.RawMessage `json:"id"`
	Error *Error          `json:"error"`
}
