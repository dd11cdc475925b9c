package election

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// observe feeds entries to a leadership and returns its events, one a line.
func observe(l *Leadership, entries ...Entry) string {
	var out strings.Builder
	for _, e := range entries {
		for _, ev := range l.Observe(e) {
			fmt.Fprintf(&out, "%s %s\n", ev.Type, ev.Payload)
		}
	}
	return out.String()
}

var start = time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)

func entry(term uint64, leader string, after time.Duration) Entry {
	return Entry{Term: term, Proposer: leader, Time: start.Add(after)}
}

// Terms that committed nothing are named by whoever saw them, those of the past
// and of the future are not.
func TestTermsWithoutAnEntryAreNamed(t *testing.T) {
	l := &Leadership{}
	later := entry(7, "n3", 5*time.Second)
	later.Cause = "no heartbeat from n1"
	later.Seen = []TermSeen{
		{Term: 2, Leader: "n1"},
		{Term: 5, Leader: "n2"},
		{Term: 6, Leader: "n1"},
		{Term: 7, Leader: "n3"},
		{Term: 9, Leader: "n2"},
	}
	got := observe(l, entry(2, "n1", 0), entry(2, "n1", time.Second), later)
	want := `LEADER_ELECTED {"cause":"bootstrap","leader_id":"n1","term":2}
LEADER_LOST {"cause":"no heartbeat from n1","old_leader":"n1","term":2}
LEADER_ELECTED {"cause":"no heartbeat from n1","leader_id":"n3","leaderless_ms":4000,"previous_leader":"n1",` +
		`"skipped_terms":[{"term":5,"leader":"n2"},{"term":6,"leader":"n1"}],"term":7}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// However entries come, a term is elected once and terms rise: an entry of an old
// term, which Raft would never hand on, emits nothing.
func TestATermIsElectedOnce(t *testing.T) {
	l := &Leadership{}
	got := observe(l, entry(3, "n1", 0), entry(3, "n1", 1), entry(2, "n2", 2), entry(3, "n2", 3))
	if n := strings.Count(got, "LEADER_ELECTED"); n != 1 || l.Leader != "n1" || l.Term != 3 {
		t.Errorf("%d elections, %s leads term %d:\n%s", n, l.Leader, l.Term, got)
	}
}

// An intent counts for its own term only.
func TestAnIntentEndsWithItsTerm(t *testing.T) {
	l := &Leadership{}
	observe(l, entry(1, "n1", 0))
	l.Announce(&Intent{Target: "n2", Cause: "drain"})
	first := observe(l, entry(2, "n2", time.Second))
	second := observe(l, entry(3, "n1", 2*time.Second))
	if !strings.HasPrefix(first, "LEADER_STEPDOWN ") || !strings.HasPrefix(second, "LEADER_LOST ") {
		t.Errorf("%s%s", first, second)
	}
}
