// Raft writes an entry to the leader's disk, and sends it to the followers only then; it announces
// a commit with the next request, and sends all of a large request again after an error. There
// is no issue. Delete this file when raft sends and writes at the same time, bounds a request in
// bytes, and announces commits without a pause.

package upstream

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// eager sends new entries to the followers while the leader still writes them to its
// own disk. Raft writes first and sends then, which makes two syncs in a row of what
// may be one beside the other.
//
// It sends what raft is about to send, and when raft does, raft gets that answer. It also
// sends the commit index where no request of raft's would soon.
// Raft still counts the leader's own copy only once it is on disk, and a follower's
// only by its answer; a follower that has entries which the leader then loses has
// what any follower may have: entries that were never committed.
type eager struct {
	send  sendEntries
	fresh time.Duration // an answer older than that says too little about the follower

	commits chan struct{} // holds one: see announce

	mu        sync.Mutex
	closed    bool
	committed uint64 // the newest commit index to announce
	followers map[raft.ServerID]*eagerFollower
	sending   sync.WaitGroup
}

type sendEntries func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error

// eagerFollower is what raft's own requests have shown of a follower.
type eagerFollower struct {
	addr    raft.ServerAddress
	newest  raft.AppendEntriesRequest // raft's, without entries
	matched uint64                    // the follower has the log up to here; 0 is not known
	term    uint64                    // of the entry there
	heard   uint64                    // the commit index that the follower has heard of
	busy    int                       // requests of raft under way
	call    *eagerCall
	calls   chan *eagerCall // to the goroutine that sends them
}

// eagerCall is a request ahead of raft's; what came of it is final once done is closed.
type eagerCall struct {
	addr raft.ServerAddress
	args raft.AppendEntriesRequest
	done chan struct{}
	outcome
}

// outcome is what came of a request, which may have gone out as several.
type outcome struct {
	sent      time.Time // when the newest one was sent
	answered  time.Time
	confirmed int    // entries that the follower has, of those sent
	commit    uint64 // the commit index that was sent
	resp      raft.AppendEntriesResponse
	err       error
}

func newEager(send sendEntries, fresh time.Duration) *eager {
	return &eager{send: send, fresh: fresh, commits: make(chan struct{}, 1), followers: map[raft.ServerID]*eagerFollower{}}
}

// ship sends entries that the leader is about to store, after an entry of prevTerm,
// to each follower that has all before them and waits for more.
func (e *eager) ship(logs []*raft.Log, prevTerm, commit uint64) {
	first := logs[0]
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.followers {
		if e.closed || f.busy > 0 || f.call != nil || f.newest.Term != first.Term || f.matched != first.Index-1 {
			continue
		}
		c := &eagerCall{addr: f.addr, args: f.newest, done: make(chan struct{})}
		c.args.PrevLogEntry, c.args.PrevLogTerm = first.Index-1, prevTerm
		c.args.Entries, c.args.LeaderCommitIndex = logs, commit
		select {
		case f.calls <- c:
			f.call = c
		default: // calls that raft did not wait for are still under way
		}
	}
}

// has reports whether a follower has answered that it has stored last, a leader's entry,
// and all before it.
func (e *eager) has(id raft.ServerID, last *raft.Log) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followers[id]
	if f == nil || f.newest.Term != last.Term {
		return false
	}
	if f.matched >= last.Index {
		return true
	}
	c := f.call
	if c == nil || c.args.Term != last.Term || lastEntry(&c.args) < last.Index {
		return false
	}
	select {
	case <-c.done:
		return c.err == nil && c.resp.Success
	default:
		return false
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
				c.outcome = e.sendParts(id, c.addr, c.args)
				close(c.done)
			}
		})
	}
	return f
}

// appendEntries is raft.Transport's, and returns when the answered request was sent. It
// takes those entries out of args which the follower did not confirm; raft sends them next.
func (e *eager) appendEntries(id raft.ServerID, addr raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (sent time.Time, err error) {
	if isHeartbeat(args) {
		sent = time.Now()
		return sent, e.send(id, addr, args, resp)
	}
	var out outcome
	answered := false
	if c := e.join(id, addr, args); c != nil {
		<-c.done
		out = c.outcome
		// Raft tries again after an error, and after a pause.
		answered = out.err != nil || (out.resp.Success && time.Since(out.answered) < e.fresh)
	}
	if !answered {
		out = e.sendParts(id, addr, *args)
	}
	if out.err == nil {
		*resp = out.resp
		args.Entries = args.Entries[:out.confirmed]
	}
	e.settle(id, args, out)
	return out.sent, out.err
}

// maxRequestBytes is what a request's entries may take, but for a single one that is
// larger. Raft bounds a request by its entries alone, and after an error sends all of
// them again, over a link that may not last for as many.
const maxRequestBytes = 4 << 20

// sendParts sends a request as several, if it is large. An answer that the follower has
// some of the entries stands, whatever comes of the others.
func (e *eager) sendParts(id raft.ServerID, addr raft.ServerAddress, rest raft.AppendEntriesRequest) (out outcome) {
	for {
		part := rest
		part.Entries = rest.Entries[:fitting(rest.Entries)]
		next := outcome{sent: time.Now(), commit: rest.LeaderCommitIndex}
		next.err = e.send(id, addr, &part, &next.resp)
		next.answered = time.Now()
		success := next.err == nil && next.resp.Success
		if !success && out.confirmed > 0 {
			return out
		}
		if success {
			next.confirmed = out.confirmed + len(part.Entries)
		}
		out = next
		if !success || len(part.Entries) == len(rest.Entries) {
			return out
		}
		last := part.Entries[len(part.Entries)-1]
		rest.PrevLogEntry, rest.PrevLogTerm = last.Index, last.Term
		rest.Entries = rest.Entries[len(part.Entries):]
	}
}

// fitting is how many of the entries go into one request.
func fitting(entries []*raft.Log) (n int) {
	size := 0
	for ; n < len(entries); n++ {
		size += len(entries[n].Data) + len(entries[n].Extensions)
		if n > 0 && size > maxRequestBytes {
			break
		}
	}
	return n
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
func (e *eager) settle(id raft.ServerID, args *raft.AppendEntriesRequest, out outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followers[id]
	f.busy--
	f.matched = 0
	if out.err != nil || !out.resp.Success || out.resp.Term != args.Term {
		return
	}
	f.matched, f.term = lastEntry(args), args.PrevLogTerm
	if n := len(args.Entries); n > 0 {
		f.term = args.Entries[n-1].Term
	}
	f.heard = min(out.commit, f.matched)
	if f.heard < e.committed && f.matched >= e.committed {
		e.wake()
	}
}

// How long a commit waits for the next request to carry it. Under load, when the commit
// before it was a moment ago, there will be one.
const (
	commitPause = 2 * time.Millisecond
	busyPause   = 10 * time.Millisecond
)

func (e *eager) wake() {
	select {
	case e.commits <- struct{}{}:
	default:
	}
}

// announce has followers hear of commits that no request carries. Raft would leave that
// to the next one, after CommitTimeout. newest is the commit index of the term that this
// node leads, 0 if it leads none. announce returns when ctx ends.
func (e *eager) announce(ctx context.Context, newest func() (commit, term uint64)) {
	var last time.Time
	for {
		select {
		case <-e.commits:
		case <-ctx.Done():
			return
		}
		pause := commitPause
		if time.Since(last) < 2*busyPause {
			pause = busyPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		last = time.Now()
		if commit, term := newest(); term != 0 {
			e.spread(commit, term)
		}
	}
}

// spread sends a commit index to each follower that has the entries, has not heard of it
// and is sent nothing else.
func (e *eager) spread(commit, term uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.committed = commit
	for id, f := range e.followers {
		if e.closed || f.busy > 0 || f.call != nil || f.newest.Term != term || f.matched < commit || f.heard >= commit {
			continue
		}
		f.heard = commit // if this one is lost, raft's next carries it
		args, addr := f.newest, f.addr
		args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = f.matched, f.term, commit
		e.sending.Go(func() { _ = e.send(id, addr, &args, new(raft.AppendEntriesResponse)) })
	}
}

// forget drops members that raft no longer sends to; without ids, all of them.
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
	return a.Term == b.Term &&
		a.PrevLogEntry == b.PrevLogEntry &&
		a.PrevLogTerm == b.PrevLogTerm &&
		len(a.Entries) == len(b.Entries)
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
