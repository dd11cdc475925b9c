package membership

import (
	"testing"
	"time"
)

func TestTheCommitTrailKeepsTheLongStoryShort(t *testing.T) {
	t.Parallel()
	var trail commitTrail
	start := time.Unix(0, 0)
	after := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	if trail.at(start) != 0 || trail.latest() != 0 {
		t.Error("an empty trail knows something")
	}
	const seconds = 20_000
	for s := range seconds {
		trail.add(after(s), 100+uint64(s/2)*10) // every other sample brings nothing new
	}
	if len(trail.points) > keptCommits {
		t.Errorf("%d points are kept", len(trail.points))
	}
	if got := trail.at(after(-5)); got != 100 {
		t.Errorf("before it began: %d", got)
	}
	for _, ago := range []int{10, 100, 1000, 10_000} {
		when := after(seconds - ago)
		index := trail.at(when)
		if exact := 100 + uint64(seconds-ago)/2*10; index > exact || float64(exact-index)/5 > max(1, float64(ago)/10) {
			t.Errorf("%d s ago it was %d, not %d", ago, exact, index)
		}
		passed := trail.passed(index)
		if !passed.After(when) || float64(passed.Sub(when))/1e9 > max(2, float64(ago)/10) {
			t.Errorf("%d was passed at %v, looked up for %v", index, passed, when)
		}
	}
}
