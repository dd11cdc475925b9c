package calls

import (
	"testing"
	"time"
)

// Where a node answers, nobody waits for one that does not; where none does, all are
// asked, and again in the next round.
func TestANodeThatFailedIsNotAskedBesideOnesThatAnswer(t *testing.T) {
	s := newNodes([]string{"a:1", "b:1", "c:1"}, func(url string) *Node { return &Node{URL: url} })
	a, b, c := s.all[0], s.all[1], s.all[2]
	s.failed(a)
	if got := s.pick(nil, false); got != b {
		t.Errorf("first %v, a has just failed", got)
	}
	if got := s.pick([]*Node{b, c}, true); got != nil {
		t.Errorf("after two answers %v, which has just failed", got)
	}
	if got := s.pick([]*Node{b, c}, false); got != a {
		t.Errorf("%v while nobody answered", got)
	}
	a.avoid = time.Now().Add(-time.Millisecond)
	if got := s.pick([]*Node{b, c}, true); got != a {
		t.Errorf("%v long after a failed", got)
	}
}

// A caller without a leader is not without one for much longer than the cluster.
func TestPausesAreAShareOfTheWait(t *testing.T) {
	for range 100 {
		pauses := NewPauses()
		waited, rounds := time.Duration(0), 0
		for waited < 30*time.Second {
			pause := pauses.NextBackOff()
			if limit := 30*time.Millisecond + waited*3/10; pause > limit {
				t.Fatalf("a pause of %s after %s", pause, waited)
			}
			waited += pause
			rounds++
		}
		if rounds > 120 {
			t.Fatalf("%d rounds in half a minute", rounds)
		}
	}
}
