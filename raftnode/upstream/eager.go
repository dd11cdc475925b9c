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
// own disk. Raft writes first and sends after that: the disks of leader and followers
// sync one after the other, though they could at the same time.
//
// It sends what raft is about to send, and when raft sends it, raft gets that answer. It
// also sends the commit index if no request of raft's would carry it soon.
// Raft still counts the leader's own copy only once it is on disk, and a follower's
// only by its answer. If the leader then loses entries that a follower has, they are
// what any follower may have: entries that were never committed.
type eager struct {
	send  sendEntries
	fresh time.Duration // raft is not given an answer that is older

	commits chan struct{} // holds one: see announce

	mu        sync.Mutex // guards the fields below and those of each eagerFollower; never held while sending
	closed    bool
	committed uint64 // the newest commit index to announce
	followers map[raft.ServerID]*eagerFollower
	sending   sync.WaitGroup // the senders of calls, and announcements under way; close waits for them
}

// sendEntries sends one request and returns once it is answered, as raft.Transport's AppendEntries does.
type sendEntries func(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error

// eagerFollower is what raft's own requests have shown of a follower, and the request that is ahead of
// them.
type eagerFollower struct {
	addr    raft.ServerAddress
	newest  raft.AppendEntriesRequest // raft's newest one, without entries
	matched uint64                    // the follower has the log up to here; 0: not known
	term    uint64                    // of the entry at matched
	heard   uint64                    // the newest commit index that was sent to the follower
	busy    int                       // requests of raft under way
	call    *eagerCall                // sent ahead, and raft has not asked for it yet; nil: none
	calls   chan *eagerCall           // to the goroutine that sends them
}

// eagerCall is a request that is sent ahead of raft's. Its outcome may be read once done is closed.
type eagerCall struct {
	addr raft.ServerAddress
	args raft.AppendEntriesRequest
	done chan struct{}
	outcome
}

// outcome is the result of a request, which may have been sent in several parts.
type outcome struct {
	sent      time.Time // when the newest part was sent
	answered  time.Time // when its answer, or the error, arrived
	confirmed int       // entries that the follower has, of those sent
	commit    uint64    // the commit index that was sent
	resp      raft.AppendEntriesResponse
	err       error
}

func newEager(send sendEntries, fresh time.Duration) *eager {
	return &eager{send: send, fresh: fresh, commits: make(chan struct{}, 1), followers: map[raft.ServerID]*eagerFollower{}}
}

// ship sends entries that the leader is about to store, after an entry of prevTerm,
// to each follower that has all before them and waits for more.
func (e *eager) ship(logs []*raft.Log, prevTerm, commit uint64) {
	// All entries of a leader's batch are of its term.
	first := logs[0]
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range e.followers {
		// While raft's own request is under way nothing may overtake it. A follower that raft has not sent
		// anything in this term, or that has not confirmed all entries before these, might refuse them.
		if e.closed || f.busy > 0 || f.call != nil || f.newest.Term != first.Term || f.matched != first.Index-1 {
			continue
		}
		c := &eagerCall{addr: f.addr, args: f.newest, done: make(chan struct{})}
		c.args.PrevLogEntry, c.args.PrevLogTerm = first.Index-1, prevTerm
		c.args.Entries, c.args.LeaderCommitIndex = logs, commit
		select {
		case f.calls <- c:
			f.call = c
		default: // an earlier call that raft did not wait for is still under way
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
	// Raft has not asked for the answer to what was sent ahead, as it is still writing.
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

// follower returns what is known of a follower. The first time it starts the goroutine that sends to it.
// The caller holds mu.
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

// appendEntries is raft.Transport's AppendEntries, and returns also when the answered request was sent. It
// removes from args the entries that the follower did not confirm; raft sends them next.
func (e *eager) appendEntries(id raft.ServerID, addr raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (sent time.Time, err error) {
	// A heartbeat says nothing of the log, so nothing is learnt from it or sent in its place.
	if isHeartbeat(args) {
		sent = time.Now()
		return sent, e.send(id, addr, args, resp)
	}
	var out outcome
	answered := false
	// The same entries may be on their way, or even answered: sending them again is saved.
	if c := e.join(id, addr, args); c != nil {
		<-c.done
		out = c.outcome
		// Raft itself tries again after an error, with a pause. An answer that is too old, or a refusal, may no
		// longer be true: then the request is sent.
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

// maxRequestBytes is how many bytes of entries one request may have, unless a single entry
// is larger. Raft bounds a request by the number of entries alone, and after an error sends
// all of them again, over a link that may not last that long.
const maxRequestBytes = 4 << 20

// sendParts sends a large request in several parts, one after the other. Once the follower
// has confirmed some of the entries, a later failure does not take that back: the outcome is
// that of the parts that were confirmed.
func (e *eager) sendParts(id raft.ServerID, addr raft.ServerAddress, rest raft.AppendEntriesRequest) (out outcome) {
	for {
		part := rest
		part.Entries = rest.Entries[:fitting(rest.Entries)]
		next := outcome{sent: time.Now(), commit: rest.LeaderCommitIndex}
		next.err = e.send(id, addr, &part, &next.resp)
		next.answered = time.Now()
		success := next.err == nil && next.resp.Success
		// The outcome of the parts before stands; raft sends the rest next.
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
		// The next part follows the last entry of this one.
		last := part.Entries[len(part.Entries)-1]
		rest.PrevLogEntry, rest.PrevLogTerm = last.Index, last.Term
		rest.Entries = rest.Entries[len(part.Entries):]
	}
}

// fitting is how many of the entries go into one request, at least one if there are any.
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

// join notes that raft's request is under way, and returns the call that was sent ahead of it and brings
// the same entries, nil if there is none. settle must follow.
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
		f.call = nil // raft will not ask for its answer any more
	}
	return nil
}

// settle notes the outcome of a request that join has noted, and what it shows of the follower.
func (e *eager) settle(id raft.ServerID, args *raft.AppendEntriesRequest, out outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f := e.followers[id]
	f.busy--
	// Until the next success it is not known where the follower's log agrees.
	f.matched = 0
	if out.err != nil || !out.resp.Success || out.resp.Term != args.Term {
		return
	}
	f.matched, f.term = lastEntry(args), args.PrevLogTerm
	if n := len(args.Entries); n > 0 {
		f.term = args.Entries[n-1].Term
	}
	f.heard = min(out.commit, f.matched)
	// It may have been left out when that commit was announced, as it lacked the entries or was busy.
	if f.heard < e.committed && f.matched >= e.committed {
		e.wake()
	}
}

// How long a commit waits for a request that carries it. Under load, when the commit before it was a
// moment ago, there will be one soon: then it waits for busyPause.
const (
	commitPause = 2 * time.Millisecond
	busyPause   = 10 * time.Millisecond
)

// wake makes announce announce the newest commit. It does not block.
func (e *eager) wake() {
	select {
	case e.commits <- struct{}{}:
	default:
	}
}

// announce sends followers the commits that no request carries; raft itself would do so
// after CommitTimeout. newest returns the commit index and the term that this node leads,
// term 0 if it leads none. announce returns when ctx ends.
func (e *eager) announce(ctx context.Context, newest func() (commit, term uint64)) {
	var last time.Time
	for {
		select {
		case <-e.commits:
		case <-ctx.Done():
			return
		}
		// A request may carry the commit meanwhile, and the next commits are announced with this one.
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

// spread sends a commit index to each follower that has the entries up to it, has not been sent it yet,
// and is sent nothing else now. It does not wait for the answers.
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
		// A request without entries at what the follower has: it accepts that and commits.
		args.PrevLogEntry, args.PrevLogTerm, args.LeaderCommitIndex = f.matched, f.term, commit
		e.sending.Go(func() { _ = e.send(id, addr, &args, new(raft.AppendEntriesResponse)) })
	}
}

// forget drops what is known of members that raft no longer sends to; without ids, of all. Nothing is sent
// ahead to them before raft's own requests have shown where their logs are.
func (e *eager) forget(ids ...raft.ServerID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, f := range e.followers {
		if len(ids) == 0 || slices.Contains(ids, id) {
			f.call, f.matched = nil, 0
		}
	}
}

// lastEntry is the index up to which the follower has the leader's log if it accepts the request.
func lastEntry(args *raft.AppendEntriesRequest) uint64 {
	return args.PrevLogEntry + uint64(len(args.Entries))
}

// sameEntries reports whether two requests of a leader bring the same entries: those of one leader are
// the same if they begin after the same entry and are as many.
func sameEntries(a, b *raft.AppendEntriesRequest) bool {
	return a.Term == b.Term &&
		a.PrevLogEntry == b.PrevLogEntry &&
		a.PrevLogTerm == b.PrevLogTerm &&
		len(a.Entries) == len(b.Entries)
}

// close stops sending and waits for what is under way. It is idempotent. The transport must
// be closed before it, which ends those requests.
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
