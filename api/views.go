package api

import (
	"encoding/json"
	"time"
)

// View is a view as one node has it.
type View struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Generation  uint64    `json:"generation"` // rises with each definition of any view
	Defined     time.Time `json:"defined_at"`
	Since       uint64    `json:"since"` // the first offset that it folds
	At          uint64    `json:"at"`    // the offset up to which this node has folded the log
	Of          uint64    `json:"of"`    // the log's last offset on this node
	Lag         uint64    `json:"lag"`   // offsets from At to Of
	Rows        int64     `json:"rows"`
	// Skipped is how many events had no key or condition that could be evaluated, or a key beyond max_keys; BeyondKeys is
	// how many had the latter.
	Skipped    uint64 `json:"skipped,omitempty"`
	BeyondKeys uint64 `json:"beyond_keys,omitempty"`
	// Emitted is the offset up to which what its rules publish was published; Waiting is how many events are not yet.
	Emitted uint64 `json:"emitted"`
	Waiting int    `json:"waiting,omitempty"`
	// Incomplete says that this node has not folded events that were gone before; From is the first that it has folded.
	Incomplete string `json:"incomplete,omitempty"`
	From       uint64 `json:"from,omitempty"`
	Failed     string `json:"failed,omitempty"` // why this node does not fold it any further
	// Declaration is there where one view is asked for.
	Declaration json.RawMessage `json:"declaration,omitempty"`
	// Digests are those of all rows, there where one view is asked for: as of At, and of the latest thousands of offsets.
	// Nodes that have folded the same have equal ones.
	Digests  []ViewDigest `json:"digests,omitempty"`
	Existing bool         `json:"existing,omitempty"` // answers a definition that was there before
}

// ViewDigest is the digest of all rows of a view as of an offset.
type ViewDigest struct {
	Offset uint64 `json:"offset"`
	Hex    string `json:"hex"`
}

// Views are all views, by name.
type Views struct {
	Views []View `json:"views"`
}

// ViewRows are rows of a view at an offset. A row has its key, the offset and time of its last event, its fields, and
// the state of its rules.
type ViewRows struct {
	View       string            `json:"view"`
	Generation uint64            `json:"generation"`
	At         uint64            `json:"at"` // all rows are those of a fold up to this offset
	Rows       []json.RawMessage `json:"rows"`
	Next       string            `json:"next,omitempty"`       // parameter "after" for the next page; "" on the last
	Incomplete string            `json:"incomplete,omitempty"` // as View has it
}

// ViewChange is a line of a watch: a row as it is at an offset.
type ViewChange struct {
	At  uint64          `json:"at"`
	Row json.RawMessage `json:"row"`
}
