package health

import (
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

func TestOnlyAnswersToNewQuestionsProveLeadership(t *testing.T) {
	servers := []raft.Server{{ID: "n1"}, {ID: "n2"}, {ID: "n3"}, {ID: "n4", Suffrage: raft.Nonvoter}}
	const term = 7
	for _, test := range []struct {
		name string
		note func(*Contacts)
		want bool
	}{
		{"nobody answered", func(*Contacts) {}, false},
		{"a voter, asked since", func(c *Contacts) { c.Note("n2", term, noon) }, true},
		{"a voter, asked before", func(c *Contacts) { c.Note("n2", term, noon.Add(-1)) }, false},
		{"a voter, in another term", func(c *Contacts) { c.Note("n2", term-1, noon) }, false},
		{"a non-voter", func(c *Contacts) { c.Note("n4", term, noon) }, false},
		{"a late answer after a newer one",
			func(c *Contacts) { c.Note("n3", term, noon); c.Note("n3", term, noon.Add(-1)) }, true},
	} {
		var c Contacts
		test.note(&c)
		if got := c.Quorum("n1", servers, term, noon); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

func TestAMemberThatConfirmsNoEntryIsStalled(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	var c Contacts
	c.Note("n2", 3, at(0))
	c.Match("n2", 3, 10, at(1))
	c.Note("n2", 3, at(8)) // a heartbeat confirms nothing
	for _, step := range []struct {
		term, last uint64
		now, want  int
	}{
		{3, 10, 9, 0}, // it lacks nothing
		{3, 11, 9, 8},
		{4, 11, 9, 0}, // nothing is known of it in this term
	} {
		if got := c.Stalled("n2", step.term, step.last, at(step.now)); got != time.Duration(step.want)*time.Second {
			t.Errorf("%+v: %v", step, got)
		}
	}
	c.Match("n2", 2, 11, at(9)) // an answer of an earlier term
	if got := c.Stalled("n2", 3, 11, at(9)); got != 8*time.Second {
		t.Errorf("after an old answer: %v", got)
	}
}
