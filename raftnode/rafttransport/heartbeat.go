// Raft handles heartbeats beside its main loop, where they race it (hashicorp/raft#695), and answers none while a disk
// holds that loop. Delete this file when raft changes term and leader under one lock, and writes beside its main loop.

package rafttransport

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// overdue is how long a heartbeat waits for raft before it is answered here. It is short
// compared with a lease.
const overdue = 50 * time.Millisecond

// errHeldUp is the error of a request that raft did not take within Timeout.
var errHeldUp = errors.New("raft took no request in time")

// SetHeartbeatHandler does nothing. The fast path it would set up handles heartbeats on
// the connection's goroutine, where it races raft's main loop for term and leader so that
// committed entries can diverge (hashicorp/raft#695).
func (t *Transport) SetHeartbeatHandler(func(raft.RPC)) {}

// heartbeat hands a leader's heartbeat to raft's main loop. While that is held up, most
// often by a disk, the heartbeat is answered in its place: otherwise a disk that pauses for
// half a second ends the leadership, and the election needs the same disk.
//
// The answer changes no state of raft and is as true as raft's own: this node is in the
// leader's term now, so it has granted no vote in a later term until now.
//
// A heartbeat that can be answered in neither way ends with an error after Timeout: its
// sender has stopped waiting by then, and this connection has to notice that it is gone.
func (t *Transport) heartbeat(rpc raft.RPC) {
	began := t.now()
	wait := time.NewTicker(overdue)
	defer wait.Stop()
	for {
		select {
		case t.rpcs <- rpc:
			t.taken.Store(t.now())
			return
		case <-wait.C:
			// Raft took something within HungAfter, so it is held up and not hung.
			req := rpc.Command.(*raft.AppendEntriesRequest)
			if t.now()-t.taken.Load() < int64(t.opts.HungAfter) && t.opts.Follows(string(req.ID), req.Term) {
				rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: t.header(req.RPCHeader), Term: req.Term, Success: true}, nil)
				return
			}
			if t.now()-began > int64(t.opts.Timeout) {
				rpc.Respond(&raft.AppendEntriesResponse{}, errHeldUp)
				return
			}
		case <-t.done:
			return
		}
	}
}

// arriving is a snapshot that raft reads; meanwhile raft takes no other RPC. While bytes
// of it arrive, raft does not count as hung.
type arriving struct {
	io.Reader
	t *Transport
}

func (a arriving) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.t.taken.Store(a.t.now())
	return n, err
}

// now is the time since New in nanoseconds. Changes of the wall clock do not affect it.
func (t *Transport) now() int64 { return int64(time.Since(t.born)) }
