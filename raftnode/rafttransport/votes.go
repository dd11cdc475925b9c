package rafttransport

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// refuseVote answers a vote request in raft's place while this node has no
// configuration, and reports whether it did. Such a node knows neither who may
// stand nor what it acknowledged before its disk was lost.
func (t *Transport) refuseVote(rpc raft.RPC) bool {
	var from raft.RPCHeader
	var answer any
	switch req := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		from, answer = req.RPCHeader, &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		from, answer = req.RPCHeader, &raft.RequestPreVoteResponse{}
	default:
		return false
	}
	if t.opts.Configured() {
		return false
	}
	t.refused.record(&RefusedError{
		Peer:   clean(from.ID),
		Addr:   clean(from.Addr),
		Reason: ErrUnconfigured,
		Detail: fmt.Sprintf("%T", rpc.Command),
	})
	// The text crosses the wire and is all that the candidate sees.
	rpc.Respond(answer, ErrUnconfigured)
	return true
}

// RequestPreVote implements raft.WithPreVote. raft takes an error whose text
// contains "unexpected command" for a granted pre-vote, so a refused peer's words
// and name stay out of it; Refusals has them.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress,
	args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	err := t.NetworkTransport.RequestPreVote(id, target, args, resp)
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return fmt.Errorf("rafttransport: pre-vote of %s: %w", id, refused.Reason)
	}
	return err
}
