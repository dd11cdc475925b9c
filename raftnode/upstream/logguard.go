// Raft compacts its log up to the index of a snapshot, counting entries that never reach the state, while
// another goroutine may replace a suffix, and keeps entries that an installed snapshot contradicts
// (hashicorp/raft#697). It has two rows in README.md. Delete this file when raft compacts under the lock of the
// log, up to what the state reports, and raft empties a log that an installed snapshot contradicts.

package upstream

import "github.com/hashicorp/raft"

// GuardedLog keeps raft from compacting its log past the state and past what has to stay. Raft counts
// entries that never reach the state machine (no-ops) as part of a snapshot, but the
// state ends at its last command: without the entries in between, a restart would find
// a gap between state and log.
type GuardedLog struct {
	raft.LogStore
	Durable func() uint64            // the index up to which the state is on disk
	Keep    func(last uint64) uint64 // the first entry that a compaction leaves in a log that ends with last
	Base    func() *raft.Log         // the last entry of the state as it was opened or installed, index and term only
	Storing func(logs []*raft.Log)   // called with entries before they are stored; may be nil
	Stored  func()                   // called once they are stored; may be nil
}

var _ raft.LogStore = GuardedLog{}

// StoreLogs implements raft.LogStore.
func (g GuardedLog) StoreLogs(logs []*raft.Log) error {
	if g.Storing != nil && len(logs) > 0 {
		g.Storing(logs)
	}
	if err := g.LogStore.StoreLogs(logs); err != nil {
		return err
	}
	if g.Stored != nil {
		g.Stored()
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (g GuardedLog) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// DeleteRange implements raft.LogStore. A range that begins after the state on disk and reaches the
// end of the log is a suffix, which a leader replaces. Every other one is a compaction, which leaves
// the last entry of the state: raft compacts while another goroutine may replace a suffix, up to an
// end that the log may no longer have, and would empty the log.
//
// After a snapshot that contradicts this node's log, a compaction removes the log's entries up to the
// snapshot as well: raft would keep them, and send them once it leads.
func (g GuardedLog) DeleteRange(low, high uint64) error {
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	durable := g.Durable()
	// Nothing of the state is in it: the leader's entries take the place of these.
	if low > durable && high >= last {
		return g.LogStore.DeleteRange(low, high)
	}
	// The last entry of the state stays, and what Keep wants.
	high = min(high, max(durable, 1)-1, g.Keep(last)-1)
	if base := g.Base(); first <= base.Index && !g.leadsTo(base) {
		high = base.Index
	}
	if high < low {
		return nil
	}
	return g.LogStore.DeleteRange(low, high)
}

// leadsTo reports whether the log holds base: an entry of its term at its index.
func (g GuardedLog) leadsTo(base *raft.Log) bool {
	var l raft.Log
	err := g.LogStore.GetLog(base.Index, &l)
	return err == nil && l.Term == base.Term
}
