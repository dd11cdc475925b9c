package rafttransport

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// refuseVote answers a vote request in raft's place if this node has no
// configuration, or if membership does not admit the candidate. It reports whether
// it did. Without a configuration a node knows neither who may campaign nor what it
// acknowledged before its disk was lost.
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
	reason := t.noVote(string(from.ID))
	if reason == nil {
		return false
	}
	t.refused.record(&RefusedError{
		Peer:   clean(from.ID),
		Addr:   clean(from.Addr),
		Reason: reason,
		Detail: fmt.Sprintf("%T", rpc.Command),
	})
	// The text crosses the wire and is all that the candidate sees.
	rpc.Respond(answer, reason)
	return true
}

// judgeAsVoter makes raft judge a vote request by the candidate's term and log alone if this
// node's newest configuration lists the candidate, but not as a voter yet. Raft servers answer
// requests without consulting their configuration (Ongaro, section 4.1); hashicorp/raft does not:
// a voter whose promotion had only reached the leader, which then failed, would never be elected,
// and neither would the others, whose logs end before it. Delete this function when raft
// answers without asking its configuration.
func (t *Transport) judgeAsVoter(rpc raft.RPC) {
	if t.opts.VoteAs == nil {
		return
	}
	var header *raft.RPCHeader
	switch req := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		header = &req.RPCHeader
	case *raft.RequestPreVoteRequest:
		header = &req.RPCHeader
	default:
		return
	}
	if as := t.opts.VoteAs(string(header.ID)); as != "" {
		header.ID = []byte(as) // raft looks the id up and uses it for nothing else
	}
}

// noVote is the sentinel that says why a candidate gets no vote; nil leaves the decision to raft.
func (t *Transport) noVote(candidate string) error {
	if !t.opts.Configured() {
		return ErrUnconfigured
	}
	for _, peer := range t.stream.conns.heard(candidate) {
		if err := t.opts.Admit(peer); err != nil { // it may have been admitted since
			return sentinelOf(err)
		}
	}
	return nil
}

// RequestPreVote implements raft.WithPreVote. raft takes an error whose text
// contains "unexpected command" for a granted pre-vote, so the name and the text of
// the refusing peer stay out of it; Refusals has them. Delete this function when raft
// compares errors and not texts.
func (t *Transport) RequestPreVote(id raft.ServerID, target raft.ServerAddress,
	args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	err := t.fresh(func() error { return t.NetworkTransport.RequestPreVote(id, target, args, resp) })
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return fmt.Errorf("pre-vote of %s: %w", id, refused.Reason)
	}
	return err
}
