// Package view folds the event log into keyed rows: what was last, how many, how fast, per key.
//
// A Fold is a pure function of the events that it was given, in the order of their offsets: it reads no clock, no
// randomness, no map order and no setting, so that every node has the same rows at the same offset. Time is the
// AppendedAt of events, which is replicated. It keeps nothing between two events but what it writes to its Rows.
//
//	declaration, err := view.Parse(text)
//	v, err := view.Compile(declaration)
//	firings, err := v.Apply(rows, &ev)
//	shown, err := v.Show(rows, key)
package view

import (
	"encoding/json"

	"github.com/ringrift/ringlog/event"
)

// Fold is a view as its host drives it. It is safe for concurrent use; rows are changed by one Apply at a time.
type Fold interface {
	// Filter is what the view reads. The host gives Apply the events that it matches, and no others.
	Filter() event.Filter

	// Emits returns the types that the rules of the view publish, sorted. Filter matches none of them, and the host
	// refuses views that read each other's.
	Emits() []event.Type

	// Apply folds one event into the rows and returns what the rules of the view publish for it, in order. An event
	// that a declaration cannot evaluate, such as one without the field that is the key, is skipped and counted in
	// the rows: an error is a failure of the rows alone. An event that a row has already changes nothing.
	Apply(rows Rows, e *event.Event) ([]Firing, error)

	// RowOf returns the name of the row that Apply reads first of all for an event, as far as that is known without it:
	// a host may read the rows of many events ahead. "" is none.
	RowOf(e *event.Event) string

	// Show returns the row of a key as JSON for people and programs, false if there is none. Equal rows give equal
	// bytes.
	Show(rows Rows, key string) (json.RawMessage, bool, error)

	// Keys returns up to limit keys after the key after, in the order of their bytes.
	Keys(rows Rows, after string, limit int) ([]string, error)

	// KeyOf returns the key whose row is stored under row, false if that is not the row of a key.
	KeyOf(row string) (key string, ok bool)

	// Skipped returns how many events were skipped, and the last of them.
	Skipped(rows Rows) (Skipped, error)
}

// Skipped says which events a view could not fold.
type Skipped struct {
	Events uint64 `json:"events"`                // how many
	Last   uint64 `json:"last_offset,omitempty"` // the offset of the last of them
	Place  string `json:"place,omitempty"`       // what the last one had no value for: where or key; or max_keys
	// BeyondKeys is how many of them had keys for which there was no row left.
	BeyondKeys uint64 `json:"beyond_keys,omitempty"`
}

// Rows are the stored rows of one view. What Get and Each return is valid until the next call of Set or Delete. Set
// does not keep value.
type Rows interface {
	Get(key string) (value []byte, found bool, err error)
	Set(key string, value []byte) error
	Delete(key string) error

	// Each calls yield with the rows whose key begins with prefix and is greater than after, in the order of their
	// bytes, until yield returns false.
	Each(prefix, after string, yield func(key string, value []byte) bool) error
}

// Firing is an event that a rule publishes because its condition has become true, or has ended.
type Firing struct {
	Rule  string
	Key   string // of the row
	Ended bool   // the condition ended
	Event event.Event
}
