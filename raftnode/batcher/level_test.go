package batcher

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/ringrift/ringlog/internal/frame"
)

// aboveBase has a command of each kind that not every member may know.
func aboveBase() []frame.Command {
	return []frame.Command{
		frame.TermStart{Silence: 1}, frame.VoterHealth{}, frame.OutageViews{}, frame.SplitBrain{}, frame.CatchUp{},
		frame.MemberVote{},
		frame.DeadLetter{}, frame.Redrive{}, frame.Purge{}, frame.LetterImport{}, frame.LetterKeep{},
		frame.CursorChange{}, frame.GroupCreate{}, frame.GroupSettle{}, frame.GroupDead{},
		frame.ClientPut{}, frame.ClientPut{Coordinator: "c"}, frame.Pressure{}, frame.ChainOverdue{}, frame.CursorsScanned{},
		frame.LagReport{}, frame.DedupPolicySet{}, frame.FlowPut{}, frame.FlowRemove{},
		frame.RoleAcquire{}, frame.RoleRenew{}, frame.RoleRelease{}, frame.Publish{Lease: frame.RoleLease{Role: "r"}},
		frame.CursorCommit{Lease: frame.RoleLease{Role: "r"}},
		frame.Schedule{}, frame.Unschedule{}, frame.Publish{Scheduled: "s"},
		frame.ResourceSet{}, frame.ResourceRemove{}, frame.AllocationRequest{}, frame.AllocationRenew{},
		frame.AllocationRelease{}, frame.AllocationRenewClaim{},
		frame.GroupSettle{Lease: frame.RoleLease{Role: "r"}}, frame.RoleRenewClaim{},
		frame.GroupDead{Letter: frame.DeadLetter{Lease: frame.RoleLease{Role: "r"}}},
		frame.DeadLetter{Lease: frame.RoleLease{Role: "r"}},
		frame.ViewDefine{}, frame.ViewRemove{}, frame.Publish{Emission: frame.ViewEmission{View: "v"}},
		frame.ViewSkip{ViewEmission: frame.ViewEmission{View: "v"}},
		frame.TokenCreate{}, frame.TokenRotate{}, frame.TokenRevoke{},
		frame.Act{}, frame.Act{Of: frame.Register{}},
	}
}

func TestNoCommandIsProposedBelowItsFeatureLevel(t *testing.T) {
	listed := map[frame.Kind]bool{}
	for _, c := range aboveBase() {
		listed[c.Kind()] = true
		t.Run(fmt.Sprintf("%T", c), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { proposeBelow(t, c) }) })
	}
	for k := range 256 {
		if kind := frame.Kind(k); kind.Level() > frame.LevelBase && !listed[kind] {
			t.Errorf("kind %d of level %d is not in the list of this test", k, kind.Level())
		}
	}
}

// proposeBelow takes each way to propose c at the level below it, then at its own.
func proposeBelow(t *testing.T, c frame.Command) {
	w, p := bench(1 << 20)
	defer p.Close()
	level := c.Kind().Level() - 1
	p.level = func() uint32 { return level }
	leading(w, p, 1)
	_, queued := p.Propose(t.Context(), frame.Request{Command: c})
	for way, err := range map[string]error{
		"propose":  queued,
		"now":      p.ProposeNow(1, c),
		"unqueued": p.ProposeUnqueued(c),
	} {
		if !errors.Is(err, ErrFeatureLevel) {
			t.Errorf("%s at level %d: %v", way, level, err)
		}
	}
	if n := len(w.flying()); n > 0 {
		t.Fatalf("%d entries reached the log", n)
	}

	level++
	done := ask(t.Context(), p, frame.Request{Command: c})
	w.land(len(w.flying()), nil)
	if err := <-done; err != nil {
		t.Errorf("at level %d: %v", level, err)
	}
}
