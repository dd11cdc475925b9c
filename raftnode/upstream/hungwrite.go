// Raft writes in its main loop, so that it cannot hand leadership over while its disk hangs. There is
// no issue. Delete this file when raft writes beside its main loop.

package upstream

import (
	"context"
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
	since    time.Time   // when the write began
	logs     []*raft.Log // nil while raft writes nothing
	prevTerm uint64      // of the entry before logs
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

// now returns the batch that is being written, the term of the entry before it, and how long it has been
// written; without logs the others say nothing.
func (w *leaderWrite) now() (logs []*raft.Log, prevTerm uint64, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs, w.prevTerm, time.Since(w.since)
}

// LeaveHungDisk ends this node's leadership when its disk has been writing one batch for
// longer than an election takes and a majority of the voters has that batch on disk
// without this node: nothing is acknowledged while it leads. It checks once in every,
// until ctx ends with the leadership, and calls leave with the term that it leaves.
//
// Raft cannot be asked to hand over, so this node falls silent: it sends nothing more in
// its term and closes its connections, and the others elect a leader among themselves.
func (p *Raft) LeaveHungDisk(ctx context.Context, every time.Duration, leave func(term uint64)) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	election := p.options.Config.ElectionTimeout
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		logs, prevTerm, took := p.write.now()
		if len(logs) == 0 || took < election/2 {
			continue
		}
		// A follower to which a request of raft's was under way when the write began has not been sent it yet.
		p.eager.ship(logs, prevTerm, p.raft.Load().CommitIndex())
		last := logs[len(logs)-1]
		// The followers have the second half of the time to write what they were sent.
		if took < election || p.abdicated.Load() == last.Term {
			continue
		}
		// Without a majority that has the batch, another leader could not commit it either.
		voters, with := 0, 0
		for _, s := range p.Servers() {
			if s.Suffrage != raft.Voter {
				continue
			}
			voters++
			if s.ID != p.options.Config.LocalID && p.eager.has(s.ID, last) {
				with++
			}
		}
		if with <= voters/2 {
			continue
		}
		p.options.Logger.Error("this node's disk does not write, others' do: it leaves its leadership to them",
			"term", last.Term, "writing_for", took.Round(time.Millisecond))
		// From here on the transport sends nothing in this term. The closed connections make the Failover of the
		// others campaign before their heartbeat timeouts.
		p.abdicated.Store(last.Term)
		leave(last.Term)
		for _, s := range p.Servers() {
			if s.Suffrage == raft.Voter {
				p.options.Transport.Disconnect(string(s.ID))
			}
		}
	}
}
