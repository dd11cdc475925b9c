package health

import (
	"testing"
	"time"

	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/raftnode/roster"
)

// A node stops serving if a leader lacks what it had applied, and not for a report of a leader
// that was asked before, or of an earlier term.
func TestALeaderThatLacksWhatWasAppliedIsAContradiction(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	moments := []moment{{at(0), 3, 10}, {at(2), 3, 20}, {at(4), 4, 30}}
	for _, test := range []struct {
		name   string
		asked  int
		report Report
		want   bool
	}{
		{"it has all", 5, Report{Role: roster.RoleLeader, Term: 4, LastIndex: 30}, false},
		{"it lacks one", 5, Report{Role: roster.RoleLeader, Term: 4, LastIndex: 29}, true},
		{"it was asked before that was applied", 3, Report{Role: roster.RoleLeader, Term: 4, LastIndex: 29}, false},
		{"it lacked one of those before", 3, Report{Role: roster.RoleLeader, Term: 4, LastIndex: 19}, true},
		{"it is deposed and does not know", 5, Report{Role: roster.RoleLeader, Term: 3, LastIndex: 20}, false},
		{"it was asked at the same reading of the clock", 4, Report{Role: roster.RoleLeader, Term: 4, LastIndex: 29}, false},
		{"it follows", 5, Report{Role: roster.RoleFollower, Term: 4, LastIndex: 20}, false},
		{"it was asked before anything is known", -1, Report{Role: roster.RoleLeader, Term: 4, LastIndex: 1}, false},
	} {
		if got := ahead(moments, at(test.asked), test.report); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestADigestIsComparedWhereBothSidesKnowOne(t *testing.T) {
	d := func(index uint64, sum byte) IndexDigest { return IndexDigest{index, fsm.Sum{sum}} }
	own := func(index uint64) (sum fsm.Sum, known bool) {
		sums := map[uint64]byte{64: 1, 128: 2, 130: 3}
		return fsm.Sum{sums[index]}, sums[index] != 0
	}
	for _, test := range []struct {
		name  string
		other []IndexDigest
		want  bool
	}{
		{"the same at the newest that both have", []IndexDigest{d(64, 9), d(128, 2), d(140, 9)}, false},
		{"another there", []IndexDigest{d(64, 1), d(128, 7)}, true},
		{"nothing to compare", []IndexDigest{d(192, 5)}, false},
		{"nothing at all", nil, false},
	} {
		if got := Differs(own, test.other); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
