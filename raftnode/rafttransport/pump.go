// Raft takes requests that it should refuse or change first: ones that begin before its log (hashicorp/raft#205),
// with a commit index that their entries do not prove, or that contradict what is applied. Delete skipApplied when raft
// compares with its snapshot as well as with its log, boundCommit when it bounds the commit index itself, and the
// file with the last of its rows in upstream/README.md; refuseContradicting stays, since it protects from two clusters
// under one id.

package rafttransport

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// arrival is an RPC that raft has not taken yet.
type arrival struct {
	raft.RPC
	at time.Time // when it arrived
}

// carriesEntries reports whether it is a request that brings entries.
func (a arrival) carriesEntries() bool {
	req, ok := a.Command.(*raft.AppendEntriesRequest)
	return ok && len(req.Entries) > 0
}

// retryOverloaded is the interval at which Overloaded is polled while entries wait.
const retryOverloaded = 5 * time.Millisecond

// pump hands incoming RPCs except heartbeats to raft, one at a time as raft takes them. A
// request that raft does not take within Timeout is answered with an error. Its sender has
// stopped waiting and will retry, so keeping it would only use memory. The queue has at most
// one request per connection. pump returns when done is closed.
func (t *Transport) pump() {
	expire := time.NewTicker(t.opts.Timeout / 4)
	defer expire.Stop()
	var queue []arrival
	for {
		// Choose what raft gets next: the oldest request, or while the state machine is
		// overloaded the oldest that brings no entries. take is nil if there is none.
		var take chan<- raft.RPC
		var again <-chan time.Time
		var next arrival
		i := 0
		if len(queue) > 0 && t.opts.Overloaded != nil && t.opts.Overloaded() {
			i = slices.IndexFunc(queue, func(a arrival) bool { return !a.carriesEntries() })
			again = time.After(retryOverloaded)
		}
		if i >= 0 && i < len(queue) {
			take, next = t.rpcs, queue[i]
			t.skipApplied(next.RPC) // judged by the index applied at this moment
		}

		select {
		case rpc := <-t.NetworkTransport.Consumer():
			if t.refuseVote(rpc) || t.refuseContradicting(rpc) || t.discardOldSnapshot(rpc) {
				continue
			}
			t.judgeAsVoter(rpc)
			boundCommit(rpc)
			if rpc.Reader != nil {
				rpc.Reader = arriving{rpc.Reader, t}
			}
			queue = append(queue, arrival{rpc, time.Now()})
		case take <- next.RPC:
			t.taken.Store(t.now())
			queue = slices.Delete(queue, i, i+1)
		case now := <-expire.C:
			// A snapshot stays: its unread bytes would be taken for the connection's next request.
			queue = slices.DeleteFunc(queue, func(a arrival) bool {
				late := now.Sub(a.at) >= t.opts.Timeout && a.Reader == nil
				if late {
					a.Respond(nil, errHeldUp)
				}
				return late
			})
		case <-again:
		case <-t.done:
			return
		}
	}
}

// skipApplied removes from a request what this node's state covers: an applied entry is
// committed, so a leader of any later term has the same one there. Raft compares with its
// log instead. It refuses a request that begins before the log does, and the leader then
// steps back through its own log to the first entry and never leaves it
// (hashicorp/raft#205). It also compares with a log that a snapshot has replaced, fails, and
// gets the same snapshot again and again. Raft accepts a request without a previous entry
// without any comparison, so the request is turned into one without a previous entry.
func (t *Transport) skipApplied(rpc raft.RPC) {
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok || (req.PrevLogEntry == 0 && len(req.Entries) == 0) { // a probe says nothing of the log
		return
	}
	applied, covered := t.opts.Covers(req.PrevLogEntry)
	if !covered {
		return
	}
	// fresh is the position of the first entry that is not applied yet.
	fresh, _ := slices.BinarySearchFunc(req.Entries, applied+1, func(l *raft.Log, index uint64) int {
		return cmp.Compare(l.Index, index)
	})
	req.PrevLogEntry, req.PrevLogTerm, req.Entries = 0, 0, req.Entries[fresh:]
}

// errContradicts refuses a request with another entry than the one this node has applied.
var errContradicts = errors.New("this node has applied another entry there")

// refuseContradicting refuses a request that differs from what this node has applied, judged by the
// newest of its entries that this node has applied. That cannot happen while all members are
// of one cluster and none has lost entries; if it does, this node must not acknowledge
// entries that it does not have.
func (t *Transport) refuseContradicting(rpc raft.RPC) bool {
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok {
		return false
	}
	applied, _ := t.opts.Covers(req.PrevLogEntry)
	if req.PrevLogEntry > applied { // nearly always: there is nothing to compare
		return false
	}
	index, term := req.PrevLogEntry, req.PrevLogTerm
	for _, l := range req.Entries {
		if l.Index > applied {
			break
		}
		index, term = l.Index, l.Term
	}
	if index == 0 || !t.contradicts(req.Term, index, term) {
		return false
	}
	rpc.Respond(nil, errContradicts)
	return true
}

// contradicts is Options.Contradicts, false if that is nil.
func (t *Transport) contradicts(leaderTerm, index, term uint64) bool {
	return t.opts.Contradicts != nil && t.opts.Contradicts(leaderTerm, index, term)
}

// discardOldSnapshot answers a snapshot in raft's place if this node's state has reached it: raft would
// install it, revert the state and drop entries that this node has acknowledged. A leader
// sends such a snapshot again if it got no answer, and so does the replication to a removed
// member in its last attempt. A snapshot of a leader that raft does not follow yet goes to raft.
func (t *Transport) discardOldSnapshot(rpc raft.RPC) bool {
	req, ok := rpc.Command.(*raft.InstallSnapshotRequest)
	if !ok || req.LastLogIndex == 0 || t.opts.Follows == nil {
		return false
	}
	applied, _ := t.opts.Covers(req.LastLogIndex)
	if applied < req.LastLogIndex || !t.opts.Follows(string(req.ID), req.Term) {
		return false
	}
	other := t.contradicts(req.Term, req.LastLogIndex, req.LastLogTerm)
	// Reading the snapshot may take long, and pump must not wait for it.
	t.pumping.Go(func() {
		_, err := io.Copy(io.Discard, rpc.Reader) // the connection's next request follows it
		if other {
			err = errContradicts
		}
		resp := &raft.InstallSnapshotResponse{RPCHeader: t.header(req.RPCHeader), Term: req.Term, Success: err == nil}
		rpc.Respond(resp, err)
	})
	return true
}

// header returns the header of an answer that is sent in raft's place.
func (t *Transport) header(of raft.RPCHeader) raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: of.ProtocolVersion, ID: []byte(t.nodeID), Addr: []byte(t.LocalAddr())}
}

// boundCommit limits a leader's commit index to what its request has proven to be the
// same on both sides: the entry before the first, and those it brings. Raft applies it as
// far as the follower's log reaches. A request may be built from fewer entries than its commit
// index covers, if the leader appended in between: a deposed leader would then apply its own
// entry at an index where the cluster has committed another. The next request
// brings the commit index that is held back here.
func boundCommit(rpc raft.RPC) {
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok {
		return
	}
	proven := req.PrevLogEntry
	if n := len(req.Entries); n > 0 {
		proven = req.Entries[n-1].Index
	}
	req.LeaderCommitIndex = min(req.LeaderCommitIndex, proven)
}
