package health

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ringrift/ringlog/raftnode/datadir"
)

// Holdings remembers, in memory, what other members' data folders are known to hold, and finds
// those that were replaced by an older copy: a restored snapshot of a machine or of a disk. Such a
// node has forgotten votes that it gave and entries that it acknowledged.
//
// What a process found in the folder as it started is compared with what the processes before it
// reported, as far as that is durable for good. The term is: raft stores it before it uses it. The
// end of the raft log is not, since a new leader may truncate what was not committed. What was
// applied was committed, so the log or the state reaches that far, while the applied index itself
// may restart lower.
type Holdings struct {
	mu    sync.Mutex
	known map[string]holding // by incarnation
}

// holding is the most that a data folder was reported to hold.
type holding struct {
	term, index uint64
	run         time.Time // when the process of the newest report started, by its own clock
	heard       time.Time // when that report arrived
	back        bool      // a process found less in the folder than one before it had reported
}

// See takes a report that was asked for at asked and arrived now, and reports whether it is the first one that shows
// an older copy of the folder. A report that was asked for before the newest one arrived is ignored.
func (h *Holdings) See(r Report, asked, now time.Time) (fellBack bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		h.known = map[string]holding{}
	}
	// A folder that was not heard of before holds nothing that could be missing.
	k := h.known[r.Incarnation]
	if !asked.After(k.heard) {
		return false
	}
	// Start is compared once per process: its own later reports may well exceed what it found.
	if r.Start != nil && !r.Started.Equal(k.run) && k.exceeds(*r.Start) && !k.back {
		k.back, fellBack = true, true
	}
	k.term, k.index, k.run, k.heard = max(k.term, r.Term), max(k.index, r.Applied), r.Started, now
	h.known[r.Incarnation] = k
	return fellBack
}

// exceeds reports whether k has a higher term or index than a process found as it started.
func (k holding) exceeds(s Standing) bool { return s.Term < k.term || s.LastIndex < k.index }

// Exceeds reports whether a data folder was known to hold more than a node finds in it as it
// starts. Nothing is remembered of that: the question may have been overtaken by later reports.
func (h *Holdings) Exceeds(s Standing) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.known[s.Incarnation]
	return k.back || k.exceeds(s)
}

// FellBack reports whether a data folder was found to be an older copy.
func (h *Holdings) FellBack(incarnation string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[incarnation].back
}

// RolledBack returns the data folders that were found to be older copies, sorted.
func (h *Holdings) RolledBack() (incarnations []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for incarnation, k := range h.known {
		if k.back {
			incarnations = append(incarnations, incarnation)
		}
	}
	slices.Sort(incarnations)
	return incarnations
}

// Keep forgets the folders of nodes that are not members.
func (h *Holdings) Keep(members []datadir.Peer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.known, func(incarnation string, _ holding) bool {
		return !slices.ContainsFunc(members, func(m datadir.Peer) bool { return m.Incarnation == incarnation })
	})
}
