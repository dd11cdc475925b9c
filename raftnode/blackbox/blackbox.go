// Package blackbox is one voter's small journal of what it saw of an outage. It
// needs no leader, so that a time in which nothing could be appended to the log is
// recorded all the same.
//
//	j, err := blackbox.Open(filepath.Join(dir, "blackbox.jsonl"), blackbox.Options{})
//	…
//	r, err := j.Append(blackbox.Record{Kind: blackbox.Lost, Since: since, Term: term})
//	…
//	err = j.Settle(r.Seq) // r is stored in the replicated log
//
// It promises:
//   - A record that Append returned without an error survives a crash of the
//     machine. One that it returned an error for may be found after a crash.
//   - The file is read up to the first line that is not as it was written; damage
//     after a record never hides the record.
//   - A pair of ID and Seq names one acknowledged record for ever, whatever is cut
//     from the end of the file or dropped to make room.
//   - The file never grows past Options.MaxBytes; a rewrite holds a second one of
//     that size for a moment.
//   - Reading what is in memory never waits for the disk.
//
// Nothing here keeps two processes apart: the lock of the data folder does.
package blackbox

import (
	"errors"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Errors of this package.
var (
	ErrNewerFormat = errors.New("the journal is of a newer format")
	ErrDamaged     = errors.New("the first line of the journal cannot be read")
	ErrTooLarge    = errors.New("the record is larger than the journal may be")
	ErrClosed      = errors.New("the journal is closed")
)

// Kind says what a record reports.
type Kind string

// The kinds of records. A journal may hold others, of a newer program.
const (
	Lost         Kind = "lost"          // the majority is out of reach
	View         Kind = "view"          // how the peers look during an outage
	Restored     Kind = "restored"      // the majority is back
	LeaseExpired Kind = "lease_expired" // this leader could no longer prove that it leads
	Stalled      Kind = "stalled"       // this process was paused
	Down         Kind = "down"          // this process did not run
)

// Record is one line of the journal.
type Record struct {
	Seq     uint64    `json:"seq"`               // ascends within a journal, is never used twice; set by Append
	At      time.Time `json:"at"`                // this machine's wall clock, UTC, when it was written; now if zero
	Kind    Kind      `json:"kind"`              // what it reports
	Since   time.Time `json:"since,omitzero"`    // when what it reports began
	Term    uint64    `json:"term"`              // newest known
	Leader  string    `json:"leader,omitempty"`  // last known
	Cause   string    `json:"cause,omitempty"`   // in words
	Peers   []Peer    `json:"peers,omitempty"`   // the view of each other voter
	Refused uint64    `json:"refused,omitempty"` // writes refused since the outage began
}

// Peer is how another voter looked.
type Peer struct {
	ID            string `json:"id"`
	Reachable     bool   `json:"reachable"`
	LastContactMs int64  `json:"last_contact_ms"` // -1: never
}

// clone returns a copy that shares no memory with r.
func (r Record) clone() Record {
	r.Peers = slices.Clone(r.Peers)
	return r
}

// Options of a journal. The zero value is usable.
type Options struct {
	MaxBytes int    // of the file; 256 KiB if 0, at least 1 KiB
	FS       vfs.FS // the operating system's if nil
}

// Bounds of Options.MaxBytes.
const (
	defaultMaxBytes = 256 << 10
	leastMaxBytes   = 1 << 10
)
