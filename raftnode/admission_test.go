package raftnode

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/internal/testaddr"
	"github.com/ringrift/ringlog/raftnode/rafttransport"
)

// replace gives a member a new data folder, as docs/operations.md says.
func (c *cluster) replace(id string) *Node {
	c.t.Helper()
	c.crash(id)
	eventually(c.t, id+" is removed", func() bool {
		_, err := c.leader().Remove(c.t.Context(), id)
		return err == nil || errors.Is(err, ErrUnknownMember)
	})
	if err := os.RemoveAll(c.config[id].Dir); err != nil {
		c.t.Fatal(err)
	}
	n := c.start(id)
	eventually(c.t, id+" has a vote again", func() bool {
		return slices.Contains(c.leader().roster.Voters(), id) && slices.Contains(n.roster.Voters(), id)
	})
	return n
}

// A joiner replays entries of a time when other data folders bore the names of its peers:
// in the end nobody is left whom those entries know.
func TestAClusterOutlivesTheReplacementOfAllItsVoters(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	for i := range 200 {
		publish(t, c.leader(), i)
	}
	for i, id := range []string{"n1", "n3", "n2"} {
		c.replace(id)
		publish(t, c.leader(), 100+i)
	}
	n4 := c.joins("n4", nil)
	eventually(t, "n4 has a vote", func() bool { return slices.Contains(n4.roster.Voters(), "n4") })
	if first, err := c.leader().stores.Log().FirstIndex(); err != nil || first != 1 {
		t.Fatalf("the leader's log begins at %d (%v): the joiners got a snapshot", first, err)
	}
	c.settle()
	if err := c.leader().StepDown(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	publish(t, c.leader(), 200)
	c.settle()
}

// The data folder that a member had before it was replaced is started again: it names the
// cluster and its node is in everybody's configuration, but its vote would be a second one.
func TestAReplacedDataFolderGetsNoVote(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	publish(t, c.leader(), 1)
	old := c.followers()[0].cfg.ID
	oldDir := c.config[old].Dir + "-replaced"
	c.crash(old)
	if err := os.Rename(c.config[old].Dir, oldDir); err != nil {
		t.Fatal(err)
	}
	c.start(old)
	c.remove(old)
	eventually(t, "its new folder has a vote", func() bool { return slices.Contains(c.leader().roster.Voters(), old) })
	c.settle()
	cfg := c.config[old]
	cfg.Dir, cfg.RaftBind, cfg.HTTPAdvertise, cfg.Join = oldDir, testaddr.Free(t), "ghost", nil
	ghost, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer ghost.release()
	follower := c.followers()[0]
	if follower.cfg.ID == old {
		follower = c.followers()[1]
	}
	refused := func(r rafttransport.Refusal) bool {
		return r.Peer == old && !r.ByPeer && (r.Reason == "removed" || r.Reason == "other_incarnation")
	}
	eventually(t, "a follower refuses its vote", func() bool {
		return slices.ContainsFunc(follower.transport.Refusals(), refused)
	})
	term := c.leader().raft.Load().CurrentTerm()
	var resp raft.RequestVoteResponse
	err = ghost.transport.RequestVote(raft.ServerID(follower.cfg.ID), raft.ServerAddress(follower.roster.Address()),
		&raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: 3, ID: []byte(old), Addr: []byte(ghost.roster.Address())},
			Term:      term + 1, LastLogIndex: 1 << 40, LastLogTerm: term, LeadershipTransfer: true}, &resp)
	if err == nil || resp.Granted || follower.raft.Load().CurrentTerm() != term {
		t.Errorf("it was given a vote: %+v, %v", resp, err)
	}
	publish(t, c.leader(), 2)
	c.settle()
}
