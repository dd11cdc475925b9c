package upstream

import (
	"testing"
)

// patient has voters campaign early, and wait long otherwise.
func TestTheLongestLogStandsLast(t *testing.T) {
	for _, c := range []struct {
		self string
		last map[string]uint64
		want int
	}{
		{"n1", map[string]uint64{"n1": 7, "n3": 7}, 0},
		{"n3", map[string]uint64{"n1": 7, "n3": 7}, 1},
		{"n1", map[string]uint64{"n1": 8, "n3": 7}, 1},
		{"n3", map[string]uint64{"n1": 8, "n3": 7}, 0},
		{"n9", map[string]uint64{"n1": 8, "n3": 7}, -1},
	} {
		if got := turnOf(c.self, c.last); got != c.want {
			t.Errorf("the turn of %s of %v is %d, not %d", c.self, c.last, got, c.want)
		}
	}
}
