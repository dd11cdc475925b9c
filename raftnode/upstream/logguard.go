// Raft compacts its log up to the index of a snapshot, counting entries that never reach the state,
// beside the goroutine that replaces a suffix, and keeps entries that an installed snapshot
// contradicts (hashicorp/raft#697). Delete this file when raft compacts under the lock of its log,
// up to what the state reports, and empties a log that a snapshot contradicts.

package upstream

import "github.com/hashicorp/raft"

// GuardedLog keeps raft from compacting its log past the state and past what is to stay. Raft counts
// entries that never reach the state machine (no-ops) as part of a snapshot, the
// state ends at its last command; with the entries between them gone, a restart
// would miss them.
type GuardedLog struct {
	raft.LogStore
	Durable func() uint64            // the index up to which the state is on disk
	Keep    func(last uint64) uint64 // the first entry that a compaction leaves
	Base    func() *raft.Log         // the last entry of the state as it was opened or installed, index and term only
	Storing func(logs []*raft.Log)   // sees entries before they are stored; nil is nobody
	Stored  func()                   // is called after that
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

// DeleteRange implements raft.LogStore. A range that begins after the state on disk is a suffix,
// which a leader replaces. Every other one is a compaction, which leaves the last entry of the
// state: raft compacts beside the goroutine that replaces a suffix, by an end that the log may
// not have any more, and would empty the log.
//
// After a snapshot of another leader's log, what the own log has up to there goes as well: raft
// would keep it, and send it on once it leads.
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
	if low > durable && high >= last {
		return g.LogStore.DeleteRange(low, high)
	}
	high = min(high, max(durable, 1)-1, g.Keep(last)-1)
	if base := g.Base(); first <= base.Index && !g.leadsTo(base) {
		high = base.Index
	}
	if high < low {
		return nil
	}
	return g.LogStore.DeleteRange(low, high)
}

// leadsTo reports whether the log itself holds the entry that base is of.
func (g GuardedLog) leadsTo(base *raft.Log) bool {
	var l raft.Log
	err := g.LogStore.GetLog(base.Index, &l)
	return err == nil && l.Term == base.Term
}
