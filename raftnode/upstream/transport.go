// Raft pauses after requests that failed in a row, also once the follower is back, proves a leadership
// by answers that may be old, and leaves a snapshot open that could not be sent. There is no issue.
// Delete this file when an answered heartbeat ends such a pause and raft closes what it opened; the
// contacts go when VerifyLeader counts voters by when they were asked.

package upstream

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// notedTransport is the transport that raft sends with. It notes what each request shows of its member,
// and sends entries through eager. Pipelining stays off: the transport keeps one RPC in flight.
type notedTransport struct {
	*rafttransport.Transport
	contacts  Contacts
	eager     *eager
	retries   *retries
	peers     *peerLog
	abdicated *atomic.Uint64 // the term in which this node has left its leadership
}

var _ raft.WithPreVote = notedTransport{}

// AppendEntries implements raft.Transport.
func (t notedTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress,
	args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	// Silence in this term is what makes the others elect a leader.
	if args.Term == t.abdicated.Load() {
		return errAbdicated
	}
	began := time.Now()
	t.contacts.Begin(id)
	defer t.contacts.End(id)
	// asked may be before began: the answer may be that of a request which was sent ahead.
	asked, err := t.eager.appendEntries(id, target, args, resp)
	err = t.peers.ended(id, target, !isHeartbeat(args), err)
	if err == nil && resp.Term == args.Term {
		t.contacts.Note(id, args.Term, asked)
	}
	// A heartbeat proves contact and says nothing of the log; raft sends the next one on its own schedule.
	if isHeartbeat(args) {
		return err
	}
	if err != nil {
		args.Entries = nil // raft reads them again for its next request
	} else if resp.Success {
		t.contacts.Match(id, args.Term, lastEntry(args), time.Now())
	}
	t.retries.ended(id, args.Term, began, err)
	return err
}

// InstallSnapshot implements raft.Transport.
func (t notedTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress,
	args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	began := time.Now()
	t.contacts.Begin(id)
	defer t.contacts.End(id)
	err := t.peers.ended(id, target, true, t.Transport.InstallSnapshot(id, target, args, resp, data))
	if held, ok := data.(io.Closer); ok && err != nil {
		held.Close() // raft opens another for its next request; this one holds files
	}
	t.retries.ended(id, args.Term, began, err)
	return err
}

// RequestVote implements raft.Transport.
func (t notedTransport) RequestVote(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.RequestVoteRequest,
	resp *raft.RequestVoteResponse,
) error {
	return t.peers.ended(id, target, false, t.Transport.RequestVote(id, target, args, resp))
}

// RequestPreVote implements raft.WithPreVote.
func (t notedTransport) RequestPreVote(
	id raft.ServerID,
	target raft.ServerAddress,
	args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse,
) error {
	return t.peers.ended(id, target, false, t.Transport.RequestPreVote(id, target, args, resp))
}

// isHeartbeat reports whether a request has nothing to do with the log.
func isHeartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && len(args.Entries) == 0
}

// retries delays the return of failed requests until another one is worth trying.
//
// Raft pauses after each failed request of a follower's replication, up to 10.24 s once
// many have failed in a row, and nothing ends that pause: a follower that was away would
// get no entries for that long after its return. Heartbeats pause half a heartbeat timeout
// at most, so the first of them that is answered says when to try again.
type retries struct {
	// contact blocks until a request sent after since was answered, or nothing will be
	// sent to the member in that term any more.
	contact func(id raft.ServerID, term uint64, since time.Time)

	mu     sync.Mutex             // guards failed; not held while contact blocks
	failed map[raft.ServerID]bool // whether the newest request to a member failed
}

// ended takes the outcome of a request that began at began. It returns at once after a success and
// after the first failure, when most likely a connection had ended and the next request succeeds. After
// a further failure it blocks until contact returns.
func (r *retries) ended(id raft.ServerID, term uint64, began time.Time, err error) {
	r.mu.Lock()
	again := r.failed[id]
	if r.failed == nil {
		r.failed = make(map[raft.ServerID]bool)
	}
	r.failed[id] = err != nil
	r.mu.Unlock()
	if again && err != nil {
		r.contact(id, term, began)
	}
}
