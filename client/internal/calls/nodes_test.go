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
	if got := s.pick(nil, false, false); got != b {
		t.Errorf("first %v, a has just failed", got)
	}
	if got := s.pick([]*Node{b, c}, true, false); got != nil {
		t.Errorf("after two answers %v, which has just failed", got)
	}
	if got := s.pick([]*Node{b, c}, false, false); got != a {
		t.Errorf("%v while nobody answered", got)
	}
	a.avoid = time.Now().Add(-time.Millisecond)
	if got := s.pick([]*Node{b, c}, true, false); got != a {
		t.Errorf("%v long after a failed", got)
	}
}

// What any node serves goes to the leader last, and to each of the others from some clients.
func TestTheLeaderIsAskedLastForWhatOthersServe(t *testing.T) {
	first := map[string]bool{}
	for range 200 {
		s := newNodes([]string{"a:1", "b:1", "c:1"}, func(url string) *Node { return &Node{URL: url} })
		a, b, c := s.all[0], s.all[1], s.all[2]
		s.worked(a, "")
		s.worked(b, "http://b:1")
		n := s.pick(nil, false, true)
		first[n.URL] = true
		if last := s.pick([]*Node{a, c}, false, true); last != b {
			t.Fatalf("the last is %v", last)
		}
		s.failed(a)
		if got := s.pick(nil, false, true); got != c {
			t.Fatalf("a has failed, b leads: %v", got)
		}
		s.worked(c, "http://c:1")
		s.worked(b, "http://c:1")
		if got := s.pick([]*Node{a}, false, true); got != b {
			t.Fatalf("a has failed, c leads: %v", got)
		}
	}
	if len(first) != 2 || first["http://b:1"] {
		t.Errorf("the first are %v, b leads", first)
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
