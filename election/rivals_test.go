package election

import (
	"slices"
	"testing"
	"time"
)

// A leader of term 5 hears what another member says of its leadership, once a second. A majority
// confirmed the leader's own term that long before each answer.
func TestTwoLeadersAreASplitOnceMajoritiesProveBoth(t *testing.T) {
	const never = time.Duration(-1)
	for _, test := range []struct {
		name      string
		term      uint64        // in which the other leads
		confirmed time.Duration // when a majority was in the other's term, before each report
		own       time.Duration // when a majority was in this leader's, before each look
		reports   int
		proved    bool
	}{
		{"of a later term, both are confirmed", 6, 0, 0, 3, true},
		{"of an earlier term, both are confirmed", 4, 0, 0, 3, true},
		{"of the same term", 5, 0, 0, 3, true},
		{"too few reports", 6, 0, 0, 2, false},
		{"deposed: no majority has confirmed the own term since", 6, 0, time.Minute, 100, false},
		{"deposed and not aware of it: its majority was before the own", 4, time.Minute, 0, 50, false},
		{"it has no majority", 6, never, 0, 100, false},
		{"this leader has none", 4, 0, never, 100, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r Rivals
			now := time.Unix(1000, 0)
			before := func(at time.Time, age time.Duration) time.Time {
				if age == never {
					return time.Time{}
				}
				return at.Add(-age)
			}
			r.See(5, before(now, test.own), now, Claim{Member: "n3", Asked: now})
			earlier := test.own
			if earlier == 0 {
				earlier = time.Second
			}
			for range test.reports {
				asked := now.Add(time.Second)
				now = asked.Add(20 * time.Millisecond)
				answered := asked.Add(10 * time.Millisecond)
				c := Claim{
					Member:    "n2",
					Term:      test.term,
					Confirmed: before(asked, test.confirmed),
					Asked:     asked,
					Answered:  answered,
				}

				// First the own majority has not answered since; then a report counts once, however often it
				// is looked at.
				r.See(5, before(asked, earlier), answered, c)
				for range 3 {
					r.See(5, before(now, test.own), now, c)
				}
			}
			if got := slices.Contains(r.Proved(), "n2"); got != test.proved || slices.Contains(r.Proved(), "n3") {
				t.Errorf("rivals: %v", r.Proved())
			}
		})
	}
}

func TestASplitEndsOnceTheOtherLeadsNoMore(t *testing.T) {
	var r Rivals
	now := time.Unix(1000, 0)
	see := func(term uint64) {
		now = now.Add(time.Second)
		r.See(5, now, now, Claim{
			Member:    "n2",
			Term:      term,
			Confirmed: now.Add(-time.Second),
			Asked:     now.Add(-time.Second),
			Answered:  now.Add(-time.Millisecond),
		})
	}
	for range 3 {
		see(6)
	}
	for i := range 3 {
		if r.Yielded("n2") || (i > 0 && len(r.Proved()) > 0) {
			t.Errorf("after %d reports: yielded %v, rivals %v", i, r.Yielded("n2"), r.Proved())
		}
		see(0)
	}
	if !r.Yielded("n2") || r.Yielded("n3") {
		t.Errorf("n2 has yielded: %v, n3: %v", r.Yielded("n2"), r.Yielded("n3"))
	}
	see(6) // it leads again
	if r.Yielded("n2") {
		t.Error("it leads and has yielded")
	}
}
