package raftstore

import (
	"sync"

	"github.com/hashicorp/raft"
)

// recentBytes bounds the memory of the entries kept.
const recentBytes = 16 << 20

// sizeOf is about how much memory an entry takes, in bytes.
func sizeOf(l *raft.Log) int { return len(l.Data) + len(l.Extensions) + 128 }

// recent caches the newest stored entries: raft reads each one again, to send it to
// every follower and to apply it. Data is shared with the caller that stored the entry.
type recent struct {
	mu      sync.RWMutex // guards entries and bytes
	entries []raft.Log   // dense, and the last is the log's last one; or empty
	bytes   int          // of entries, at most recentBytes
}

// add caches stored entries, which are dense, and drops the oldest beyond recentBytes.
func (r *recent) add(logs []*raft.Log) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Entries after a snapshot replace the log: the cache must not have a gap.
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
	// The slice's array must not keep the data of the dropped entries.
	clear(r.entries[:drop])
	r.entries = r.entries[drop:]
}

// remove empties the cache if it has one of the entries low to high, which are about to be deleted.
func (r *recent) remove(low, high uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.entries); n > 0 && low <= r.entries[n-1].Index && high >= r.entries[0].Index {
		r.entries, r.bytes = nil, 0
	}
}

// endsBefore reports whether the cache, and so the log, ends with the entry before index. It is false
// while the cache is empty.
func (r *recent) endsBefore(index uint64) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := len(r.entries)
	return n > 0 && r.entries[n-1].Index+1 == index
}

// get copies the entry to l and reports whether the cache has it.
func (r *recent) get(index uint64, l *raft.Log) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	n := len(r.entries)
	if n == 0 || index < r.entries[0].Index || index > r.entries[n-1].Index {
		return false
	}
	*l = r.entries[index-r.entries[0].Index]
	return true
}
