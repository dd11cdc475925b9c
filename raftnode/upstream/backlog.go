// Raft hands the state machine up to 8192 entries of any size. There is no issue. Delete this file when
// raft bounds them in bytes.

package upstream

import (
	"cmp"
	"slices"
	"sync"

	"github.com/hashicorp/raft"
)

// MaxBacklog is how many bytes of committed entries may wait for the state machine. Raft
// bounds what it hands over by 8192 entries, of a megabyte and more each.
const MaxBacklog = 64 << 20

// backlog knows the sizes of the entries that this node stores and has not applied.
type backlog struct {
	mu      sync.Mutex // guards entries
	entries []stretch  // ascending, without a hole
}

// stretch is where an entry lies among the bytes of all entries since the first.
type stretch struct {
	index      uint64
	begin, end int64
}

// storing notes entries that raft is about to store, in place of any at these indexes.
func (b *backlog) storing(logs []*raft.Log, applied uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	// What is applied no longer counts, and a leader may replace a suffix of the log.
	b.entries = slices.Delete(b.entries, 0, b.past(applied))
	b.entries = b.entries[:b.past(logs[0].Index-1)]
	at := int64(0)
	if n := len(b.entries); n > 0 {
		at = b.entries[n-1].end
	}
	for _, l := range logs {
		size := int64(len(l.Data) + len(l.Extensions))
		b.entries = append(b.entries, stretch{l.Index, at, at + size})
		at += size
	}
}

// bytes is the size of the entries after applied, up to and including the one at committed.
func (b *backlog) bytes(applied, committed uint64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	from, to := b.past(applied), b.past(committed)
	if from >= to {
		return 0
	}
	return b.entries[to-1].end - b.entries[from].begin
}

// past is the position in entries of the first one after an index. The caller holds mu.
func (b *backlog) past(index uint64) int {
	i, found := slices.BinarySearchFunc(b.entries, index, func(e stretch, i uint64) int { return cmp.Compare(e.index, i) })
	if found {
		i++
	}
	return i
}
