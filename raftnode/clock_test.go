package raftnode

import (
	"slices"
	"testing"
	"time"
)

// hands are two clocks that a test moves.
type hands struct{ reading }

func (h *hands) read() reading { return h.reading }

// pass lets time go by on both clocks, the wall clock off by drift.
func (h *hands) pass(d, drift time.Duration) {
	h.mono += d
	h.wall = h.wall.Add(d + drift)
}

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func TestReplicatedTimeFollowsTheMonotonicClockAndSlewsTowardsTheWall(t *testing.T) {
	for _, test := range []struct {
		name  string
		known time.Time     // newest replicated time
		drift time.Duration // of the wall clock, during ten seconds
		want  time.Time
	}{
		{"an empty log takes the wall clock", time.Time{}, 0, noon.Add(10 * time.Second)},
		{"clocks that agree", noon, 0, noon.Add(10 * time.Second)},
		{"a wall clock a little ahead is reached", noon, 500 * time.Millisecond, noon.Add(10500 * time.Millisecond)},
		{"one far ahead is approached by a tenth", noon, time.Hour, noon.Add(11 * time.Second)},
		{"one far behind slows time by a tenth", noon, -time.Hour, noon.Add(9 * time.Second)},
		{"replicated time an hour ahead is never turned back", noon.Add(time.Hour), 0, noon.Add(time.Hour + 9*time.Second)},
		{"replicated time a day behind does not jump", noon.Add(-24 * time.Hour), 0, noon.Add(-24*time.Hour + 11*time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &hands{reading{wall: noon}}
			c := newClock(h.read)
			c.reset(test.known)
			h.pass(10*time.Second, test.drift)
			if got := c.stamp(); !got.Equal(test.want) {
				t.Errorf("stamp is %v, want %v", got, test.want)
			}
		})
	}
}

func TestStampsNeverFall(t *testing.T) {
	h := &hands{reading{wall: noon}}
	c := newClock(h.read)
	last := c.stamp()
	for i := range 1000 {
		h.pass(time.Millisecond, time.Duration(i%7-3)*time.Minute)
		if i%10 == 0 {
			c.observe(last.Add(-time.Second)) // an own frame that comes back late
		}
		if got := c.stamp(); got.Before(last) {
			t.Fatalf("after %v came %v", last, got)
		} else {
			last = got
		}
	}
	c.observe(last.Add(time.Hour))
	if got := c.stamp(); got.Before(last.Add(time.Hour)) {
		t.Errorf("a newer time from the log was not taken over: %v", got)
	}
}

func TestAStepNeedsTheClocksOfAMajorityOfAllVoters(t *testing.T) {
	const far = 5 * time.Second
	for _, test := range []struct {
		name   string
		clocks []voterClock
		voters int
		agreed []string
		ok     bool
	}{
		{"a lone voter", []voterClock{{"a", 0}}, 1, []string{"a"}, true},
		{"two of three", []voterClock{{"c", time.Second}, {"a", 0}, {"b", far}}, 3, []string{"a", "c"}, true},
		{"one of three answers", []voterClock{{"a", 0}}, 3, []string{"a"}, false},
		{"nobody agrees", []voterClock{{"a", 0}, {"b", far}, {"c", -far}}, 3, []string{"a"}, false},
		{"half is no majority", []voterClock{{"a", 0}, {"b", 0}, {"c", far}, {"d", far}}, 4, []string{"a", "b"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if agreed, ok := stepAgreed(test.clocks, test.voters); ok != test.ok || !slices.Equal(agreed, test.agreed) {
				t.Errorf("%v %v, want %v %v", agreed, ok, test.agreed, test.ok)
			}
		})
	}
}

func TestOnlyTimeFarBehindAsksForAStep(t *testing.T) {
	for behind, want := range map[time.Duration]bool{900 * time.Millisecond: false, 1100 * time.Millisecond: true, -time.Hour: false} {
		c := newClock((&hands{reading{wall: noon}}).read)
		c.reset(noon.Add(-behind))
		if c.behind() != want {
			t.Errorf("%v behind: %v", behind, !want)
		}
	}
}
