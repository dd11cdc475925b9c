package raftnode

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/statestore"
)

func TestANonVoterIsNotHandedOverTo(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	c.joins("n4", func(cfg *Config) { cfg.NonVoter = true })
	leader := c.leader()
	eventually(t, "n4 is listed", func() bool { _, listed := leader.roster.Server("n4"); return listed })
	if err := leader.StepDown(t.Context(), "n4"); !errors.Is(err, ErrNotVoter) {
		t.Errorf("to a non-voter: %v", err)
	}
	publish(t, leader, 1)
	c.requireLeaderEvents(0, 0)
}

func TestAHandOverThatFailsIsTakenBack(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	leader := c.leader()
	deaf := c.followers()[0]
	publish(t, leader, 1)
	c.settle()
	deaf.transport.Close()
	if err := leader.StepDown(t.Context(), deaf.cfg.ID); err == nil {
		t.Fatal("handed over to a node that raft cannot reach")
	}
	if err := leader.StepDown(t.Context(), "nobody"); !errors.Is(err, ErrUnknownMember) || errors.Is(err, ErrNoTarget) {
		t.Errorf("to nobody: %v", err)
	}
	publish(t, leader, 2)
	if l := leader.machine.Leadership(); l.Intent != nil || l.Leader != leader.cfg.ID {
		t.Errorf("the intent stands: %+v", l)
	}
	c.crash(deaf.cfg.ID)
	c.start(deaf.cfg.ID)
	c.leader()
	c.crash(leader.cfg.ID)
	c.requireLeaderEvents(0, 1)
}

func TestAClusterThatSleptStepsItsTimeForwardAndRecordsIt(t *testing.T) {
	t.Parallel()
	c := newCluster(t, nil)
	cfg := c.member("n1")
	c.config["n1"] = cfg
	o := c.offlineOf("n1")
	conf := raft.Configuration{Servers: []raft.Server{{ID: "n1", Address: raft.ServerAddress(cfg.RaftBind)}}}
	var b frame.Builder
	b.Add(frame.TermStart{ClusterID: "c"}, nil)
	first := numbered(1)
	b.Add(first.Command, first.Batch)
	list := []*raft.Log{
		{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(conf)},
		{Index: 3, Term: 2, Type: raft.LogCommand, Data: b.Encode(frame.Seal{Time: noon, Proposer: "n1"})},
	}
	err := o.dir.SetCluster("c", nil)
	for _, l := range list {
		_, applyErr := statestore.ApplyEntry(o.machine, l)
		err = errors.Join(err, applyErr)
	}
	err = errors.Join(err, o.stores.Stable().SetUint64([]byte(statestore.KeyInstalled), o.machine.Applied()),
		o.stores.Stable().SetUint64([]byte(keyCurrentTerm), 2), o.close())
	if err != nil {
		t.Fatal(err)
	}
	n := c.start("n1")
	c.leader()
	step := n.machine.LastClockStep()
	if step == nil || step.From.Sub(noon) > time.Minute || time.Since(step.To).Abs() > time.Minute ||
		!slices.Equal(step.Agreed, []string{"n1"}) {
		t.Fatalf("step %+v", step)
	}
	r := publish(t, n, 7)
	if time.Since(r.Time).Abs() > time.Minute {
		t.Errorf("an event of now has the time %v", r.Time)
	}
}

func TestClosingDoesNotWaitForANodeThatCatchesUp(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	leader := c.leader()
	never := frame.Member{ID: "n9", RaftAddr: "127.0.0.1:1", HTTPAddr: "n9", Incarnation: "i9",
		FeatureLevel: fsm.FeatureLevel}
	added := make(chan error, 1)
	go func() {
		_, err := leader.AddMember(context.Background(), never, MemberOptions{Voter: true})
		added <- err
	}()
	eventually(t, "n9 is listed", func() bool { _, listed := leader.roster.Server("n9"); return listed })
	c.stop(leader.cfg.ID)
	if err := <-added; err == nil {
		t.Error("a node that never answered was added")
	}
	c.requireLeaderEvents(1, 0)
}

func TestClosingIsIdempotentAndRefusesWhatComesAfter(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	n := c.leader()
	c.stop("n1")
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := n.Propose(ctx, frame.Request{Command: frame.Tick{}})
	if !errors.Is(err, ErrClosed) {
		t.Errorf("propose: %v", err)
	}
	if err := n.ReadBarrier(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read barrier: %v", err)
	}
}
