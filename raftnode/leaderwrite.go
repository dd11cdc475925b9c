package raftnode

import (
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

var errAbdicated = errors.New("this leader's disk does not write and it sends nothing more in this term")

// leaderWrite is the batch that raft, as the leader, is writing to its log now. While it
// writes, raft's own goroutine waits for the disk, so that raft cannot hand over.
type leaderWrite struct {
	mu       sync.Mutex
	since    time.Time
	logs     []*raft.Log
	prevTerm uint64
}

func (w *leaderWrite) begin(logs []*raft.Log, prevTerm uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.logs, w.prevTerm = time.Now(), logs, prevTerm
}

func (w *leaderWrite) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs = nil
}

func (w *leaderWrite) now() (logs []*raft.Log, prevTerm uint64, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs, w.prevTerm, time.Since(w.since)
}
