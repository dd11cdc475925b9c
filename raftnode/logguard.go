package raftnode

import (
	"errors"

	"github.com/hashicorp/raft"
)

// guardedLog keeps raft from compacting its log past the state and past what is to stay. Raft counts
// entries that never reach the state machine (no-ops) as part of a snapshot, the
// state ends at its last command; with the entries between them gone, a restart
// would miss them.
//
// It also knows the entry that a state taken over from elsewhere ends with. Raft asks
// its log for that entry once another has followed it, and not its snapshot.
type guardedLog struct {
	raft.LogStore
	durable   func() uint64            // the index up to which the state is on disk
	installed func() uint64            // the last entry of a state that replaced this one; 0 is none
	keep      func(last uint64) uint64 // the first entry that a compaction leaves
	floor     func() *raft.Log         // the entry before the log's first where a state replaced it; without what it said
	storing   func(logs []*raft.Log)   // sees entries before they are stored; nil is nobody
	stored    func()                   // is called behind that
}

var _ raft.LogStore = guardedLog{}

// StoreLogs implements raft.LogStore.
func (g guardedLog) StoreLogs(logs []*raft.Log) error {
	if g.storing != nil && len(logs) > 0 {
		g.storing(logs)
	}
	if err := g.LogStore.StoreLogs(logs); err != nil {
		return err
	}
	if g.stored != nil {
		g.stored()
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (g guardedLog) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// GetLog implements raft.LogStore.
func (g guardedLog) GetLog(index uint64, l *raft.Log) error {
	err := g.LogStore.GetLog(index, l)
	// As a leader raft never sends the floor on: it would need the entry before. There
	// is none before index 1.
	if errors.Is(err, raft.ErrLogNotFound) && index > 1 {
		if f := g.floor(); f.Index == index {
			*l = *f
			return nil
		}
	}
	return err
}

// DeleteRange implements raft.LogStore. A range that begins with the log is a compaction,
// unless it reaches to entries that are not in the state, which a leader has replaced, or
// the log is one that a snapshot stands for: these go as raft says, and so does a suffix.
//
// A compaction leaves the last entry of the state. Raft compacts beside the goroutine that
// replaces a suffix, by an end that the log may not have any more; it would empty the log.
func (g guardedLog) DeleteRange(low, high uint64) error {
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	last, err := g.LastIndex()
	if err != nil {
		return err
	}
	durable := g.durable()
	// After a snapshot raft may empty the log. Where the log leads to the snapshot, what
	// follows is the leader's, and may have been acknowledged.
	if installed := g.installed(); low <= installed && installed < high && g.leadsTo(installed) {
		high = installed
	}
	if compacts := low <= first && (high < last || g.installed() < high && high <= durable); compacts {
		high = min(high, max(durable, 1)-1, g.keep(last)-1)
	}
	if high < low {
		return nil
	}
	return g.LogStore.DeleteRange(low, high)
}

// leadsTo reports whether the log itself holds the last entry of the state that was installed.
func (g guardedLog) leadsTo(installed uint64) bool {
	var l raft.Log
	err := g.LogStore.GetLog(installed, &l)
	floor := g.floor()
	return err == nil && floor.Index == installed && floor.Term == l.Term
}
