package health

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/go-hclog"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/raftnode/blackbox"
)

const (
	maxPending    = 256 // records that wait for the disk; if there are more, the oldest are dropped
	reportedViews = 16  // of a journal, in one report
)

// BlackBox is what a voter's journal holds.
type BlackBox struct {
	Journal string            `json:"journal"` // the journal's id: another file has another
	Settled uint64            `json:"settled"` // records up to this one are in the log
	Records []blackbox.Record `json:"records"` // in the order of their numbers, settled ones as well
}

// Journal is a voter's journal of outages with a queue before it, so callers of Write do not wait for the
// disk. mu is never held during a write to the file.
type Journal struct {
	file    *blackbox.Journal // written by keep's goroutine alone, once that runs
	path    string            // its modification time says until when this node ran
	lastRun time.Time         // that time as the journal was opened; zero: it was not there
	logger  hclog.Logger

	wake chan struct{} // holds one: there is something to write

	mu       sync.Mutex
	pending  []blackbox.Record // not yet in the file, the oldest first
	writing  bool              // one that is no longer pending is not yet in the file either
	changed  chan struct{}     // closed and replaced when the file grows
	reported reportedJournal
}

// reportedJournal is the last result of views. It is valid while the journal has not grown and is settled up to the
// same record.
type reportedJournal struct {
	grown   chan struct{} // the journal's changed channel at that time
	settled uint64
	list    []election.View
}

// OpenJournal opens or creates the journal at path, and logs what of it was damaged.
func OpenJournal(path string, fs vfs.FS, logger hclog.Logger) (*Journal, error) {
	j := &Journal{path: path, logger: logger, changed: make(chan struct{}), wake: make(chan struct{}, 1)}
	// Before Open, which may write to the file.
	if info, err := os.Stat(path); err == nil {
		j.lastRun = info.ModTime().UTC()
	}
	file, err := blackbox.Open(path, blackbox.Options{FS: fs})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	j.file = file
	if dropped := file.Dropped(); dropped != "" {
		logger.Warn("the journal of outages was damaged", "path", path, "dropped", dropped)
	}
	return j, nil
}

// Write queues a record for the file. It does not wait for the disk.
func (j *Journal) Write(r blackbox.Record) {
	if r.At.IsZero() {
		r.At = time.Now().UTC()
	}
	j.mu.Lock()
	j.pending = append(j.pending, r)
	// A disk that hangs for long must not fill the memory.
	j.pending = j.pending[max(0, len(j.pending)-maxPending):]
	j.mu.Unlock()
	// One token is enough: flush writes all that is queued.
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// keep writes what is queued until ctx ends. At each tick it notes that this node runs, and settles the records that
// are in the log: taken returns the newest of those, by the journal's id. While it runs, no other goroutine
// writes the file.
func (j *Journal) keep(ctx context.Context, tick <-chan time.Time, taken func(journal string) uint64) {
	for {
		j.flush()
		select {
		case <-j.wake:
		case <-tick:
			j.noteRunning(time.Now())
			// What the log has need not be reported again; it stays in the file, for people.
			if seq := taken(j.file.ID()); seq > j.file.Settled() {
				j.warn("settling the journal of outages", j.file.Settle(seq))
			}
		case <-ctx.Done():
			j.flush()
			return
		}
	}
}

// flush writes what is queued. What the disk does not take waits for the next time. mu is released while the disk
// works, so one that hangs holds up neither Write nor views.
func (j *Journal) flush() {
	for {
		j.mu.Lock()
		if len(j.pending) == 0 {
			j.mu.Unlock()
			return
		}
		// One at a time, so what comes meanwhile keeps its place after it.
		next := j.pending[0]
		j.pending, j.writing = j.pending[1:], true
		j.mu.Unlock()

		_, err := j.file.Append(next)
		j.warn("writing the journal of outages", err)

		j.mu.Lock()
		j.writing = false
		if err != nil {
			j.pending = append([]blackbox.Record{next}, j.pending...)
			j.mu.Unlock()
			return
		}
		// Wakes those who wait for the file to grow, and makes views compute again.
		close(j.changed)
		j.changed = make(chan struct{})
		j.mu.Unlock()
		j.noteRunning(time.Now())
	}
}

// noteRunning notes that this node runs. The note needs no sync: it is lost only with the
// machine, and then an older one counts.
func (j *Journal) noteRunning(now time.Time) {
	if err := os.Chtimes(j.path, now, now); err != nil {
		j.logger.Debug("noting that this node runs", "error", err)
	}
}

// warn logs what keeps the file from being written; nil is nothing.
func (j *Journal) warn(what string, err error) {
	if err != nil {
		j.logger.Warn(what, "error", err)
	}
}

// unwritten reports whether the file lacks records, which views does not list yet.
func (j *Journal) unwritten() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.writing || len(j.pending) > 0
}

// views returns what the file holds that has ended and is not settled, the oldest first and at most reportedViews, by
// this machine's wall clock and as seen by voter. The list must not be changed.
func (j *Journal) views(voter string) []election.View {
	j.mu.Lock()
	defer j.mu.Unlock()
	// Each ping asks for the views: they are computed once for what the file holds.
	if settled := j.file.Settled(); j.reported.grown != j.changed || j.reported.settled != settled {
		list := viewsOf(voter, j.file.ID(), settled, j.file.Records())
		j.reported = reportedJournal{j.changed, settled, list[:min(len(list), reportedViews)]}
	}
	return j.reported.list
}

// Contents returns what the file holds, and a channel that is closed when it grows.
func (j *Journal) Contents() (b BlackBox, grown <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return BlackBox{Journal: j.file.ID(), Settled: j.file.Settled(), Records: j.file.Records()}, j.changed
}

// viewsOf puts the records of a journal together: from the loss of a quorum to its
// return, and single ones.
func viewsOf(voter, journal string, settled uint64, records []blackbox.Record) (list []election.View) {
	// The outage whose end the records read so far lack.
	var open *election.View
	for _, r := range records {
		switch r.Kind {
		case blackbox.Lost:
			// A view is listed once it has ended: until then its times and peers still change.
			open = &election.View{
				Voter:       voter,
				Journal:     journal,
				Kind:        election.ViewLost,
				Began:       r.Since,
				Term:        r.Term,
				Leader:      r.Leader,
				Cause:       r.Cause,
				Refused:     r.Refused,
				Unreachable: unreachable(r.Peers),
			}
		case blackbox.View:
			addRecord(open, r)
		case blackbox.Restored:
			// An outage is settled when its last record is: it is listed as long as that is not in the log.
			if open != nil && r.Seq > settled {
				open.Seq, open.Ended, open.Refused = r.Seq, r.At, max(open.Refused, r.Refused)
				list = append(list, *open)
			}
			open = nil
		case blackbox.Stalled, blackbox.Down, blackbox.LeaseExpired:
			// These records are views by themselves.
			if r.Seq > settled {
				list = append(list, election.View{
					Voter:   voter,
					Journal: journal,
					Seq:     r.Seq,
					Kind:    string(r.Kind),
					Began:   r.Since,
					Ended:   r.At,
					Term:    r.Term,
					Leader:  r.Leader,
				})
			}
		}
	}
	return list
}

// addRecord adds to a view what was seen while it lasted; without a view it does nothing.
func addRecord(open *election.View, r blackbox.Record) {
	if open == nil {
		return
	}
	open.Refused = max(open.Refused, r.Refused)
	// Whoever was out of reach at any time of the outage is named.
	for _, id := range unreachable(r.Peers) {
		if !slices.Contains(open.Unreachable, id) {
			open.Unreachable = append(open.Unreachable, id)
		}
	}
	// Regained is the start of the last stretch with a majority in reach, not of the first.
	switch r.Cause {
	case viewRegained:
		open.Regained = r.At
	case viewSlipped:
		open.Regained = time.Time{}
	}
}

// openOutage finds the outage whose end the journal lacks, and when a majority was in reach again.
func openOutage(records []blackbox.Record) (open blackbox.Record, regained time.Time, ok bool) {
	var view election.View
	for _, r := range records {
		switch r.Kind {
		case blackbox.Lost:
			open, ok, view = r, true, election.View{}
		case blackbox.View:
			// Each record has the count since the outage began, so the largest is the newest one.
			open.Refused = max(open.Refused, r.Refused)
			addRecord(&view, r)
		case blackbox.Restored:
			// It has its end: only a later Lost can be open.
			ok = false
		}
	}
	return open, view.Regained, ok
}

// Causes of a blackbox.View, as the journal stores them.
const (
	// Journals of older versions have the same texts: they never change.
	viewRegained = "majority in reach"
	viewSlipped  = "majority out of reach"
	viewPeers    = "peers changed"
	viewLasts    = "goes on"
)

// Close closes the file. No goroutine may write it any more.
func (j *Journal) Close() error { return j.file.Close() }

// unreachable returns the ids of the peers out of reach.
func unreachable(peers []blackbox.Peer) (ids []string) {
	for _, p := range peers {
		if !p.Reachable {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

// JournalType is the event type under which a journal's record is shown.
func JournalType(k blackbox.Kind) event.Type {
	switch k {
	case blackbox.Lost:
		return event.QuorumLost
	case blackbox.Restored:
		return event.QuorumRestored
	case blackbox.LeaseExpired:
		return event.LeaderLeaseExpired
	default:
		return event.QuorumOutageView
	}
}
