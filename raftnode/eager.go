package raftnode

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// eager sends new entries to the followers while the leader still writes them to its
// own disk. Raft writes first and sends then, which makes two syncs in a row of what
// may be one beside the other.
//
// It sends what raft is about to send, and when raft does, raft gets that answer.
// Raft still counts the leader's own copy only once it is on disk, and a follower's
// only by its answer; a follower that has entries which the leader then loses has
// what any follower may have: entries that were never committed.
type eager struct {
	send  sendEntries
	fresh time.Duration // an answer older than that says too little about the follower

	mu        sync.Mutex
	closed    bool
	followers map[raft.ServerID]*eagerFollower
	sending   sync.WaitGroup
}

type sendEntries func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error

// eagerFollower is what raft's own requests told of a follower.
type eagerFollower struct {
	addr    raft.ServerAddress
	newest  raft.AppendEntriesRequest // raft's, without entries
	matched uint64                    // the follower has the log up to here; 0 is not known
	busy    int                       // requests of raft under way
	call    *eagerCall
	calls   chan *eagerCall // to the goroutine that sends them
}

// eagerCall is a request ahead of raft's; resp and err are final once done is closed.
type eagerCall struct {
	addr raft.ServerAddress
	args raft.AppendEntriesRequest
	sent time.Time
	resp raft.AppendEntriesResponse
	err  error
	done chan struct{}
}

func newEager(send sendEntries, fresh time.Duration) *eager {
	return &eager{send: send, fresh: fresh, followers: map[raft.ServerID]*eagerFollower{}}
}

// ship sends entries that the leader is about to store, behind an entry of prevTerm,
// to each follower that has all before them and waits for more.
func (e *eager) ship(logs []*raft.Log, prevTerm, commit uint64) {
	first := logs[0]
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.followers {
		if e.closed || f.busy > 0 || f.call != nil || f.newest.Term != first.Term || f.matched != first.Index-1 {
			continue
		}
		c := &eagerCall{addr: f.addr, args: f.newest, sent: time.Now(), done: make(chan struct{})}
		c.args.PrevLogEntry, c.args.PrevLogTerm = first.Index-1, prevTerm
		c.args.Entries, c.args.LeaderCommitIndex = logs, commit
		select {
		case f.calls <- c:
			f.call = c
		default: // calls that raft did not wait for are still under way
		}
	}
}

// follower returns what is known of one, which from the first time on has a goroutine.
func (e *eager) follower(id raft.ServerID) *eagerFollower {
	f := e.followers[id]
	if f != nil {
		return f
	}
	f = &eagerFollower{calls: make(chan *eagerCall, 1)}
	e.followers[id] = f
	if !e.closed {
		e.sending.Go(func() {
			for c := range f.calls {
				c.err = e.send(id, c.addr, &c.args, &c.resp)
				close(c.done)
			}
		})
	}
	return f
}

// appendEntries is raft.Transport's, and tells when the answered request was sent.
func (e *eager) appendEntries(id raft.ServerID, addr raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (sent time.Time, err error) {
	if isHeartbeat(args) {
		sent = time.Now()
		return sent, e.send(id, addr, args, resp)
	}
	if c := e.join(id, addr, args); c != nil {
		<-c.done
		if c.err != nil { // raft tries again, after a pause
			e.settle(id, args, resp, c.err)
			return c.sent, c.err
		}
		if c.resp.Success && time.Since(c.sent) < e.fresh {
			*resp = c.resp
			e.settle(id, args, resp, nil)
			return c.sent, nil
		}
	}
	sent = time.Now()
	err = e.send(id, addr, args, resp)
	e.settle(id, args, resp, err)
	return sent, err
}

// join notes raft's request and returns the one that was sent ahead of it, if any.
func (e *eager) join(id raft.ServerID, addr raft.ServerAddress, args *raft.AppendEntriesRequest) *eagerCall {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.follower(id)
	f.busy++
	f.addr, f.newest = addr, *args
	f.newest.Entries = nil
	c := f.call
	switch {
	case c == nil:
		return nil
	case sameEntries(&c.args, args):
		f.call = nil
		return c
	case c.args.Term != args.Term || lastEntry(args) > c.args.PrevLogEntry:
		f.call = nil // raft goes another way
	}
	return nil
}

// settle notes an answer to raft.
func (e *eager) settle(id raft.ServerID, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followers[id]
	f.busy--
	f.matched = 0
	if err == nil && resp.Success && resp.Term == args.Term {
		f.matched = lastEntry(args)
	}
}

// forget is told of members that raft speaks to no more; without ids, of all.
func (e *eager) forget(ids ...raft.ServerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, f := range e.followers {
		if len(ids) == 0 || slices.Contains(ids, id) {
			f.call, f.matched = nil, 0
		}
	}
}

func lastEntry(args *raft.AppendEntriesRequest) uint64 {
	return args.PrevLogEntry + uint64(len(args.Entries))
}

// sameEntries reports whether two requests bring the same: within a term an index
// names one entry.
func sameEntries(a, b *raft.AppendEntriesRequest) bool {
	return a.Term == b.Term && a.PrevLogEntry == b.PrevLogEntry && a.PrevLogTerm == b.PrevLogTerm && len(a.Entries) == len(b.Entries)
}

// close lets nothing more go out and waits for what is under way, which the closed
// transport ends.
func (e *eager) close() {
	e.mu.Lock()
	if !e.closed {
		e.closed = true
		for _, f := range e.followers {
			close(f.calls)
		}
	}
	e.mu.Unlock()
	e.sending.Wait()
}
