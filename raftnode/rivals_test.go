package raftnode

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
)

// splits are the SPLIT_BRAIN events of a node's log, with the leaders that they name.
func (s *simulation) splits(n *Node) (list []string) {
	chunk, err := n.machine.Log().Read(1, &event.Matcher{}, 1024)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range chunk.Events {
		var p struct {
			Leaders []string `json:"leaders"`
		}
		if e.Type == event.SplitBrainDetected || e.Type == event.SplitBrainResolved {
			if err := json.Unmarshal(e.Payload, &p); err != nil {
				s.t.Fatal(err)
			}
			list = append(list, string(e.Type))
			list = append(list, p.Leaders...)
		}
	}
	return list
}

// fork makes a stopped node the only voter of a cluster that keeps its id, as a copy of a data
// folder may be.
func (s *simulation) fork(id string) {
	o, err := openOffline(s.config[id].Dir, id, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	members := []fsm.ConfigMember{{ID: id, Addr: s.config[id].RaftBind, Voter: true}}
	raw, err := encodeConfiguration(members)
	last, term, err2 := o.replay(s.t.Context())
	if err = errors.Join(err, err2); err == nil {
		_, err = o.configure(last+1, term, raw, members, o.machine.ClusterID())
	}
	if err = errors.Join(err, o.close()); err != nil {
		s.t.Fatal(err)
	}
}

// A member that leads beside the leader, in whatever term, is reported once, over changes of
// leader, until it leads no more.
func TestTwoLeadersUnderOneClusterIDAreReportedOnce(t *testing.T) {
	inBubble(t, func(s *simulation) {
		t := s.t
		// A leader that is cut off believes for a while that it still leads: that is none.
		deposed := s.leads()
		s.net.cut(hold, s.around(deposed.cfg.ID, true, true)...)
		time.Sleep(10 * time.Second)
		s.net.heal()
		s.settle()
		time.Sleep(10 * time.Second)

		odd := s.follower()
		s.crash(odd)
		s.fork(odd)
		s.net.cut(reset, s.around(odd, true, true)...)
		s.start(odd)
		time.Sleep(10 * time.Second) // it leads, and takes no more from those that are no members
		s.net.heal()
		time.Sleep(20 * time.Second)
		var rest []*Node
		for _, n := range s.running() {
			if n.cfg.ID != odd {
				rest = append(rest, n)
			}
		}
		leading := func() *Node {
			for range 1000 {
				if i := slices.IndexFunc(rest, func(n *Node) bool { return n.proposer.OpenTerm() != 0 }); i >= 0 {
					return rest[i]
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Fatal("nobody leads")
			return nil
		}
		first := leading()
		if s.nodes[odd].proposer.OpenTerm() == 0 {
			t.Fatal("the forked node does not lead")
		}
		detected := append([]string{string(event.SplitBrainDetected)},
			slices.Sorted(slices.Values([]string{first.cfg.ID, odd}))...)
		if got := s.splits(first); !reflect.DeepEqual(got, detected) {
			t.Fatalf("the log has %v, want %v", got, detected)
		}
		if err := first.StepDown(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		next := leading()
		if got := s.splits(next); next == first || !reflect.DeepEqual(got, detected) {
			t.Fatalf("after %s had led, the log of %s has %v, want %v", first.cfg.ID, next.cfg.ID, got, detected)
		}
		if _, err := next.Remove(t.Context(), odd); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		resolved := append(slices.Clone(detected), append([]string{string(event.SplitBrainResolved)}, detected[1:]...)...)
		if got := s.splits(next); !reflect.DeepEqual(got, resolved) || next.machine.Health().Split != nil {
			t.Errorf("the log has %v, want %v", got, resolved)
		}
		s.crash(odd) // the end of the test expects one cluster
	})
}
