package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentBytes bounds the memory of the entries kept.
const recentBytes = 16 << 20

func sizeOf(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + 128 }

// recent keeps the newest stored entries in memory: raft reads each one again, to
// send it to every follower and to apply it. What it holds is dense and ends with
// the log, or it holds nothing. Data is shared with whoever stored the entry.
type recent struct {
	mu      sync.RWMutex
	entries []raft.Log
	bytes   int
}

// add is told of stored entries, which are dense.
func (r *recent) add(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.entries); n > 0 && r.entries[n-1].Index+1 != logs[0].Index {
		r.entries, r.bytes = nil, 0
	}
	for _, l := range logs {
		r.entries = append(r.entries, *l)
		r.bytes += sizeOf(l)
	}
	drop := 0
	for r.bytes > recentBytes {
		r.bytes -= sizeOf(&r.entries[drop])
		drop++
	}
	clear(r.entries[:drop])
	r.entries = r.entries[drop:]
}

// remove is told that entries, both ends included, are about to be deleted.
func (r *recent) remove(low, high uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.entries); n > 0 && low <= r.entries[n-1].Index && high >= r.entries[0].Index {
		r.entries, r.bytes = nil, 0
	}
}

// endsBefore reports whether it holds entries, of which the last stands before index.
func (r *recent) endsBefore(index uint64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := len(r.entries)
	return n > 0 && r.entries[n-1].Index+1 == index
}

// get finds an entry.
func (r *recent) get(index uint64, l *raft.Log) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.entries) == 0 || index < r.entries[0].Index || index > r.entries[len(r.entries)-1].Index {
		return false
	}
	*l = r.entries[index-r.entries[0].Index]
	return true
}
