package membership

import (
	"strings"
	"testing"
)

func TestWhoCanBeSpared(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, id, voters, healthy string
		minVoters                 int
		want                      bool
	}{
		{"a non-voter", "x", "a b c", "a", 3, true},
		{"the fourth of at least three", "d", "a b c d", "a b c", 3, true},
		{"the third of at least three", "c", "a b c", "a b", 3, false},
		{"the third of at least two", "c", "a b c", "a b", 2, true},
		{"with a bare quorum of those left", "e", "a b c d e", "a b c", 3, true},
		{"with less than a quorum of those left", "e", "a b c d e", "a b", 3, false},
		{"with half of those left", "c", "a b c", "a", 1, false},
		{"healthy itself, which does not count", "e", "a b c d e", "a b e", 3, false},
		{"healthy ones that have no vote do not count", "e", "a b c d e", "a b x y", 3, false},
	} {
		healthy := map[string]bool{}
		for _, id := range strings.Fields(test.healthy) {
			healthy[id] = true
		}
		if got := canRemove(test.id, strings.Fields(test.voters), healthy, test.minVoters); got != test.want {
			t.Errorf("%s: %t", test.name, got)
		}
	}
}
