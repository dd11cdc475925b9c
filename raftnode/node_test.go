package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
)

func TestNodesFormOneClusterThatReplicatesFromAnyOfThem(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	var last uint64
	for i, n := range c.all() {
		r := publish(t, n, i)
		if r.First <= last {
			t.Errorf("acknowledged later, yet its offset %d is not above %d", r.First, last)
		}
		last = r.First
	}
	c.settle()
	id := c.leader().machine.ClusterID()
	for _, n := range c.all() {
		if n.machine.ClusterID() != id || n.dir.Marker().ClusterID != id || len(n.machine.Members()) != 3 {
			t.Errorf("%s: cluster %q, marker %q, members %v", n.cfg.ID, n.machine.ClusterID(), n.dir.Marker().ClusterID,
				n.machine.Members())
		}
	}
}

func TestConcurrentCallersShareEntriesAndEachGetsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	leader := c.leader()
	before := leader.raft.Load().LastIndex()
	const callers, each = 32, 30
	offsets := make([]uint64, callers*each)
	var work sync.WaitGroup
	for caller := range callers {
		work.Go(func() {
			for i := range each {
				n := caller*each + i
				offsets[n] = publish(t, leader, n).First
			}
		})
	}
	work.Wait()
	c.settle() // another may lead by now
	if entries := leader.raft.Load().LastIndex() - before; entries > callers*each/3 {
		t.Errorf("%d entries for %d requests of %d callers", entries, callers*each, callers)
	}
	c.settle() // another may have come to lead
	for n, offset := range offsets {
		e, err := leader.machine.Log().Get(offset)
		if err != nil || string(e.Payload) != fmt.Sprintf(`{"n": %d}`, n) {
			t.Fatalf("request %d was answered offset %d, which holds %s (%v)", n, offset, e.Payload, err)
		}
	}
	slices.Sort(offsets)
	if unique := slices.Compact(slices.Clone(offsets)); len(unique) != len(offsets) {
		t.Error("two requests were answered one offset")
	}
}

func TestARefusalIsTheErrorHereAndThroughAFollower(t *testing.T) {
	votersInBubble(t, 3, nil, func(t testing.TB, c *cluster) {
		for _, n := range c.all() {
			var refusal *fsm.Refusal
			publish(t, n, 1) // there is a leader
			_, err := n.Propose(t.Context(), frame.Request{Command: frame.CursorOpen{Name: "nobody"}})
			if !errors.As(err, &refusal) || refusal.Code != fsm.NotFound {
				t.Errorf("%s: %v", n.cfg.ID, err)
			}
			_, err = n.Propose(t.Context(), frame.Request{Command: frame.Register{Definitions: make([]byte, 64<<20)}})
			if !errors.Is(err, ErrTooLarge) {
				t.Errorf("%s, given 64 MiB of definitions: %v", n.cfg.ID, err)
			}
			refuseWhatNobodyCouldRead(t, n)
			publish(t, n, 1)
		}
	})
}

// refuseWhatNobodyCouldRead proposes what an encoder writes and a decoder refuses:
// committed, it would stop every node for good.
func refuseWhatNobodyCouldRead(t testing.TB, n *Node) {
	t.Helper()
	long := strings.Repeat("x", 70_000)
	for _, c := range []frame.Command{frame.SettingSet{Key: "dedup.window", Value: long}, frame.SettingSet{Key: long},
		frame.CursorOpen{Name: long}, frame.MemberPut{Member: frame.Member{ID: "n9", Version: long}}} {
		if _, err := n.Propose(t.Context(), frame.Request{Command: c}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s, given a %T with a string of 70 kB: %v", n.cfg.ID, c, err)
		}
	}
}

func TestALeaderThatStepsDownOrIsLostIsToldApart(t *testing.T) {
	votersInBubble(t, 3, nil, func(t testing.TB, c *cluster) {
		first := c.leader()
		if err := first.StepDown(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another leader", func() bool { return first.proposer.OpenTerm() == 0 && c.leader() != first })
		second := c.leader()
		c.stop(second.cfg.ID)
		third := c.leader()
		c.crash(third.cfg.ID)
		c.start(second.cfg.ID)
		last := c.leader()
		publish(t, last, 1)
		c.settle()
		c.requireLeaderEvents(2, 1)
	})
}

func TestTheTermStartIsFirstInItsTermAndElectsOnce(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for _, n := range c.all() {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				_, _ = n.Propose(ctx, publishing(fmt.Sprintf(`{"from": "%s", "n": %d}`, n.cfg.ID, i)))
			}
		})
	}
	for range 6 {
		var err error
		eventually(t, "a voter takes over", func() bool { // on a busy machine voters miss pings
			err = c.leader().StepDown(t.Context(), "")
			return err == nil || errors.Is(err, ErrNotLeader)
		})
	}
	stop()
	writing.Wait()
	c.settle()
	starts, elected := c.firstOfEachTerm(), 0
	for term, first := range starts {
		if first != frame.KindTermStart && first != frame.KindTermStartWithSilence {
			t.Errorf("the first entry of term %d is of kind %d, not the term start", term, first)
		}
	}
	for _, kind := range leaderEvents(t, c.leader()) {
		if kind == "LEADER_ELECTED" {
			elected++
		}
	}
	if elected != len(starts) || elected < 4 {
		t.Errorf("%d times LEADER_ELECTED in %d terms", elected, len(starts))
	}
}

// firstOfEachTerm reads the leader's raft log: the first command of each term.
func (c *cluster) firstOfEachTerm() map[uint64]frame.Kind {
	kinds := map[uint64]frame.Kind{}
	log := c.leader().stores.Log()
	first, err1 := log.FirstIndex()
	last, err2 := log.LastIndex()
	for index := first; index <= last; index++ {
		var l raft.Log
		if err := errors.Join(err1, err2, log.GetLog(index, &l)); err != nil {
			c.t.Fatal(err)
		}
		if _, seen := kinds[l.Term]; seen || l.Type != raft.LogCommand {
			continue
		}
		f, err := frame.Decode(l.Data)
		if err != nil {
			c.t.Fatal(err)
		}
		kinds[l.Term] = f.Commands[0].Kind()
	}
	return kinds
}

func TestAcknowledgedEventsSurviveTheCrashOfAMinorityAndThenOfAll(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	acknowledged := map[uint64]int{}
	for i := range 60 {
		if i == 20 {
			c.crash(c.leader().cfg.ID)
			c.leader()
		}
		acknowledged[publish(t, c.leader(), i).First] = i
	}
	for _, n := range c.all() {
		c.crash(n.cfg.ID)
	}
	for id := range c.config {
		c.start(id)
	}
	c.leader()
	c.settle()
	for _, n := range c.all() {
		for offset, i := range acknowledged {
			if e, err := n.machine.Log().Get(offset); err != nil || string(e.Payload) != fmt.Sprintf(`{"n": %d}`, i) {
				t.Fatalf("%s: event %d, acknowledged at %d: %s, %v", n.cfg.ID, i, offset, e.Payload, err)
			}
		}
	}
}

func TestAFollowerBehindTheLogCatchesUpFromASnapshot(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, func(cfg *Config) { cfg.Timing.TrailingLogs = 1 })
	late := c.followers()[0].cfg.ID
	publish(t, c.leader(), 0)
	c.crash(late)
	for i := range 50 {
		publish(t, c.leader(), i+1)
	}
	for _, n := range c.all() {
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		if first, err := n.stores.Log().FirstIndex(); err != nil || first < 30 {
			t.Fatalf("%s: the log still begins at %d (%v)", n.cfg.ID, first, err)
		}
	}
	n := c.start(late)
	c.settle()
	eventually(t, "the state came by a snapshot", func() bool { return n.snapshots.Durable() >= 30 })
	// What came by a snapshot survives a restart, with a log that begins after it.
	publish(t, c.leader(), 100)
	c.settle()
	c.crash(late)
	c.start(late)
	publish(t, c.leader(), 101)
	c.settle()
	if got, want := leaderEvents(t, c.nodes[late]), leaderEvents(t, c.leader()); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestAReadBarrierShowsWhatWasAcknowledgedAnywhere(t *testing.T) {
	for _, nonVoter := range []bool{false, true} {
		t.Run(fmt.Sprintf("with a non-voter %v", nonVoter), func(t *testing.T) {
			votersInBubble(t, 3, nil, func(t testing.TB, c *cluster) {
				if nonVoter {
					c.joins("n4", func(cfg *Config) { cfg.NonVoter = true })
					eventually(t, "the non-voter", func() bool {
						return c.nodes["n4"].roster.Role() == RoleNonVoter && c.nodes["n4"].machine.Applied() > 0
					})
				}
				for i := range 30 {
					all := c.all()
					writer, reader := all[i%len(all)], all[(i+1)%len(all)]
					offset := publish(t, writer, i).First
					if err := reader.ReadBarrier(t.Context()); err != nil {
						t.Fatal(err)
					}
					if _, last := reader.machine.Log().Bounds(); last < offset {
						t.Fatalf("%s shows %d after its barrier, %d was acknowledged at %s before", reader.cfg.ID, last, offset,
							writer.cfg.ID)
					}
				}
			})
		})
	}
}

func TestWithoutAQuorumNothingIsAcknowledgedAndNobodyReadsLinearizably(t *testing.T) {
	t.Parallel()
	c := voters(t, 3, nil)
	leader := c.leader()
	for _, n := range c.followers() {
		c.crash(n.cfg.ID)
	}
	_, last := leader.machine.Log().Bounds()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := leader.ReadBarrier(ctx); err == nil { // while it still takes itself for the leader
		t.Errorf("a read was called linearizable: %+v", leader.Status())
	}
	if r, err := leader.Propose(ctx, numbered(1)); err == nil {
		t.Errorf("acknowledged at %d", r.First)
	}
	eventually(t, "the survivor says that there is no quorum", func() bool {
		_, err := leader.Propose(ctx, numbered(2))
		return errors.Is(err, ErrNoQuorum) && leader.Status().Quorum.Margin == -1
	})
	if _, now := leader.machine.Log().Bounds(); now != last {
		t.Errorf("the log grew from %d to %d", last, now)
	}
}

func TestALoneNodeIsAClusterAndRestartsAsOne(t *testing.T) {
	t.Parallel()
	c := voters(t, 1, nil)
	n := c.leader()
	id := n.machine.ClusterID()
	publish(t, n, 1)
	c.config["n1"] = func() Config { cfg := c.config["n1"]; cfg.Join, cfg.Peers = nil, nil; return cfg }()
	c.stop("n1")
	c.start("n1")
	again := c.leader()
	if publish(t, again, 1); again.machine.ClusterID() != id {
		t.Error("another cluster id after the restart")
	}
	c.requireLeaderEvents(1, 0)
}
